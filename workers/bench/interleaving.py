"""Times finalists and the baseline on one shape in alternation, then rechecks the finalists.

Owns the parts of a timing and their order; :mod:`workers.bench.confirmation` decides what is timed.
"""

import statistics
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tuner.candidate import BASELINE
from tuner.experiment.model import Cache, Measure
from tuner.experiment.objective import ENERGY_ROUNDS
from tuner.journal.facts import Sample
from workers.bench.energy import interleaved
from workers.bench.launcher import LoadedCandidate
from workers.bench.preparation import Preparation
from workers.bench.recheck import recheck_timing
from workers.bench.session import BenchSession
from workers.device_lock import DeviceLock
from workers.integrity.timing_recheck import Accepted

PARTS, PARTS_ON_GPU = 5, 3
"""Parts that a timing is divided into, between which candidates alternate; how many are taken on a
GPU, where each has a hundred launches or more, whatever it should have."""

Turn = tuple[int, bool]
"""A trial, and whether it is launched ``serialised``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterleavedTiming:
    """One shape in one cache state.

    Args:
        prep: the prepared experiment.
        session: where all are loaded and the shape is staged.
        lock: held; others have their turns between parts.
        rng: decides orders, and when other cases are checked.
        runners: baseline and finalists by trial.
        serialised: those of them that are launched dependently, as they are without that.
        shape: the shape.
        cache: the cache state.
        attribute: attributes a failure within it to a trial.
    """

    prep: Preparation
    session: BenchSession
    lock: DeviceLock
    rng: np.random.Generator
    runners: Mapping[int, LoadedCandidate]
    serialised: Mapping[int, LoadedCandidate]
    shape: int
    cache: Cache
    attribute: Callable[[int], AbstractContextManager[None]]

    def samples(self) -> list[Sample]:
        """The medians, with energies if these are wanted, once the finalists are rechecked."""
        times = self._times()
        energies: dict[Turn, float] = {}
        if self.prep.energy_share:
            each = {turn: partial(self._energy, turn, times[turn]) for turn in times}
            energies = interleaved(each, ENERGY_ROUNDS, self.rng)
        return [
            Sample(
                trial=trial,
                shape=self.shape,
                cache=self.cache,
                median_ns=statistics.median(one.samples),
                serialised=plain,
                millijoules=energies.get((trial, plain)),
                unseen=one.unseen,
            )
            for (trial, plain), one in self._rechecked(times).items()
        ]

    @property
    def _rounds(self) -> int:
        return PARTS if self.prep.device.is_cpu else PARTS_ON_GPU

    @property
    def _finalists(self) -> list[int]:
        return [trial for trial in self.runners if trial != BASELINE]

    @property
    def _part(self) -> Measure:
        measure = self.prep.measure
        return replace(
            measure,
            warmup=-(-measure.warmup // PARTS),
            repeats=-(-measure.repeats // PARTS),
            at_most=-(-measure.at_most // PARTS),
        )

    def _loaded(self, turn: Turn) -> LoadedCandidate:
        trial, plain = turn
        return (self.serialised if plain else self.runners)[trial]

    def _take(self, turn: Turn) -> list[float]:
        """Nanoseconds of one part."""
        case = self.prep.cases[self.shape][0]
        return self.session.time(self._loaded(turn), case, self.cache, self._part)

    def _times(self) -> dict[Turn, list[float]]:
        """Nanoseconds of all parts; between two of them a finalist's other cases are checked."""
        turns = [*((t, False) for t in self.runners), *((t, True) for t in self.serialised)]
        times: dict[Turn, list[float]] = {turn: [] for turn in turns}
        check_at = {trial: self.rng.integers(self._rounds) for trial in self._finalists}
        for number in range(self._rounds):
            for trial, plain in (turns[at] for at in self.rng.permutation(len(turns))):
                self.lock.pause()
                with self.attribute(trial):
                    times[trial, plain] += self._take((trial, plain))
                    if not plain and number == check_at.get(trial):
                        self._check_others(self.runners[trial])
        return times

    def _check_others(self, loaded: LoadedCandidate) -> None:
        """Check a finalist on its other cases."""
        for case in self.prep.cases[self.shape][1:]:
            if case.launches == 1:
                self.session.check(loaded, case, exact=False)

    def _energy(self, turn: Turn, times: list[float]) -> float:
        """Millijoules per launch."""
        self.lock.pause()
        with self.attribute(turn[0]):
            case, median_ns = self.prep.cases[self.shape][0], statistics.median(times)
            return self.session.energy(
                self._loaded(turn), case, self.cache, self.prep.measure, median_ns
            )

    def _rechecked(self, times: Mapping[Turn, list[float]]) -> dict[Turn, Accepted]:
        """The times, those of finalists once they are rechecked.

        Rechecks run last, so that a kernel cannot tell when checking is over. Their order is
        random, since later ones could learn from earlier ones in the same process.
        """
        accepted = {turn: Accepted(taken) for turn, taken in times.items()}
        for trial in self.rng.permutation(self._finalists).tolist():
            self.lock.pause()
            with self.attribute(trial):
                accepted[trial, False] = recheck_timing(
                    self.prep,
                    self.session,
                    self.runners[trial],
                    self.runners[BASELINE],
                    self.shape,
                    self.cache,
                    times[trial, False],
                    partial(self._again, trial),
                )
            if accepted[trial, False].corrected:
                self.session.notes[
                    f"trial {trial} at {self.prep.bindings[self.shape]}: the processor knew its "
                    "branches from launch to launch, so its times are those on new inputs"
                ] = None
        return accepted

    def _again(self, trial: int) -> list[float]:
        """Nanoseconds of all parts once more."""
        return [ns for _ in range(self._rounds) for ns in self._take((trial, False))]
