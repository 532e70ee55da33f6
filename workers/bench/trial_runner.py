"""The child that trials run in: tune shapes staged, the baseline loaded, checked and timed.

Owns the life of one trial. A sticky failure, or damaged memory on a CPU device, ends the child;
opening the next one is its canary, since there the baseline must load and be right.
"""

import math
import statistics

import numpy as np

from tuner.engine.fleet import Candidate
from tuner.plan import CellPlan
from tuner.racing import within_cutoff, within_mean_cutoff
from tuner.search.port import Losses
from tuner.telemetry import Vitals
from tuner.trial import Cell, Code, CutShort, Full, Measured, Outcome
from workers.bench.preparation import Prep, full, short
from workers.bench.recheck import doubt
from workers.bench.session import Entrant, Stand
from workers.bench.supervisor import Deadlines, LostChild, Supervisor
from workers.devices.port import DeviceFailure
from workers.integrity.launch_checks import rejected

RETIME_BASELINE_AFTER = 50
"""Trials between two timings of the baseline in one child."""


class Working:
    """A working child. Opening it raises :class:`DeviceFailure` if the canary fails."""

    def __init__(
        self, server: Supervisor, prep: Prep, deadlines: Deadlines, rng: np.random.Generator
    ) -> None:
        self._server = server
        self._prep = prep
        self._unknown_ns = deadlines.control / deadlines.factor * 1e9
        self._stand = Stand(server, prep.arguments, deadlines, prep.device, rng, prep.bounds)
        self._rng = rng
        self._trials = 0
        self._seen = _builds(prep.setup.baseline)
        self.alive = True
        try:
            for shape in prep.tune:
                self._stage(shape)
            self._baseline = self._stand.enter(prep.setup.baseline)
            for shape in prep.tune:
                self._time_baseline(shape)
        except DeviceFailure:
            self.end()
            raise

    def has_seen(self, candidate: Candidate) -> bool:
        """Whether one of its binaries was loaded before, on a device that would keep its past.

        OpenCL on a CPU keeps a binary's variables for as long as the process lives.
        """
        return self._prep.device.is_cpu and not self._seen.isdisjoint(_builds(candidate))

    def baseline(self, shape: int) -> Full:
        """The baseline's time on a tune shape or, staged for this alone, on another one."""
        if shape in self._prep.tune:
            return self._time_baseline(shape)
        self._stage(shape)
        cell = self._time_baseline(shape)
        self._stand.leave_shape(self._baseline, shape)
        self._stand.unstage(shape)
        return cell

    @property
    def vitals(self) -> Vitals | None:
        """How the device was after the last timing, if anything tells."""
        return self._stand.vitals

    def trial(self, candidate: Candidate, cutoffs: Losses = ()) -> Outcome:
        """Verify and time the candidate on every shape; ask it further where it leads.

        Args:
            candidate: what to try.
            cutoffs: see :mod:`tuner.racing`; without, everything is measured in full.

        Raises:
            LostChild: it need not be this candidate's fault; another child may be asked.
        """
        cells: dict[int, Cell] = {}
        shape: int | None = None
        entrant: Entrant | None = None
        try:
            self._seen |= _builds(candidate)
            entrant = self._stand.enter(candidate)
            for shape in self._prep.tune:
                cell = candidate.plan.cells[shape]
                if isinstance(cell, CellPlan):
                    cells[shape] = self._raced(entrant, shape, cutoffs, check=True)
                else:
                    cells[shape] = cell
            measured = Measured(cells=tuple(cells[number] for number in self._prep.tune))
            if within_mean_cutoff(measured, self._prep.weights, cutoffs):
                for shape in self._prep.tune:
                    if isinstance(cells[shape], CutShort):
                        cells[shape] = self._raced(entrant, shape, ())
            self._stand.unload(entrant)
        except LostChild:
            self.end()
            raise
        except DeviceFailure as failure:
            self._recover(failure, entrant)
            return rejected(failure, shape)
        finally:
            if any(binary.persists for binary in candidate.binaries):
                # Having cache lines persist no longer slows down all that comes after.
                self.end()
        return Measured(cells=tuple(cells[number] for number in self._prep.tune))

    def rehearse(self) -> None:
        """Ask the baseline all that a leader is asked. Raises :class:`DeviceFailure`.

        What a GPU reads for the first time is pinned before, which takes longer than many a trial.
        """
        for shape in self._prep.tune:
            for number in range(len(self._prep.questions[shape])):
                self._ask(self._baseline, shape, number)

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
        question = self._prep.questions[shape][0]
        self._stand.stage(question, (measure.cache,), measure.repeats)

    def _ask(self, entrant: Entrant, shape: int, number: int) -> None:
        question = self._prep.questions[shape][number]
        known = self._prep.baseline_ns.get(shape, self._unknown_ns)
        self._stand.check(entrant, question, known, exact=False)

    def _samples(
        self, entrant: Entrant, shape: int, cutoff: float = math.inf, *, check: bool = False
    ) -> list[float]:
        measure = self._prep.measure
        known = self._prep.baseline_ns.get(shape, self._unknown_ns)
        return self._stand.time(
            entrant,
            self._prep.questions[shape][0],
            measure.cache,
            measure,
            known,
            cutoff_ns=cutoff * known,
            check=check,
        )

    def _raced(
        self, entrant: Entrant, shape: int, cutoffs: Losses, *, check: bool = False
    ) -> Full | CutShort:
        """Time a shape, and ask what else there is to ask unless it leads nowhere.

        In one go, so that what a kernel may have kept of this shape's inputs is still there.
        """
        baseline_ns = self._prep.baseline_ns[shape]
        cutoff = cutoffs[1 + shape] if cutoffs else math.inf
        samples = self._samples(entrant, shape, cutoff, check=check)
        timed_ns = statistics.median(samples)
        if not within_cutoff(shape, timed_ns / baseline_ns, cutoffs):
            return short(samples, baseline_ns)
        last = len(self._prep.questions[shape]) - 1
        for number in range(1, last):
            self._ask(entrant, shape, number)
        samples = doubt(
            self._prep,
            self._stand,
            entrant,
            self._baseline,
            shape,
            samples,
            lambda: self._samples(entrant, shape),
            self._rng,
            kin=self._prep.device.is_cpu,
        )
        return full(samples, self._prep.baseline_ns[shape])

    def _time_baseline(self, shape: int) -> Full:
        samples = self._samples(self._baseline, shape)
        median = statistics.median(samples)
        self._prep.baseline_ns[shape] = median
        return full(samples, median)

    def _recover(self, failure: DeviceFailure, entrant: Entrant | None) -> None:
        """Unload the candidate; replace the child if it cannot be trusted any more."""
        damaged = failure.code is Code.OUT_OF_BOUNDS and self._prep.device.is_cpu
        if failure.sticky or damaged or self._server.pid is None:
            self.end()
        elif entrant is not None:
            try:
                self._stand.unload(entrant)
            except DeviceFailure:
                self.end()


def _builds(candidate: Candidate) -> set[str]:
    return {binary.build for binary in candidate.binaries}
