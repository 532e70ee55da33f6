"""Runs trials in one child, with the tune shapes staged and the baseline loaded and timed.

A sticky failure, or damaged memory on a CPU device, ends the child. Opening the next one is the
canary: the baseline must load and be right there.
"""

import math
import statistics
from dataclasses import replace

import numpy as np

from tuner.candidate import Candidate
from tuner.plan import CellPlan
from tuner.racing import within_cutoff, within_mean_cutoff
from tuner.search.port import Losses
from tuner.telemetry import Vitals
from tuner.trial import Cell, Code, CutShort, Energy, Full, Measured, Outcome
from workers.bench.deadlines import Deadlines
from workers.bench.launcher import LoadedCandidate
from workers.bench.preparation import Preparation, cut_short, full
from workers.bench.recheck import recheck_timing
from workers.bench.session import BenchSession
from workers.bench.supervisor import ChildLost, Supervisor
from workers.devices.port import DeviceFailure
from workers.integrity.launch_checks import rejected

RETIME_BASELINE_AFTER = 50
"""Trials between two timings of the baseline in one child."""


class TrialRunner:
    """One child for trials. Opening it raises :class:`DeviceFailure` if the canary fails."""

    def __init__(
        self, server: Supervisor, prep: Preparation, deadlines: Deadlines, rng: np.random.Generator
    ) -> None:
        self._server = server
        self._prep = prep
        self._session = BenchSession(server, prep, deadlines, rng, prep.bounds)
        self._trials = 0
        self._loaded_builds = _builds(prep.setup.baseline)
        self.alive = True
        try:
            for shape in prep.tune:
                self._stage(shape)
            self._baseline = self._session.load(prep.setup.baseline)
            for shape in prep.tune:
                self._time_baseline(shape)
        except DeviceFailure:
            self.end()
            raise

    def has_seen(self, candidate: Candidate) -> bool:
        """Whether a binary was loaded here before, on a device that keeps its variables.

        OpenCL on a CPU keeps a binary's variables until the process ends.
        """
        return self._prep.device.is_cpu and not self._loaded_builds.isdisjoint(_builds(candidate))

    def baseline(self, shape: int) -> Full:
        """The baseline's time on a tune shape, or on another one, staged for this alone."""
        if shape in self._prep.tune:
            return self._with_energy(self._baseline, shape, self._time_baseline(shape))
        self._stage(shape)
        cell = self._with_energy(self._baseline, shape, self._time_baseline(shape))
        self._session.unbind(self._baseline, shape)
        self._session.unstage(shape)
        return cell

    @property
    def vitals(self) -> Vitals | None:
        """The device's state after the last timing, if known."""
        return self._session.vitals

    def trial(self, candidate: Candidate, cutoffs: Losses = ()) -> Outcome:
        """Verify and time the candidate on every shape, in full where it is within the cut-offs.

        Without those of :mod:`tuner.racing` everything is measured in full.

        Raises:
            ChildLost: perhaps not the candidate's fault; retry in another child.
        """
        cells: dict[int, Cell] = {}
        shape: int | None = None
        loaded: LoadedCandidate | None = None
        try:
            self._loaded_builds |= _builds(candidate)
            loaded = self._session.load(candidate)
            for shape in self._prep.tune:
                cell = candidate.plan.cells[shape]
                if isinstance(cell, CellPlan):
                    cells[shape] = self._measure(loaded, shape, cutoffs, check=True)
                else:
                    cells[shape] = cell
            measured = Measured(cells=tuple(cells[number] for number in self._prep.tune))
            if within_mean_cutoff(measured, self._prep.weights, cutoffs):
                for shape in self._prep.tune:
                    if isinstance(cells[shape], CutShort):
                        cells[shape] = self._measure(loaded, shape, ())
            for shape in self._prep.tune:
                if isinstance(timed := cells[shape], Full):
                    cells[shape] = self._with_energy(loaded, shape, timed)
            self._session.unload(loaded)
        except ChildLost:
            self.end()
            raise
        except DeviceFailure as failure:
            self._recover(failure, loaded)
            return rejected(failure, shape)
        finally:
            if any(binary.persists for binary in candidate.binaries):
                # Resetting persisting cache lines in this process would slow all later graphs.
                self.end()
        return Measured(cells=tuple(cells[number] for number in self._prep.tune))

    def rehearse(self) -> None:
        """Check the baseline on every case once, so that later checks are fast.

        A GPU pins input files when it first reads them, which can take longer than a trial.

        Raises:
            DeviceFailure: the baseline failed.
        """
        for shape in self._prep.tune:
            for number in range(len(self._prep.cases[shape])):
                self._check(self._baseline, shape, number)

    def refresh(self) -> None:
        """Time the baseline again if it is due. Raises :class:`DeviceFailure`."""
        self._trials += 1
        if self._trials % RETIME_BASELINE_AFTER == 0:
            for shape in self._prep.tune:
                self._time_baseline(shape)

    def end(self) -> None:
        """End the child."""
        self.alive = False
        self._server.close()

    def _stage(self, shape: int) -> None:
        measure = self._prep.measure
        self._session.stage(self._prep.cases[shape], (measure.cache,), measure.repeats)

    def _check(self, loaded: LoadedCandidate, shape: int, number: int) -> None:
        self._session.check(loaded, self._prep.cases[shape][number], exact=False)

    def _samples(
        self,
        loaded: LoadedCandidate,
        shape: int,
        cutoff_ns: float = math.inf,
        *,
        check: bool = False,
    ) -> list[float]:
        case, measure = self._prep.cases[shape][0], self._prep.measure
        return self._session.time(loaded, case, measure.cache, measure, cutoff_ns, check=check)

    def _measure(
        self, loaded: LoadedCandidate, shape: int, cutoffs: Losses, *, check: bool = False
    ) -> Full | CutShort:
        """Time a shape; check it on all cases if it is within the cut-off.

        In one go, so that anything a kernel has kept of the shape's inputs is still there.
        """
        baseline_ns = self._prep.baseline_ns[shape]
        cutoff = cutoffs[1 + shape] if cutoffs else math.inf
        samples = self._samples(loaded, shape, cutoff * baseline_ns, check=check)
        timed_ns = statistics.median(samples)
        if not within_cutoff(shape, timed_ns / baseline_ns, cutoffs):
            return cut_short(samples, baseline_ns)
        for number in range(1, len(self._prep.cases[shape])):
            self._check(loaded, shape, number)
        if not self._prep.device.is_cpu:
            # What outlasts a launch is reset or refused; confirmation looks for other memories.
            return full(samples, baseline_ns)
        accepted = recheck_timing(
            self._prep,
            self._session,
            loaded,
            self._baseline,
            shape,
            self._prep.measure.cache,
            samples,
            lambda: self._samples(loaded, shape),
        )
        return full(accepted.samples, self._prep.baseline_ns[shape])

    def _with_energy(self, loaded: LoadedCandidate, shape: int, cell: Full) -> Full:
        """The cell with its energy, if that counts, and the baseline's measured right before."""
        share, measure = self._prep.energy_share, self._prep.measure
        if not share:
            return cell

        def measured(one: LoadedCandidate, timed_ns: float) -> float:
            case = self._prep.cases[shape][0]
            return self._session.energy(one, case, measure.cache, measure, timed_ns)

        known = measured(self._baseline, cell.baseline_ns)
        own = known if loaded is self._baseline else measured(loaded, cell.median_ns)
        return replace(cell, energy=Energy(millijoules=own, baseline_mj=known, share=share))

    def _time_baseline(self, shape: int) -> Full:
        samples = self._samples(self._baseline, shape)
        median = statistics.median(samples)
        self._prep.baseline_ns[shape] = median
        return full(samples, median)

    def _recover(self, failure: DeviceFailure, loaded: LoadedCandidate | None) -> None:
        """Unload the candidate; end the child if it may be damaged."""
        damaged = failure.code is Code.OUT_OF_BOUNDS and self._prep.device.is_cpu
        if failure.sticky or damaged or self._server.pid is None:
            self.end()
        elif loaded is not None:
            try:
                self._session.unload(loaded)
            except DeviceFailure:
                self.end()


def _builds(candidate: Candidate) -> set[str]:
    return {binary.build for binary in candidate.binaries}
