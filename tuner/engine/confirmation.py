"""After the search: confirm the finalists in fresh processes, then examine the winners.

Finalists are timed on the tune shapes. Only the winners among them are timed on what is reported
besides, the held-out shapes and the other cache state. Owns which trials are ready for that, and
what of it is in flight. Knows nothing of searching.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Literal

from tuner.candidate import Candidate
from tuner.device import Device
from tuner.engine.work import ConfirmWork, ExamineWork
from tuner.experiment.model import Experiment
from tuner.journal.facts import ConfirmationSampled, ConfirmScope, Fact, WinnersExamined
from tuner.journal.history import History
from tuner.plan import CellPlan
from tuner.results.summary import winners

CONFIRM_ROUNDS = 4
"""Processes spent on either part at most, as a multiple of ``confirm.processes``."""


def has_rest(experiment: Experiment, device: Device) -> bool:
    """Whether anything is reported besides the tune shapes in the experiment's cache state."""
    return bool(experiment.shapes.held_out) or not device.is_cpu


class ConfirmationQueue:
    """Confirmation for as long as this process lives.

    Args:
        history: the run's; tells which trials win.
        benches: how many processes may time at once.
        rest: whether to time what is reported of winners besides, if there is any.
    """

    def __init__(self, history: History, benches: int, *, rest: bool = True) -> None:
        self._history = history
        self._benches = benches
        self._rest = rest
        self._compiled: dict[int, Candidate] = {}
        self._refused: set[int] = set()
        self._processes: dict[int, ConfirmWork] = {}
        self._examining = False
        self._winning: tuple[int, tuple[int, ...]] = (-1, ())

    @property
    def over(self) -> bool:
        """Whether nothing is in flight and nothing wanted."""
        return not (self._processes or self._examining or self._wanting())

    @property
    def processes(self) -> int:
        """How many processes it takes if nothing fails."""
        parts = 2 if self._has_rest and not self._alone else 1
        return parts * self._history.experiment.confirm.processes

    def applied(self, fact: Fact) -> None:
        """Note an answer."""
        if isinstance(fact, ConfirmationSampled):
            self._processes.pop(fact.process, None)
        elif isinstance(fact, WinnersExamined):
            self._examining = False

    def add(self, candidate: Candidate) -> None:
        """Note that a trial is compiled for every shape."""
        self._compiled[candidate.trial] = candidate

    def refuse(self, trial: int) -> None:
        """Note that a trial cannot be compiled for every shape."""
        self._refused.add(trial)

    def remeasured(self, trial: int) -> None:
        """Forget what was compiled of a trial that was measured once more: it may lack shapes."""
        self._compiled.pop(trial, None)

    def absent(self, compiling: set[int]) -> list[int]:
        """Trials that must be compiled before anything else is done."""
        if self._waits:
            return []
        return [n for n in self._wanting() if n not in self._compiled and n not in compiling]

    def works(self) -> list[ConfirmWork | ExamineWork]:
        """What to send now that everything wanted is compiled."""
        if self._waits:
            return []
        if not self._processes and not self._unconfirmed()[1]:
            self._examining = True
            winners = tuple(self._compiled[trial] for trial in self._unexamined())
            return [ExamineWork(winners=winners)]
        works: list[ConfirmWork | ExamineWork] = []
        while len(self._processes) < self._benches:
            scope, wanted = self._unconfirmed()
            if not wanted:
                break
            used = {c.process for c in self._history.confirmations} | self._processes.keys()
            process = next(n for n in count() if n not in used)
            work = ConfirmWork(
                process=process,
                scope=scope,
                finalists=tuple(self._compiled[trial] for trial in wanted),
                extra_checks=self._unchecked(scope, wanted),
            )
            self._processes[process] = work
            works.append(work)
        return works

    def _unchecked(self, scope: ConfirmScope, trials: Sequence[int]) -> tuple[int, ...]:
        """Those that have not been given the extra checks, in this process or an earlier one."""
        begun: list[ConfirmWork | ConfirmationSampled] = [
            *self._processes.values(),
            *self._history.confirmations,
        ]
        checked = {n for one in begun if one.scope in (scope, "all") for n in one.extra_checks}
        return tuple(trial for trial in trials if trial not in checked)

    @property
    def _waits(self) -> bool:
        """Whether nothing can be begun before what is in flight is answered."""
        return self._examining or (bool(self._processes) and not self._unconfirmed()[1])

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
    def _alone(self) -> bool:
        """Whether the winner is known and has a rest: one finalist, and no incumbent."""
        return self._has_rest and len(self._finalists()) == 1 and not self._history.incumbents

    def _wanting(self) -> Sequence[int]:
        """Trials that need to be confirmed, or once all are, examined."""
        return self._unconfirmed()[1] or self._unexamined()

    def _unconfirmed(self) -> tuple[ConfirmScope, list[int]]:
        """Trials that need to be timed in more processes, and on what.

        The incumbents are timed beside all finalists, as the baseline is. Who wins is known only
        once all finalists are timed.
        """
        finalists = self._finalists()
        if unsure := self._lacking("tune", finalists):
            return "all" if self._alone else "tune", [*unsure, *self._incumbents()]
        if not self._has_rest or any(work.scope != "rest" for work in self._processes.values()):
            return "rest", []
        winning = [n for n in self._winners() if n not in self._refused]
        return "rest", self._lacking("rest", [n for n in winning if self._serves_rest(n)])

    def _lacking(self, part: Literal["tune", "rest"], trials: Sequence[int]) -> list[int]:
        """Those timed in too few processes on a part, if any processes are left to spend on it."""
        wanted = self._history.experiment.confirm.processes
        flight = [w for w in self._processes.values() if w.scope in (part, "all")]
        answered = [c for c in self._history.confirmations if c.scope in (part, "all")]
        if len(flight) + len(answered) >= CONFIRM_ROUNDS * wanted:
            return []
        seen = Counter(trial for work in flight for trial in work.trials)
        for confirmation in answered:
            seen.update({sample.trial for sample in confirmation.samples})
        return [trial for trial in trials if seen[trial] < wanted]

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
        """Confirmed winners that no checker has seen; incumbents were seen in their own search."""
        seen = {number for fact in self._history.examinations for number in fact.trials}
        passed = self._refused | seen | set(self._history.incumbent_numbers)
        return tuple(n for n in self._winners() if n not in passed)

    def _winners(self) -> tuple[int, ...]:
        """The winners so far, found once for each state of the history: every step asks."""
        if self._winning[0] != self._history.applied:
            self._winning = (self._history.applied, winners(self._history))
        return self._winning[1]
