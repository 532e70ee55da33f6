"""Compiled trials on their way through the benches: which wait, and which are in flight.

Owns how many trials go into one work, and the cut-offs that it carries.
"""

from collections import Counter, deque
from itertools import count

from tuner.candidate import Candidate
from tuner.engine.work import MeasureWork
from tuner.journal.facts import TrialFinished
from tuner.journal.history import History

BATCH = 6
"""Trials in one work at most."""

BATCH_SECONDS = 0.05
"""About so much time on the device goes into one work, so that the call costs little beside it."""

QUEUED = 2
"""Works in flight for each bench: one that runs, and one that waits behind it."""

_FIRST = 4
"""So many on a GPU until the first is through: all compilers have their first results at once, and
the driver takes a while for them."""

_RECENT = 0.2
"""The weight of the last trial in the running mean of device seconds per trial."""


class BenchQueue:
    """The queue of all benches, for as long as this process lives."""

    def __init__(self, history: History, benches: int) -> None:
        self._history = history
        self.benches = benches
        self._waiting: deque[Candidate] = deque()
        self._works = count()
        self._sent: dict[int, int] = {}
        """The trials on a bench or queued for one, each with the number of its work here."""
        self._left: Counter[int] = Counter()
        """How many trials of each work are not finished."""
        self._seconds = 0.0
        gpu = history.epoch is not None and not history.epoch.device.is_cpu
        self._first = _FIRST if gpu else QUEUED

    @property
    def in_flight(self) -> int:
        """How many trials are on a bench or queued for one."""
        return len(self._sent)

    def add(self, candidate: Candidate) -> None:
        """Queue a compiled trial."""
        self._waiting.append(candidate)

    def finished(self, fact: TrialFinished) -> None:
        """Note a trial's outcome."""
        if (work := self._sent.pop(fact.trial, None)) is not None:
            self._left[work] -= 1
            if not self._left[work]:
                del self._left[work]
        if fact.device_seconds:
            before = self._seconds or fact.device_seconds
            self._seconds = before + _RECENT * (fact.device_seconds - before)

    def clear(self) -> None:
        """Forget what was not sent yet."""
        self._waiting.clear()

    def works(self) -> list[MeasureWork]:
        """What to send now."""
        size = self.batch
        cutoffs = self._history.race.cutoffs if self._history.ended is None else ()
        works, most = [], QUEUED if self._seconds else self._first
        while self._waiting and len(self._left) < most * self.benches:
            batch = [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]
            work = next(self._works)
            self._sent |= dict.fromkeys((candidate.trial for candidate in batch), work)
            self._left[work] = len(batch)
            works.append(MeasureWork(candidates=tuple(batch), cutoffs=cutoffs))
        return works

    @property
    def batch(self) -> int:
        """How many trials go into one work now."""
        if not self._seconds:
            return 1
        return min(BATCH, max(1, round(BATCH_SECONDS / self._seconds)))
