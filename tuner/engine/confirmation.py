"""After the search: confirm the finalists in fresh processes, then examine the winners.

All finalists are timed on the tune shapes in one process, and those that lead there in a few more.
The winners among them are timed in further ones until their verdicts are decided, and also on what
is reported besides: the held-out shapes and the other cache state. Owns which trials are ready for
that, and what of it is in flight. Knows nothing of searching.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean
from typing import Literal

from tuner.candidate import Candidate
from tuner.device import Device
from tuner.engine.work import ConfirmWork, ExamineWork
from tuner.experiment.model import Experiment
from tuner.experiment.odd_shapes import every_shape
from tuner.journal.facts import ConfirmationSampled, ConfirmScope, Fact, WinnersExamined
from tuner.journal.history import History
from tuner.plan import CellPlan
from tuner.results.screening import leading, leading_at_most
from tuner.results.statistics import FEWEST
from tuner.results.summary import undecided, winners

CONFIRM_ROUNDS = 4
"""Processes spent on either part at most, as a multiple of ``confirm.processes``."""


def has_rest(experiment: Experiment, device: Device) -> bool:
    """Whether anything is reported besides the tune shapes in the experiment's cache state."""
    return bool(experiment.shapes.held_out) or not device.is_cpu


_Part = Literal["tune", "rest"]
_Verdicts = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The winners, and those of them with undecided verdicts on tune and on held-out shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirming:
    """How far a confirmation is.

    It takes so many ``processes`` at most, if none fails, and until the last of them ``seconds``:
    ``None`` before a process without extra checks has answered, and while one with them, which
    takes longer, is under way. ``examining``: winners are with the checkers.
    """

    processes: int
    seconds: float | None
    examining: bool


@dataclass(frozen=True, slots=True)
class _Process:
    """What the next process times, and on what; with ``screening`` only to see which lead."""

    scope: ConfirmScope
    trials: tuple[int, ...] = ()
    screening: bool = False


