"""What is known about a run: the fold of its journal, and which trials lead.

Rebuilt from a journal by :meth:`History.apply` alone. Knows nothing of work in flight, which is
:mod:`tuner.engine.session`, nor of how results are presented.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tuner.candidate import BASELINE, INCUMBENT
from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.experiment.model import Experiment, Template
from tuner.experiment.objective import TIME_SLACK
from tuner.journal.facts import (
    BaselinePrepared,
    BenchJoined,
    BenchLost,
    ConfirmationSampled,
    Entry,
    EpochOpened,
    IncumbentEntered,
    ModelCalled,
    Note,
    Reason,
    RunFinished,
    SearchEnded,
    TrialCompiled,
    TrialFinished,
    TrialProposed,
    WinnersExamined,
    WorkBegan,
    WorkLost,
)
from tuner.journal.search_clock import SearchClock
from tuner.racing import CutoffTracker
from tuner.search.port import Losses
from tuner.space.lower import launches_dependently
from tuner.telemetry import Vitals
from tuner.trial import (
    Configuration,
    CutShort,
    Full,
    Infeasible,
    Measured,
    Outcome,
    Rejected,
    geometric_mean,
    loss,
)

SCATTER, MOVED = 0.2, 1.5
"""A baseline is doubted whose times scatter so much, or that a resume changed by this factor."""


@dataclass(slots=True)
class Trial:
    """One proposed configuration and what became of it.

    ``outcome`` is ``None`` while it is open, and for good if the search ended before it was
    measured (``abandoned``). ``bench`` is where it was measured, if it was. ``current`` says
    whether the outcome was taken in the run's present environment: one from another device, driver
    or compiler leads nothing.
    """

    number: int
    configuration: Configuration
    outcome: Outcome | None = None
    bench: str = ""
    device_seconds: float = 0.0
    current: bool = True
    abandoned: bool = False
    same_as: int | None = None


class History:
    """Journal entries in, the state of the run out."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.applied = 0
        """How many entries it adds up."""
        self.weights: tuple[float, ...] = tuple(s.weight for s in experiment.shapes.tune)
        self.epoch: EpochOpened | None = None
        self.incumbents: list[IncumbentEntered] = []
        self.baseline: tuple[Full, ...] = ()
        self.notes: tuple[Note, ...] = ()
        self._doubts: list[str] = []
        self._prior: tuple[Full, ...] = ()
        """The baseline as this environment last had it."""
        self.ceilings: Ceilings | None = None
        self.vitals: list[Vitals] = []
        """How the device was in this environment, each time that something was timed on it."""
        self.refused: Rejected | None = None
        self.trials: dict[int, Trial] = {}
        self.outcomes: Counter[str] = Counter()
        """How many trials have an outcome of each kind."""
        self.merged = 0
        """How many trials have the outcome of an equal one."""
        self.race = self._new_race()
        self._best: tuple[tuple[int, ...], tuple[int | None, ...]] | None = None
        self.confirmations: list[ConfirmationSampled] = []
        self.examinations: list[WinnersExamined] = []
        self.clock = SearchClock()
        self.device_seconds = 0.0
        self.ended: Reason | None = None
        self.finished = False

    @classmethod
    def of(cls, experiment: Experiment, entries: Iterable[Entry]) -> "History":
        """The history that a journal's entries add up to."""
        history = cls(experiment)
        for entry in entries:
            history.apply(entry)
        return history

    def apply(self, entry: Entry) -> None:
        """Apply the next entry; a journal's own order is always accepted."""
        self.clock.apply(entry)
        self.applied += 1
        fact = entry.fact
        match fact:
            case EpochOpened():
                self._open_epoch(fact)
            case IncumbentEntered():
                self.incumbents.append(fact)
            case BaselinePrepared(result=Rejected() as rejected):
                self.refused = rejected
            case BaselinePrepared():
                self._prepare(fact)
            case TrialProposed(trial=number, configuration=configuration):
                self.trials[number] = Trial(number, configuration)
            case TrialFinished():
                self._finish(fact)
            case SearchEnded(reason=reason):
                self.ended = reason
                for trial in self.open():
                    trial.abandoned = True
                self._reopen()
            case ConfirmationSampled():
                self.confirmations.append(fact)
                self.vitals += fact.vitals
                self._note(fact)
            case WinnersExamined():
                self.examinations.append(fact)
                self._note(fact)
            case RunFinished():
                self.finished = True
            case TrialCompiled() | WorkBegan() | WorkLost() | BenchJoined() | BenchLost():
                pass
            case ModelCalled():
                pass

    def _prepare(self, fact: BaselinePrepared) -> None:
        assert not isinstance(fact.result, Rejected)
        self._doubts += [n for n in self._doubts_of(fact.result) if n not in self._doubts]
        self.baseline = self._prior = fact.result
        self.notes = (*self._doubts, *fact.notes)
        self.ceilings = fact.ceilings
        self._look(fact.vitals)

    def _doubts_of(self, cells: Sequence[Full]) -> Iterator[str]:
        """Warnings: baseline times that scatter or moved by more than the thresholds."""
        shapes = (*self.experiment.shapes.tune, *self.experiment.shapes.held_out)
        for shape, cell in zip(shapes, cells, strict=False):
            if cell.mad_ns > SCATTER * cell.median_ns:
                share = cell.mad_ns / cell.median_ns
                said = f"{shape}: the baseline's own times scatter by {share:.0%}"
                yield f"{said}; rerun on an idle device"
        for shape, before, now in zip(shapes, self._prior, cells, strict=False):
            moved = now.median_ns / before.median_ns
            if self.trials and max(moved, 1 / moved) > MOVED:
                yield (
                    f"{shape}: the baseline took {moved:.2g} times as long after a resume as "
                    "before, so what was searched before and after compares badly"
                )

    def _note(self, fact: ConfirmationSampled | WinnersExamined) -> None:
        self.notes = tuple(dict.fromkeys((*self.notes, *fact.notes)))
        if fact.failed:
            self._race_again()
            self._reopen()

    def _reopen(self) -> None:
        """Reopen cut-short trials that are among the chosen now, to measure them in full.

        This is rare: a better trial must have failed later.
        """
        if self.open():
            return
        general, special = self._chosen()
        chosen = {n for n in general if not self._is_complete(n)}
        for shape, best in enumerate(special):
            if best is not None and self._is_short(best, shape):
                chosen.add(best)
        for number in chosen:
            self._settle(self.trials[number], None)

    def _open_epoch(self, fact: EpochOpened) -> None:
        """Begin an epoch; in another environment, earlier times are ignored.

        The finalists are measured again. A finished run stays as it is.
        """
        before, self.epoch = self.epoch, fact
        if before and not self.finished and fact.environment != before.environment:
            leading = self.finalists()
            for trial in self.trials.values():
                trial.current = False
            for number in leading:
                self._settle(self.trials[number], None)
            self._race_again()
            self.confirmations.clear()
            self.vitals.clear()
            self.examinations.clear()
            self.refused, self._prior = None, ()
            self._doubts.clear()

    def _finish(self, fact: TrialFinished) -> None:
        trial = self.trials[fact.trial]
        self._settle(trial, fact.outcome)
        self.merged += (fact.same_as is not None) - (trial.same_as is not None)
        trial.same_as = fact.same_as
        trial.bench = "" if fact.span is None else fact.span.worker
        trial.device_seconds = fact.device_seconds
        trial.current = True
        self.device_seconds += fact.device_seconds
        self._look(fact.vitals)
        if isinstance(fact.outcome, Measured) and fact.same_as is None:
            self.race.take(trial.number, fact.outcome)
        if self.ended is not None:
            self._reopen()

    def _look(self, vitals: Vitals | None) -> None:
        if vitals is not None:
            self.vitals.append(vitals)

    def _new_race(self) -> CutoffTracker:
        slack = 1.0 if self.experiment.objective == "time" else TIME_SLACK
        return CutoffTracker(self.experiment.confirm.top, self.weights, slack)

    def _race_again(self) -> None:
        """Compute the cut-offs again from the trials that are still valid."""
        self._best = None
        self.race = self._new_race()
        for trial, outcome in self._measured():
            self.race.take(trial.number, outcome)

    def _settle(self, trial: Trial, outcome: Outcome | None) -> None:
        if trial.outcome is not None:
            self.outcomes[trial.outcome.kind] -= 1
        if outcome is not None:
            self.outcomes[outcome.kind] += 1
        trial.outcome = outcome
        self._best = None

    @property
    def device(self) -> Device | None:
        """The device of the last process, if any began."""
        return None if self.epoch is None else self.epoch.device

    def open(self) -> list[Trial]:
        """Trials that still want an outcome, in order."""
        return [t for t in self.trials.values() if t.outcome is None and not t.abandoned]

    @property
    def incumbent_numbers(self) -> range:
        """The incumbents' numbers, the general one's first."""
        return range(INCUMBENT, INCUMBENT - len(self.incumbents), -1)

    def incumbent(self, number: int) -> IncumbentEntered:
        """The incumbent of such a number."""
        return self.incumbents[INCUMBENT - number]

    def configuration(self, number: int) -> Configuration:
        """That of a trial, or of an incumbent."""
        if number <= INCUMBENT:
            return self.incumbent(number).configuration
        return self.trials[number].configuration

    def template(self, number: int) -> Template | None:
        """What a trial, or an incumbent, is a configuration of."""
        if number <= INCUMBENT:
            return self.incumbent(number).template
        return self.experiment.template

    def launches_dependently(self, number: int) -> bool:
        """Whether a trial, an incumbent or the baseline has a dependent launch on a tune shape."""
        baseline = number == BASELINE
        subject = None if baseline else self.template(number)
        configuration = Configuration(()) if baseline else self.configuration(number)
        return launches_dependently(
            subject or self.experiment.kernel,
            configuration,
            self.experiment.shapes.tune,
            self.device,
        )

    def loss(self, number: int) -> float | None:
        """The trial's weighted mean ratio to the baseline; ``None`` if rejected or open."""
        outcome = self.trials[number].outcome
        return None if outcome is None else loss(outcome, self.weights)

    def losses(self, number: int) -> Losses | None:
        """What a search is told of a trial; ``None`` if it was rejected or is open."""
        outcome = self.trials[number].outcome
        if not isinstance(outcome, Measured):
            return None
        ratios = tuple(cell.ratio for cell in outcome.cells)
        return (geometric_mean(ratios, self.weights), *ratios)

    @property
    def failed_later(self) -> dict[int, Rejected]:
        """What failed after it had been measured, or confirmed in an earlier search, and how."""
        told = [*(c.failed for c in self.confirmations), *(e.failed for e in self.examinations)]
        return {number: why for failed in told for number, why in failed}

    @property
    def rejected(self) -> int:
        """How many trials failed, in the search or when they were confirmed."""
        return self.outcomes["rejected"] + sum(
            number in self.trials for number in self.failed_later
        )

    def _measured(self) -> list[tuple[Trial, Measured]]:
        failed = self.failed_later
        return [
            (trial, trial.outcome)
            for trial in self.trials.values()
            if trial.current
            and trial.same_as is None
            and isinstance(trial.outcome, Measured)
            and trial.number not in failed
        ]

    def ranking(self) -> list[int]:
        """Trials that can serve every tune shape, best first; none that failed confirmation."""
        ranked = sorted(
            (geometric_mean([cell.ratio for cell in outcome.cells], self.weights), trial.number)
            for trial, outcome in self._measured()
            if outcome.general
        )
        return [number for _, number in ranked]

    def leader(self) -> int | None:
        """The best general trial that was measured in full so far, not necessarily confirmed."""
        return self.race.leader

    def leader_for(self, shape: int) -> int | None:
        """The best trial for one tune shape so far, not necessarily confirmed."""
        ratios = [
            (outcome.cells[shape].ratio, trial.number)
            for trial, outcome in self._measured()
            if not isinstance(outcome.cells[shape], Infeasible)
        ]
        return min(ratios)[1] if ratios else None

    def _is_complete(self, number: int) -> bool:
        outcome = self.trials[number].outcome
        return isinstance(outcome, Measured) and outcome.complete

    def _is_short(self, number: int, shape: int) -> bool:
        outcome = self.trials[number].outcome
        return isinstance(outcome, Measured) and isinstance(outcome.cells[shape], CutShort)

    def _chosen(self) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
        """The best general trials, and the best of each shape."""
        if self._best is None:
            general = tuple(self.ranking()[: self.experiment.confirm.top])
            shapes = range(len(self.weights))
            self._best = general, tuple(self.leader_for(shape) for shape in shapes)
        return self._best

    def finalists(self) -> tuple[int, ...]:
        """Trials to confirm: the best ``confirm.top`` general ones and each shape's best."""
        general, special = self._chosen()
        best = dict.fromkeys((*general, *special))
        return tuple(number for number in best if number is not None)
