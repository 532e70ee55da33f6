"""Compiled trials on their way through the benches: what waits, and which jobs are in flight.

Owns the size of a job and what it carries. Knows nothing of why a trial is to be measured.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from tuner.engine.commands import Bench, Command
from tuner.journal.facts import TrialFinished
from tuner.journal.history import History

BATCH = 6
"""Trials in one job at most."""

BATCH_SECONDS = 0.05
"""About so much work goes into one, so that the call costs nothing."""

QUEUED_JOBS = 2
"""Jobs in flight for each bench: one that runs, and one that waits."""

_RECENT = 0.2
"""How much the last trial counts in how long trials take."""


class Benching:
    """The benches' queue for as long as this process lives."""

    def __init__(self, history: History, benches: int) -> None:
        self._history = history
        self._benches = benches
        self._waiting: deque[int] = deque()
        self._jobs: list[list[int]] = []
        self._seconds = 0.0

    @property
    def in_flight(self) -> int:
        """How many trials are on a bench or queued for one."""
        return sum(len(job) for job in self._jobs)

    def holds(self, trial: int) -> bool:
        """Whether an answer for this trial is waited for."""
        return any(trial in job for job in self._jobs)

    def add(self, trial: int) -> None:
        """Take on a compiled trial."""
        self._waiting.append(trial)

    def finished(self, fact: TrialFinished) -> None:
        """Take in a trial's outcome."""
        self._leave([fact.trial])
        if fact.device_seconds:
            before = self._seconds or fact.device_seconds
            self._seconds = before + _RECENT * (fact.device_seconds - before)

    def lost(self, trials: Sequence[int]) -> list[int]:
        """Take in that the worker of a job died; the trials of it that had no answer."""
        unanswered = [trial for trial in trials if self.holds(trial)]
        self._leave(unanswered)
        return unanswered

    def put_back(self, trials: Iterable[int]) -> None:
        """Trials that were lost are the next ones."""
        self._waiting.extendleft(reversed(list(trials)))

    def give_up_waiting(self) -> None:
        """Forget what is on no bench."""
        self._waiting.clear()

    def commands(self, *, in_phases: bool) -> list[Command]:
        """The jobs to send now; ``in_phases``: all that waits, in equal parts."""
        if not self._waiting:
            return []
        size = -(-len(self._waiting) // self._benches) if in_phases else self._batch
        cutoffs = self._history.race.cutoffs if self._history.ended is None else ()
        commands: list[Command] = []
        while self._waiting and len(self._jobs) < QUEUED_JOBS * self._benches:
            batch = [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]
            self._jobs.append(batch)
            commands.append(Bench(tuple(batch), cutoffs))
        return commands

    @property
    def _batch(self) -> int:
        if not self._seconds:
            return 1
        return min(BATCH, max(1, round(BATCH_SECONDS / self._seconds)))

    def _leave(self, trials: Sequence[int]) -> None:
        jobs = [[trial for trial in job if trial not in trials] for job in self._jobs]
        self._jobs = [job for job in jobs if job]
