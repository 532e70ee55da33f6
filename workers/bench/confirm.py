"""Confirmation: finalists and baseline in one fresh child, checked harder, timed interleaved.

Owns the further questions that only finalists are asked, and the order of timing. A finalist that
fails is named and leaves; the others start over in another fresh child.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from tuner.errors import EnvironmentProblem
from tuner.fleet import BASELINE, Candidate, Confirmed, ConfirmJob, Sample
from tuner.plan import CellPlan
from tuner.spec.resolve import ResolvedArgument
from tuner.trial import Rejected
from workers.bench.judge import Question, rejected
from workers.bench.oracle import Oracle, Recipe
from workers.bench.prep import Prep
from workers.bench.stand import Cache, Entrant, Stand
from workers.devices.port import DeviceFailure
from workers.inputs import Distribution, applies

ROUNDS = 5
"""Parts that each timing is cut into, so that entrants take turns."""

_DISTRIBUTIONS: dict[Distribution, str] = {
    "large": "large magnitudes",
    "zeros": "exact zeros",
    "ends": "ends of the range",
    "specials": "special values",
}


class _OutError(Exception):
    """An entrant failed; never leaves this module."""

    def __init__(self, trial: int, reason: Rejected) -> None:
        super().__init__(reason.detail)
        self.trial = trial
        self.reason = reason


class Confirmation:
    """One process of confirmation.

    Args:
        prep: what the bench knows.
        oracle: makes the further questions.
        cache: those made already, by shape.
        open_stand: a stand on a fresh child.
        rng: decides who is next.
    """

    def __init__(
        self,
        prep: Prep,
        oracle: Oracle,
        cache: dict[int, list[Question]],
        open_stand: Callable[[], Stand],
        rng: np.random.Generator,
    ) -> None:
        self._prep = prep
        self._oracle = oracle
        self._cache = cache
        self._open_stand = open_stand
        self._rng = rng

    def run(self, job: ConfirmJob) -> Confirmed:
        """Check and time; the first process asks the further questions.

        Raises:
            EnvironmentProblem: the baseline fails.
        """
        failed: dict[int, Rejected] = {}
        while True:
            finalists = [c for c in job.finalists if c.trial not in failed]
            try:
                samples = self._once(finalists, harder=job.process == 0)
            except _OutError as out:
                if out.trial == BASELINE:
                    detail = f"the baseline fails in a fresh process: {out.reason.detail}"
                    raise EnvironmentProblem(detail) from None
                failed[out.trial] = out.reason
            else:
                return Confirmed(process=job.process, samples=samples, failed=tuple(failed.items()))

    def _once(self, finalists: Sequence[Candidate], *, harder: bool) -> tuple[Sample, ...]:
        stand = self._open_stand()
        entrants: dict[int, Entrant] = {}
        for candidate in (self._prep.setup.baseline, *finalists):
            with _blaming(candidate.trial):
                entrants[candidate.trial] = stand.enter(candidate)
        samples: list[Sample] = []
        for shape in self._prep.questions:
            runners = {
                trial: entrant for trial, entrant in entrants.items() if _runs(entrant, shape)
            }
            with _blaming(BASELINE, shape):
                question = self._prep.questions[shape][0]
                stand.stage(question, self._caches(), self._prep.measure.repeats)
            self._check(stand, runners, shape, harder=harder)
            if shape in self._prep.timed:
                for cache in self._caches():
                    samples += self._time(stand, runners, shape, cache)
            for trial, entrant in runners.items():
                with _blaming(trial, shape):
                    stand.leave_shape(entrant, shape)
            with _blaming(BASELINE, shape):
                stand.unstage(shape)
        return tuple(samples)

    def _check(
        self, stand: Stand, runners: Mapping[int, Entrant], shape: int, *, harder: bool
    ) -> None:
        questions = list(self._prep.questions[shape])
        if harder:
            questions += self._further(shape)
        for question in questions:
            for trial, entrant in runners.items():
                with _blaming(trial, shape):
                    stand.check(entrant, question, self._prep.baseline_ns.get(shape, 0.0))

    def _time(
        self, stand: Stand, runners: Mapping[int, Entrant], shape: int, cache: Cache
    ) -> list[Sample]:
        question, known = self._prep.questions[shape][0], self._prep.baseline_ns[shape]
        measure = self._prep.measure
        counts = (-(-measure.warmup // ROUNDS), -(-measure.repeats // ROUNDS))
        times: dict[int, list[float]] = {trial: [] for trial in runners}
        for _ in range(ROUNDS):
            for trial in self._rng.permutation(list(runners)).tolist():
                with _blaming(trial, shape):
                    stand.check(runners[trial], question, known)
                    times[trial] += stand.time(runners[trial], question, cache, counts, known)
        return [
            Sample(trial=trial, shape=shape, cache=cache, median_ns=statistics.median(found))
            for trial, found in times.items()
        ]

    def _further(self, shape: int) -> list[Question]:
        """Second seed, other distributions, each input drawn anew; what the baseline can answer."""
        if shape not in self._cache:
            found = []
            for recipe in further_recipes(self._prep.arguments[shape]):
                question = self._oracle.ask(shape, recipe)
                if isinstance(question, Question):
                    found.append(question)
                else:
                    self._oracle.note(f"not asked ({recipe.label}): {question.detail}")
            self._cache[shape] = found
        return self._cache[shape]

    def _caches(self) -> tuple[Cache, ...]:
        """As the experiment says; on a GPU the other as well, for the report."""
        asked = self._prep.measure.cache
        if self._prep.device.is_cpu:
            return (asked,)
        return (asked, "hot" if asked == "cold" else "cold")


def further_recipes(arguments: Sequence[ResolvedArgument]) -> list[Recipe]:
    """What finalists are asked beyond the questions of every candidate."""
    recipes = [Recipe(label="second seed", seed="second")]
    for distribution, label in _DISTRIBUTIONS.items():
        if any(applies(argument, distribution) for argument in arguments):
            recipes.append(Recipe(label=label, seed=label, distribution=distribution))
    inputs = [a.name for a in arguments if a.kind in ("in", "inout")]
    if len(inputs) > 1:
        recipes += [Recipe(label=f"{name} drawn anew", redraw=name) for name in inputs]
    return recipes


def _runs(entrant: Entrant, shape: int) -> bool:
    cells = entrant.candidate.plan.cells
    return shape < len(cells) and isinstance(cells[shape], CellPlan)


@contextmanager
def _blaming(trial: int, shape: int | None = None) -> Iterator[None]:
    """Whoever was at work when the device failed is out."""
    try:
        yield
    except DeviceFailure as failure:
        raise _OutError(trial, rejected(failure, shape)) from None