class ConfirmationQueue:
    """Confirmation for as long as this process lives.

    Args:
        history: the run's; tells which trials win.
        benches: how many processes may time at once.
        rest: whether to time what is reported of winners besides, if there is any, and to run them
            under the checkers.
        profile: whether to read counters of the best.
    """

    def __init__(
        self, history: History, benches: int, *, rest: bool = True, profile: bool = False
    ) -> None:
        self._history = history
        self.benches = benches
        self._hurried = False
        self._rest = rest
        self._profile = profile
        self._compiled: dict[int, Candidate] = {}
        self._refused: set[int] = set()
        self._processes: dict[int, ConfirmWork] = {}
        self._examining = False
        self._judged: tuple[int, _Verdicts] | None = None
        self._screened: tuple[int, tuple[int, ...]] | None = None
        self._shapes = len(every_shape(history.experiment))

    @property
    def over(self) -> bool:
        """Whether nothing is in flight and nothing wanted."""
        return not (self._processes or self._examining or self._wanting())

    def applied(self, fact: Fact) -> None:
        """Note an answer."""
        if isinstance(fact, ConfirmationSampled):
            self._processes.pop(fact.process, None)
        elif isinstance(fact, WinnersExamined):
            self._examining = False

    def hurry(self, seconds_left: float) -> None:
        """Begin no process that a verdict can do without, unless there is time for one."""
        self._hurried = seconds_left < max(self._timing_seconds, default=0.0)

    @property
    def progress(self) -> Confirming:
        """How far it is."""
        first = self._fewest if self._has_rest and not self._alone else 0
        processes, seconds = first + self._wanted, None
        if self._timing_seconds and not self._checking:
            left = max(0, processes - len(self._history.confirmations))
            seconds = left * fmean(self._timing_seconds) / self.benches
        return Confirming(processes=processes, seconds=seconds, examining=self._examining)

    @property
    def _checking(self) -> bool:
        """Whether a process that gives extra checks, which takes longer, is under way or next."""
        if any(work.extra_checks for work in self._processes.values()):
            return True
        following = self._unconfirmed()
        part: _Part = "rest" if following.scope == "rest" else "tune"
        return not following.screening and bool(self._unchecked(part, following.trials))

    @property
    def _timing_seconds(self) -> list[float]:
        """Seconds of each process so far that gave no extra checks."""
        known = self._history.confirmations
        return [one.span.seconds for one in known if one.span and not one.extra_checks]

    def add(self, candidate: Candidate) -> None:
        """Note that a trial is compiled: for every shape, or only for the tune shapes."""
        self._compiled[candidate.trial] = candidate

    def refuse(self, trial: int) -> None:
        """Note that a trial cannot be compiled for every shape."""
        self._refused.add(trial)

    def remeasured(self, trial: int) -> None:
        """Forget what was compiled of a trial that was measured once more: it may lack shapes."""
        self._compiled.pop(trial, None)

    def absent(self, compiling: set[int]) -> list[int]:
        """Trials that must be compiled before anything else is done, or that may be wanted next."""
        wanted = self._screened_now() if self._waits else self._wanting()
        return [n for n in wanted if not self._is_compiled(n) and n not in compiling]

    def _screened_now(self) -> list[int]:
        """The finalists while a GPU screens them: meanwhile they are compiled for every shape."""
        device, finalists = self._history.device, self._finalists()
        if device is None or device.is_cpu or not self._is_screened(finalists):
            return []
        return finalists if self._awaits(finalists, 1) else []

    def _is_screened(self, finalists: Sequence[int]) -> bool:
        """Whether so many are timed in one process first, to see which lead."""
        return self.benches == 1 and len(finalists) > leading_at_most(self._top)

    @property
    def screening(self) -> bool:
        """Whether the next process times tune shapes alone, without extra checks."""
        return self._unconfirmed().screening

    def _is_compiled(self, trial: int) -> bool:
        """Whether a trial is compiled for as many shapes as it is wanted for next."""
        known = self._compiled.get(trial)
        return known is not None and (len(known.plan.cells) == self._shapes or self.screening)

    def works(self) -> list[ConfirmWork | ExamineWork]:
        """What to send now that everything wanted is compiled."""
        if self._waits:
            return []
        if not self._processes and not self._unconfirmed().trials:
            self._examining = True
            winners = tuple(self._compiled[trial] for trial in self._unexamined())
            return [ExamineWork(winners=winners, checkers=self._rest, profiler=self._profile)]
        works: list[ConfirmWork | ExamineWork] = []
        while len(self._processes) < self.benches:
            following = self._unconfirmed()
            scope, wanted = following.scope, following.trials
            if not wanted:
                break
            used = {c.process for c in self._history.confirmations} | self._processes.keys()
            process = next(n for n in count() if n not in used)
            work = ConfirmWork(
                process=process,
                scope=scope,
                finalists=tuple(self._compiled[trial] for trial in wanted),
                extra_checks=()
                if following.screening
                else self._unchecked("rest" if scope == "rest" else "tune", wanted),
            )
            self._processes[process] = work
            works.append(work)
        return works

    def _unchecked(self, part: _Part, trials: Sequence[int]) -> tuple[int, ...]:
        """Those that no process was told to give the extra checks of a part.

        Incumbents had those of the tune shapes when they won.
        """
        begun: list[ConfirmWork | ConfirmationSampled] = [
            *self._processes.values(),
            *self._history.confirmations,
        ]
        checked = {n for one in begun if one.scope in (part, "all") for n in one.extra_checks}
        known = self._history.incumbent_numbers if part == "tune" else ()
        return tuple(trial for trial in trials if trial not in checked and trial not in known)

    @property
    def _waits(self) -> bool:
        """Whether nothing can be begun before what is in flight is answered."""
        return self._examining or (bool(self._processes) and not self._unconfirmed().trials)

    @property
    def _has_rest(self) -> bool:
        """Whether winners are to be timed on more than the tune shapes."""
        device = self._history.device
        return self._rest and device is not None and has_rest(self._history.experiment, device)

    @property
    def _held_out(self) -> range:
        shapes = self._history.experiment.shapes
        return range(len(shapes.tune), len(shapes.tune) + len(shapes.held_out))

    @property
    def _top(self) -> int:
        return self._history.experiment.confirm.top

    @property
    def _at_most(self) -> int:
        return self._history.experiment.confirm.processes

    @property
    def _fewest(self) -> int:
        return min(FEWEST, self._at_most)

    @property
    def _wanted(self) -> int:
        """In how many processes a winner is timed whose verdict is undecided."""
        return self._fewest if self._hurried else self._at_most

    @property
    def _alone(self) -> bool:
        """Whether the winner is known and has a rest: one finalist, and no incumbent."""
        return self._has_rest and len(self._finalists()) == 1 and not self._history.incumbents

    def _wanting(self) -> Sequence[int]:
        """Trials that need to be confirmed, or once all are, examined."""
        return self._unconfirmed().trials or self._unexamined()

    def _unconfirmed(self) -> _Process:
        """The next process; without trials if none is wanted, or none before others are answered.

        First all finalists, in one process where one bench has to time them all. Then those that
        lead, in the fewest. Then the winners among them, until their verdicts are decided. The
        incumbents are timed beside them on the tune shapes, as the baseline is.
        """
        finalists = self._finalists()
        if self._is_screened(finalists):
            if fresh := self._lacking("tune", finalists, 1):
                return _Process("tune", (*fresh, *self._incumbents()), screening=True)
            if self._awaits(finalists, 1):
                return _Process("tune")
            finalists = self._leading_of(finalists)
        if first := self._lacking("tune", finalists, self._fewest):
            return _Process("all" if self._alone else "tune", (*first, *self._incumbents()))
        if self._awaits(finalists, self._fewest):
            return _Process("tune")
        tune, rest = self._undecided()
        if not tune or self._unchecked("rest", rest):
            return _Process("rest", tuple(rest))
        wanted = dict.fromkeys([*tune, *rest, *self._incumbents()])
        return _Process("all" if rest else "tune", tuple(wanted))

    def _awaits(self, trials: Sequence[int], wanted: int) -> bool:
        """Whether processes in flight have to be answered for so many of each trial."""
        answered = self._times("tune", [])
        return bool(self._processes) and any(answered[trial] < wanted for trial in trials)

    def _leading_of(self, finalists: list[int]) -> list[int]:
        """Those that lead, found once for each state of the history."""
        applied = self._history.applied
        if self._screened is None or self._screened[0] != applied:
            self._screened = applied, leading(self._history, finalists)
        return [one for one in finalists if one in self._screened[1]]

    def _undecided(self) -> tuple[list[int], list[int]]:
        """The winners that lack processes on the tune shapes, and on the rest."""
        winning, tune, held_out = self._verdicts()
        winning = tuple(n for n in winning if n not in self._refused)
        if not self._has_rest:  # what is nearly as fast is compared beside it
            return self._lacking(
                "tune", self._contenders(winning if tune else ()), self._wanted
            ), []
        more = self._contenders([n for n in winning if n in tune])
        serving = [n for n in winning if self._serves_rest(n)]
        new, unsure = self._unchecked("rest", serving), [n for n in serving if n in held_out]
        rest = {
            *self._lacking("rest", new, CONFIRM_ROUNDS * self._at_most),
            *self._lacking("rest", serving, self._fewest),
            *self._lacking("rest", unsure, self._wanted),
        }
        return self._lacking("tune", more, self._wanted), [n for n in winning if n in rest]

    def _contenders(self, winning: Sequence[int]) -> list[int]:
        """Those that may go on: once some finalists do, no others that come near them later."""
        seen = self._times("tune", list(self._processes.values()))
        further = [n for n in self._finalists() if seen[n] > self._fewest]
        chosen = [*further, *self._history.incumbent_numbers]
        return [n for n in winning if n in chosen or not further]

    def _lacking(self, part: _Part, trials: Sequence[int], wanted: int) -> list[int]:
        """Those timed in too few processes on a part, if any processes are left to spend on it."""
        flight = [w for w in self._processes.values() if w.scope in (part, "all")]
        answered = [c for c in self._history.confirmations if c.scope in (part, "all")]
        if len(flight) + len(answered) >= CONFIRM_ROUNDS * self._at_most:
            return []
        seen = self._times(part, flight)
        return [trial for trial in trials if seen[trial] < wanted]

    def _times(self, part: _Part, flight: Sequence[ConfirmWork]) -> Counter[int]:
        """In how many processes each trial was timed on a part, or is to be."""
        seen = Counter(trial for work in flight for trial in work.trials)
        for confirmation in self._history.confirmations:
            if confirmation.scope in (part, "all"):
                seen.update({sample.trial for sample in confirmation.samples})
        return seen

    def _serves_rest(self, trial: int) -> bool:
        """Whether a trial can be launched on a shape of the rest, as far as is known."""
        if trial not in self._compiled or not (device := self._history.device) or not device.is_cpu:
            return True
        cells = self._compiled[trial].plan.cells
        return any(isinstance(cells[shape], CellPlan) for shape in self._held_out)

    def _finalists(self) -> list[int]:
        return [n for n in self._history.finalists() if n not in self._refused]

    def _incumbents(self) -> list[int]:
        failed = self._refused | self._history.failed_later.keys()
        return [number for number in self._history.incumbent_numbers if number not in failed]

    def _unexamined(self) -> tuple[int, ...]:
        """Winners that no checker has seen; without a rest the first is at most profiled."""
        seen = {number for fact in self._history.examinations for number in fact.trials}
        wanted = [n for n in self._winners() if n not in self._refused]
        if not self._rest:
            wanted = wanted[: int(self._profile)]
        return tuple(n for n in wanted if n not in seen)

    def _winners(self) -> tuple[int, ...]:
        return self._verdicts()[0]

    def _verdicts(self) -> _Verdicts:
        """What the history says now, found once for each of its states: every step asks."""
        applied = self._history.applied
        if self._judged is None or self._judged[0] != applied:
            confirm = self._history.experiment.confirm
            until = confirm.until if self._rest else None  # rounds need verdicts alone
            unsure = undecided(self._history, cells=self._has_rest, until=until)
            self._judged = applied, (winners(self._history), *unsure)
        return self._judged[1]
