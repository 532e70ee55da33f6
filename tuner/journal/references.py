"""Whether the facts of a journal fit its experiment and each other: numbers, and their order."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tuner.candidate import INCUMBENT
from tuner.experiment.model import Experiment
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Entry,
    EpochOpened,
    Fact,
    IncumbentEntered,
    RunFinished,
    SearchEnded,
    TrialFinished,
    TrialProposed,
    WinnersExamined,
)
from tuner.journal.file import damaged
from tuner.trial import Measured


def check_references(path: Path, experiment: Experiment, entries: Sequence[Entry]) -> None:
    """Check that the entries of the journal at ``path`` can be of this experiment.

    Raises:
        EnvironmentProblem: an outcome has another number of cells than the experiment has shapes,
            a trial has not the next number, a fact names a trial or a shape that there is not,
            comes before the first epoch, or ends what has ended.
    """
    references = References(path, experiment)
    for entry in entries:
        references.check(entry)


class References:
    """Checks the entries of a journal one after the other, as :func:`check_references` does."""

    def __init__(self, path: Path, experiment: Experiment) -> None:
        self._path = path
        self._tune = len(experiment.shapes.tune)
        self._every = self._tune + len(experiment.shapes.held_out)
        self._line = 1
        self._proposed = self._incumbents = 0
        self._opened = False
        self._ended: set[str] = set()

    def check(self, entry: Entry) -> None:
        """Check the next entry; raises :class:`EnvironmentProblem`."""
        self._line += 1
        for what in self._disordered(entry.fact):
            raise damaged(self._path, self._line, what)
        match entry.fact:
            case TrialProposed(trial=trial):
                if trial != self._proposed:
                    what = f"trial {trial} where {self._proposed} is due"
                    raise damaged(self._path, self._line, what)
                self._proposed += 1
            case TrialFinished(trial=trial) if not 0 <= trial < self._proposed:
                raise damaged(self._path, self._line, f"trial {trial} was never proposed")
            case IncumbentEntered():
                self._incumbents += 1
            case fact:
                known = range(INCUMBENT - self._incumbents + 1, self._proposed)
                wrong = (
                    *_miscounted(fact, self._tune, self._every),
                    *_unknown(fact, known, self._every),
                )
                for what in wrong:
                    raise damaged(self._path, self._line, what)

    def _disordered(self, fact: Fact) -> Iterator[str]:
        """What no writer does: answer before the first epoch, end a search or a run twice."""
        match fact:
            case EpochOpened():
                self._opened = True
            case (
                BaselinePrepared() | TrialFinished() | ConfirmationSampled() | WinnersExamined()
            ) if not self._opened:
                yield f"{fact.kind} before the first epoch.opened"
            case SearchEnded() | RunFinished():
                if fact.kind in self._ended:
                    yield f"a second {fact.kind}"
                self._ended.add(fact.kind)
            case _:
                pass


def _miscounted(fact: Fact, tune: int, every: int) -> Iterator[str]:
    match fact:
        case BaselinePrepared(result=tuple() as cells) if len(cells) != every:
            yield f"{len(cells)} cells of the baseline, and the experiment has {every} shapes"
        case TrialFinished(trial=trial, outcome=Measured(cells=cells)) if len(cells) != tune:
            yield f"{len(cells)} cells of trial {trial}, and the experiment has {tune} tune shapes"
        case _:
            pass


def _unknown(fact: Fact, known: range, every: int) -> Iterator[str]:
    """The trials and shapes that a fact names and that there are not."""
    trials: Iterable[int] = ()
    shapes: Iterable[int] = ()
    match fact:
        case TrialFinished(same_as=int(trial)):
            if trial < 0:
                yield f"a trial was measured in its place that is none ({trial})"
            trials = (trial,)
        case ConfirmationSampled(samples=samples, failed=failed, extra_checks=extra):
            trials = (*(one.trial for one in samples), *extra, *(trial for trial, _ in failed))
            shapes = (one.shape for one in samples)
        case WinnersExamined(trials=examined, profiles=profiles, failed=failed):
            trials = (*examined, *(one.trial for one in profiles), *(trial for trial, _ in failed))
            shapes = (one.shape for one in profiles)
        case _:
            pass
    yield from (f"there is no trial {trial}" for trial in trials if trial not in known)
    yield from (f"there is no shape {shape}" for shape in shapes if not 0 <= shape < every)
