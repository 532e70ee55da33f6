"""Confirmation: finalists and baseline in one fresh child, checked harder, timed interleaved.

Owns the further questions that only finalists are asked, and the order of timing. A finalist that
fails is named and leaves; the others start over in another fresh child.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from tuner.engine.fleet import BASELINE, Candidate, Confirmed, ConfirmJob, Sample
from tuner.errors import EnvironmentProblem
from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.model import Cache
from tuner.plan import CellPlan
from tuner.telemetry import Vitals
from tuner.trial import Rejected
from workers.bench.oracle import FIRST, REFERENCE_ELEMENTS, Oracle, Recipe
from workers.bench.preparation import Prep
from workers.bench.recheck import doubt
from workers.bench.session import Entrant, Stand
from workers.bench.supervisor import LostChild
from workers.devices.port import DeviceFailure
from workers.inputs import Distribution, applies
from workers.integrity.launch_checks import Question, rejected

ROUNDS, OTHER_ROUNDS = 5, 3
"""Parts that each timing is cut into, so that entrants take turns; fewer where it decides nothing.
"""

_DISTRIBUTIONS: dict[Distribution, str] = {
    "large": "large magnitudes",
    "small": "small magnitudes",
    "outliers": "a few far larger",
    "zeros": "exact zeros",
    "few": "few different values",
    "ends": "ends of the range",
    "specials": "special values",
}


class _OutError(Exception):
    """An entrant failed, or its child was ``lost`` beside it; never leaves this module."""

    def __init__(self, trial: int, reason: Rejected, *, lost: bool) -> None:
        super().__init__(reason.detail)
        self.trial = trial
        self.reason = reason
        self.lost = lost


class Confirmation:
    """One process of confirmation.

    Args:
        prep: what the bench knows.
        oracle: makes the further questions.
        open_stand: a stand on a fresh child.
        rng: decides who is next.
    """

    def __init__(
        self,
        prep: Prep,
        oracle: Oracle,
        open_stand: Callable[[], Stand],
        rng: np.random.Generator,
    ) -> None:
        self._prep = prep
        self._oracle = oracle
        self._open_stand = open_stand
        self._rng = rng

    def run(self, job: ConfirmJob) -> Confirmed:
        """Check and time; those that the job says are asked the further questions.

        Raises:
            EnvironmentProblem: the baseline fails.
        """
        failed: dict[int, Rejected] = {}
        notes: dict[str, None] = {}
        while True:
            finalists = [c for c in job.finalists if c.trial not in failed]
            vitals: list[Vitals] = []
            try:
                samples = self._once(finalists, job.harder, notes, vitals)
            except _OutError as out:
                if out.trial == BASELINE:
                    failed |= self._guilty(finalists, out.reason)
                else:
                    failed[out.trial] = out.reason
            else:
                return Confirmed(
                    process=job.process,
                    samples=samples,
                    failed=tuple(failed.items()),
                    notes=tuple(notes),
                    vitals=tuple(vitals),
                )

    def _guilty(self, finalists: Sequence[Candidate], reason: Rejected) -> dict[int, Rejected]:
        """Those beside whom the baseline fails: on a CPU one may damage the other's memory.

        Raises:
            EnvironmentProblem: it fails alone, or beside none of them.
        """
        found = {}
        for one in (None, *finalists):
            try:
                self._once([one] if one else [], (), {}, [])
            except _OutError as out:
                if one is None:
                    break
                beside = "beside it the baseline fails: " if out.trial == BASELINE else ""
                found[one.trial] = replace(out.reason, detail=beside + out.reason.detail)
        if not found:
            detail = f"the baseline fails in a fresh process: {reason.detail}"
            raise EnvironmentProblem(detail)
        return found

    def _once(
        self,
        finalists: Sequence[Candidate],
        harder: Sequence[int],
        notes: dict[str, None],
        vitals: list[Vitals],
    ) -> tuple[Sample, ...]:
        """What each took; somebody who kills the child once refutes nobody."""
        try:
            return self._attempt(finalists, harder, notes, vitals)
        except _OutError as out:
            if not out.lost:
                raise
        return self._attempt(finalists, harder, notes, vitals)

    def _attempt(
        self,
        finalists: Sequence[Candidate],
        harder: Sequence[int],
        notes: dict[str, None],
        vitals: list[Vitals],
    ) -> tuple[Sample, ...]:
        put_to = [c.trial for c in finalists if c.trial in harder]
        further = self._further(notes) if put_to else {}
        self._oracle.rest()
        stand = self._open_stand()
        entrants: dict[int, Entrant] = {}
        for candidate in (self._prep.setup.baseline, *finalists):
            with self._blaming(candidate.trial):
                entrants[candidate.trial] = stand.enter(candidate)
                stand.flush()
        samples: list[Sample] = []
        slowest_ns = max(self._prep.baseline_ns.values())
        for shape in range(len(self._prep.bindings)):
            questions = self._prep.questions.get(shape, ())[:-1]  # the last is to doubt a timing
            asked = (*questions, *further.get(shape, ()))
            if not asked:
                continue
            runners = {t: entrant for t, entrant in entrants.items() if _runs(entrant, shape)}
            with self._blaming(BASELINE, shape):
                stand.stage(asked[0], self._caches(), self._prep.measure.repeats)
            for number, question in enumerate(asked):
                beyond = number >= len(questions)
                for trial, entrant in runners.items():
                    if beyond and trial not in (BASELINE, *put_to):
                        continue
                    with self._blaming(trial, shape):
                        known = self._prep.baseline_ns.get(shape, slowest_ns)
                        for exact in (True, False) if beyond else (True,):
                            stand.check(entrant, question, known, exact=exact)
            if shape in self._prep.timed:
                for cache in self._caches():
                    samples += self._time(stand, runners, shape, cache)
                for question in (one for one in questions if one.launches > 1):
                    for trial, entrant in runners.items():
                        with self._blaming(trial, shape):
                            known = self._prep.baseline_ns[shape]
                            stand.check(entrant, question, known, exact=False)
                if stand.vitals is not None:
                    vitals.append(stand.vitals)
            for trial, entrant in runners.items():
                with self._blaming(trial, shape):
                    stand.leave_shape(entrant, shape)
                    stand.flush()
            with self._blaming(BASELINE, shape):
                stand.unstage(shape)
        notes.update(stand.notes)
        return tuple(samples)

    def _time(
        self, stand: Stand, runners: Mapping[int, Entrant], shape: int, cache: Cache
    ) -> list[Sample]:
        question, known = self._prep.questions[shape][0], self._prep.baseline_ns[shape]
        measure = self._prep.measure
        part = replace(
            measure,
            warmup=-(-measure.warmup // ROUNDS),
            repeats=-(-measure.repeats // ROUNDS),
            at_most=-(-measure.at_most // ROUNDS),
        )
        rounds = ROUNDS if cache == measure.cache else OTHER_ROUNDS
        times: dict[int, list[float]] = {trial: [] for trial in runners}
        asked = {trial: self._rng.integers(rounds) for trial in runners}
        finalists = [t for t in runners if t != BASELINE and cache == measure.cache]

        def take(trial: int) -> list[float]:
            return stand.time(runners[trial], question, cache, part, known)

        def again(trial: int) -> list[float]:
            return [ns for _ in range(rounds) for ns in take(trial)]

        for number in range(rounds):
            for trial in self._rng.permutation(list(runners)).tolist():
                with self._blaming(trial, shape):
                    times[trial] += take(trial)
                    if number == asked[trial] and trial in finalists:
                        self._ask_others(stand, runners[trial], shape)
        # When all is timed: who knew that it is doubted no more could do as it likes. In any order,
        # since the first is told nothing by the others.
        for trial in self._rng.permutation(finalists).tolist():
            with self._blaming(trial, shape):
                times[trial] = doubt(
                    self._prep,
                    stand,
                    runners[trial],
                    runners[BASELINE],
                    shape,
                    times[trial],
                    partial(again, trial),
                    self._rng,
                    kin=self._kin(shape),
                )
        return [
            Sample(trial=trial, shape=shape, cache=cache, median_ns=statistics.median(found))
            for trial, found in times.items()
        ]

    def _kin(self, shape: int) -> bool:
        """Whether a finalist is asked by numbers of its own; many of them take seconds to draw."""
        if self._prep.device.is_cpu:
            return True
        return not _large(self._prep.arguments[shape]) and bool(self._rng.integers(2))

    def _ask_others(self, stand: Stand, entrant: Entrant, shape: int) -> None:
        """Ask a finalist about other inputs between two parts of its timing.

        Raises:
            DeviceFailure: it was right on what it is timed on alone.
        """
        _, *others, _ = self._prep.questions[shape]
        for question in others:
            if question.launches == 1:
                stand.check(entrant, question, self._prep.baseline_ns[shape], exact=False)

    def _further(self, notes: dict[str, None]) -> dict[int, list[Question]]:
        """By shape, the further questions that the baseline can answer."""
        cells = self._prep.setup.baseline.plan.cells
        wanted = [
            (shape, recipe)
            for shape, cell in enumerate(cells)
            if isinstance(cell, CellPlan)
            for recipe in recipes_of(self._prep, shape)
        ]
        found: dict[int, list[Question]] = {}
        for (shape, recipe), question in zip(wanted, self._oracle.ask_all(wanted), strict=True):
            if isinstance(question, Question):
                found.setdefault(shape, []).append(question)
            else:
                notes[f"not asked ({recipe.label}): {question.detail}"] = None
        return found

    @contextmanager
    def _blaming(self, trial: int, shape: int | None = None) -> Iterator[None]:
        """Whoever was at work when the device failed is out."""
        try:
            yield
        except DeviceFailure as failure:
            known = shape if shape in self._prep.timed else None
            lost = isinstance(failure, LostChild)
            raise _OutError(trial, rejected(failure, known), lost=lost) from None

    def _caches(self) -> tuple[Cache, ...]:
        """As the experiment says; on a GPU the other as well, for the report."""
        asked = self._prep.measure.cache
        if self._prep.device.is_cpu:
            return (asked,)
        return (asked, "hot" if asked == "cold" else "cold")


def recipes_of(prep: Prep, shape: int) -> list[Recipe]:
    """What finalists are asked on a shape beyond the questions of every candidate.

    Of large shapes, and of odd ones, less than of others.
    """
    arguments = prep.arguments[shape]
    recipes = further_recipes(arguments)
    if _large(arguments):
        recipes = recipes[:1]
    if shape in prep.timed:
        return recipes
    odd = f"odd shape {prep.bindings[shape]}"
    other = [recipe for recipe in recipes if recipe.distribution == "outliers"] or recipes
    return [replace(recipe, label=f"{odd}, {recipe.label}") for recipe in (FIRST, *other[:1])]


def further_recipes(arguments: Sequence[ResolvedArgument]) -> list[Recipe]:
    """Second seed, other distributions, all but one input small, each input drawn anew."""
    recipes = [Recipe(label="second seed", seed="second")]
    for distribution, label in _DISTRIBUTIONS.items():
        if any(applies(argument, distribution) for argument in arguments):
            recipes.append(Recipe(label=label, seed=label, distribution=distribution))
    # Where all inputs are small, so may answers be, and what they differ by is within tolerance.
    small = [a.name for a in arguments if applies(a, "small")]
    for name in small if len(small) > 1 else ():
        label = f"{_DISTRIBUTIONS['small']}, but for {name}"
        recipes.append(Recipe(label=label, seed=label, distribution="small", spare=name))
    inputs = [a.name for a in arguments if a.kind in ("in", "inout")]
    if len(inputs) > 1:
        recipes += [Recipe(label=f"{name} drawn anew", redraw=name) for name in inputs]
    return recipes


def _large(arguments: Sequence[ResolvedArgument]) -> bool:
    return sum(a.elements for a in arguments if a.is_buffer) > REFERENCE_ELEMENTS


def _runs(entrant: Entrant, shape: int) -> bool:
    cells = entrant.candidate.plan.cells
    return shape < len(cells) and isinstance(cells[shape], CellPlan)
