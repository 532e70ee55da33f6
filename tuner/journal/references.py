"""Whether the facts of a journal fit its experiment: the numbers of cells, trials and shapes."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tuner.candidate import INCUMBENT
from tuner.experiment.model import Experiment
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Entry,
    Fact,
    IncumbentEntered,
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
            or a fact names a trial or a shape that there is not.
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

    def check(self, entry: Entry) -> None:
        """Check the next entry; raises :class:`EnvironmentProblem`."""
        self._line += 1
        match entry.fact:
            case TrialProposed():
                self._proposed += 1
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
