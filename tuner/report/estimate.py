"""Estimates of the duration of a run, or of what is left of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from tuner.backends.registry import traits_of
from tuner.device import Device
from tuner.engine.progress import ENDLESS, FEW, duration
from tuner.errors import SpecError
from tuner.experiment.arguments import moved_bytes, resolve_arguments
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.experiment.objective import TAKEN_SECONDS
from tuner.experiment.odd_shapes import every_shape
from tuner.journal.history import History
from tuner.journal.search_clock import RECENT
from tuner.results.screening import leading_at_most
from tuner.results.statistics import FEWEST
from tuner.trial import Full, Measured

CHECK_SECONDS_PER_MIB = {True: 0.02, False: 1e-4}
"""Checking the outputs of one candidate on a shape, by ``is_cpu``: a GPU compares on the device."""

ORACLE_SECONDS_PER_MIB, ORACLE_BYTES, ORACLES = 0.03, 64 << 20, 8
"""Drawing one shape's inputs and computing the reference in float64 on one core; the size above
which the baseline is the reference; how many are computed in parallel at most."""

TEST_CASES, EXTRA_CASES = 2, 3
"""Test cases of each shape in the search, and further ones for finalists."""

BEGIN_SECONDS = {True: 2.0, False: 4.0}
"""Finding devices, compiling the baseline, measuring ceilings; by ``is_cpu``."""

PROCESS_SECONDS = {True: 0.2, False: 0.5}
"""Start of a bench process, by ``is_cpu``."""

CONFIRMED = {True: 1, False: 2}
"""Confirming a candidate on a shape, as a multiple of what the search takes for it, by ``is_cpu``:
what the search has compiled for a processor is kept."""

LAUNCH_SECONDS = 20e-6
"""Launch of a small kernel, with overhead."""

MOST_TIMES = 20.0
"""By which factor the pace of trials corrects an estimate at most."""

SURELY = 3.0
"""By which factor a search may take longer than estimated before anything was measured."""

LEAST_BUDGET = 1.5
"""The budget to ask for, as a multiple of what preparing and confirming take."""

BYTES_PER_SECOND = {True: 5e9, False: 1e12}
"""Memory throughput of a kernel, by ``is_cpu``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Number of trials, and seconds of preparation, search and confirmation on an idle machine.

    Rough: it assumes a memory-bound kernel, unless the baseline's times are known, and that no
    configuration is cut short. ``confirm_seconds`` are those of the fewest processes. Of them
    ``final_seconds`` come after the last round, and of these ``checker_seconds`` at last;
    ``trial_seconds`` are those of one trial on a bench. ``budget_seconds`` hold all of it, with
    fewer rounds if need be, but not less than ``least_seconds``. ``timely``: the search will surely
    do all its trials in them.
    """

    trials: int
    space: int | None
    prepare_seconds: float
    search_seconds: float
    confirm_seconds: float
    final_seconds: float
    checker_seconds: float
    trial_seconds: float
    budget_seconds: float
    least_seconds: float
    timely: bool

    def pace(self, history: History) -> float:
        """How many times as long as estimated a run takes, on a busy machine; 1 on an idle one.

        By the quickest quarter of the last trials on benches: a busy machine slows those too, while
        a first launch, which finds nothing loaded, is none of them. A slow configuration may take
        as many times as long as its own times are the baseline's. Before a few trials are in, by
        what other processes keep benches waiting alone, which comes on top.
        """
        stretch = history.clock.stretch
        last = islice(reversed(history.trials.values()), RECENT)
        taken = sorted(
            one.device_seconds / _slowness(one.outcome)
            for one in last
            if one.device_seconds and isinstance(one.outcome, Measured)
        )
        if len(taken) < FEW or not self.trial_seconds:
            return min(MOST_TIMES, stretch)
        slower = max(1.0, taken[(len(taken) - 1) // 4] / self.trial_seconds)
        return min(MOST_TIMES, slower * stretch)

    def confirming(self, history: History, *, rest: bool) -> float:
        """Seconds that confirming must still take, at the pace of the trials.

        Args:
            history: what is done already.
            rest: whether what comes after the last round is to come too.
        """
        left = 0.0 if history.confirmations else self.confirm_seconds - self.final_seconds
        if rest:
            few = min(FEWEST, history.experiment.confirm.processes)
            done = sum(one.scope != "tune" for one in history.confirmations) / few
            timing = self.final_seconds - self.checker_seconds
            left += max(0.0, 1 - done) * timing + self.checker_seconds
        return left * self.pace(history)

    def require_time(self) -> None:
        """Raise :class:`SpecError` if the budget cannot hold preparing and the least confirming."""
        if self.least_seconds > self.budget_seconds:
            raise SpecError(
                f"search.seconds is {self.budget_seconds:g}, and preparing and confirming alone "
                f"take roughly {duration(self.least_seconds)}: begin a run with --seconds "
                f"{math.ceil(LEAST_BUDGET * self.least_seconds)} or more ({LEAST_BUDGET:g} times "
                "as much, so that time is left to search), or with smaller shapes"
            )

    @property
    def prospect(self) -> str:
        """What is sure before anything was measured: the trials, or else the time."""
        if self.trials and not self.timely:
            return f"searching and confirming within {duration(self._most_seconds)}"
        return self._tried

    def __str__(self) -> str:
        """What is known before anything was measured: a slow kernel takes longer, to its budget."""
        whole = self.prepare_seconds + self.search_seconds + self.confirm_seconds
        if whole >= self._most_seconds:
            return f"{self._tried}, or as many as {duration(self._most_seconds)} allow"
        most = f", up to {duration(self._most_seconds)}" if self.budget_seconds < ENDLESS else ""
        return (
            f"{self._tried}, {duration(whole)} or more{most} (unknown until a run has timed the "
            "baseline)"
        )

    @property
    def _most_seconds(self) -> float:
        return max(self.budget_seconds, self.least_seconds)

    @property
    def _tried(self) -> str:
        tried = f"at most {self.trials}" if self.space is None else f"{self.trials} of {self.space}"
        return f"{tried} configurations" if self.trials else "confirming"


def estimate(
    experiment: Experiment,
    device: Device,
    space: int | None,
    *,
    compile_slots: int,
    bench_slots: int,
    rounds: int = 1,
    checker_bytes: int = 0,
    trials: int | None = None,
    spent: float = 0.0,
    confirmed: int = 0,
    baseline_ns: Sequence[float] = (),
) -> Estimate:
    """The duration of a run, or of what is left of it.

    Args:
        experiment: its budgets and shapes count, and ``cost.bytes`` or else its arguments.
        device: the device model.
        space: number of feasible configurations; ``None`` without a template.
        compile_slots: parallel compilations.
        bench_slots: devices.
        rounds: of agents; each confirms on the tune shapes, the result at last on the rest.
        checker_bytes: the largest shape that a checker takes; 0 without checkers.
        trials: the number left of a run under way.
        spent: seconds that it has taken.
        confirmed: processes that it has confirmed in.
        baseline_ns: the baseline's times on tune and held-out shapes, once it is prepared.
    """
    costs = _Costs(experiment, device, compile_slots, bench_slots, baseline_ns)
    backend, confirm = traits_of(device.backend), experiment.confirm
    most = experiment.search.trials if space is None else min(experiment.search.trials, space)
    trials = most if trials is None else trials
    tune = [_bytes(experiment, binding) for binding in experiment.shapes.tune]
    held_out = [_bytes(experiment, binding) for binding in experiment.shapes.held_out]
    odd = [_bytes(experiment, one) for one in every_shape(experiment)[len(tune + held_out) :]]
    on_tune, on_held_out = costs.time(tune, 0), costs.time(held_out, len(tune))
    on_rest = on_held_out if device.is_cpu else on_tune + 2 * on_held_out
    compiling, timing = backend.compile_seconds / compile_slots, on_tune / bench_slots
    trial = compiling + timing if device.is_cpu else max(compiling, timing)
    few = min(FEWEST, confirm.processes)
    finalists = min(most, confirm.top + (len(tune) + 1) // 2)
    leading = min(finalists, leading_at_most(confirm.top) + len(tune) // 3)
    winning = min(leading, 1 + len(tune) // 2)
    screening = costs.confirm(1 - confirmed, finalists, on_tune)
    further = costs.confirm(few - max(1, confirmed), leading, on_tune)
    extra = EXTRA_CASES * costs.oracle(tune + held_out) + costs.oracle(odd)
    if not device.is_cpu:  # they are made beside the search
        extra = max(0.0, extra - trials * trial)
    one_round = screening + further + leading * (on_tune + costs.check(odd))
    confirming = rounds * one_round + extra
    final = checking = 0.0
    if held_out or not device.is_cpu:
        final = costs.confirm(few, winning, on_rest) + winning * on_held_out
    seen = max((size for size in tune + held_out + odd if size <= checker_bytes), default=0)
    if seen:
        checking = backend.checker_seconds + backend.checker_seconds_per_mib * seen / 2**20
        final += checking
    preparing = 0.0
    if not baseline_ns:
        preparing = BEGIN_SECONDS[device.is_cpu] + TEST_CASES * costs.oracle(tune + held_out)
        preparing += on_tune + on_held_out
    left = experiment.search.seconds - spent
    room = max(0.0, left - preparing - confirming - final)
    return Estimate(
        trials=trials,
        space=space,
        prepare_seconds=preparing,
        search_seconds=min(trials * trial, room),
        confirm_seconds=confirming + final,
        final_seconds=final,
        checker_seconds=checking,
        trial_seconds=on_tune,
        budget_seconds=left,
        least_seconds=preparing + one_round + extra + final,
        timely=SURELY * trials * trial <= room,
    )


@dataclass(frozen=True, slots=True)
class _Costs:
    """Seconds of each kind of work, for shapes that move so many bytes each."""

    experiment: Experiment
    device: Device
    compile_slots: int
    bench_slots: int
    baseline_ns: Sequence[float]

    def oracle(self, sizes: Sequence[int]) -> float:
        """Making one test case of each shape."""
        weighed = sum(min(size, ORACLE_BYTES) for size in sizes) / 2**20
        parallel = min(ORACLES, self.compile_slots + self.bench_slots)
        return ORACLE_SECONDS_PER_MIB * weighed / parallel

    def check(self, sizes: Sequence[int]) -> float:
        """Checking one candidate on each shape."""
        each = traits_of(self.device.backend).shape_seconds
        return each * len(sizes) + CHECK_SECONDS_PER_MIB[self.device.is_cpu] * sum(sizes) / 2**20

    def time(self, sizes: Sequence[int], first: int) -> float:
        """Checking and timing one candidate on the shapes from number ``first`` on.

        By the baseline's times where it has all of them.
        """
        measure = self.experiment.measure
        known = self.baseline_ns[first : first + len(sizes)]
        launch = sum(LAUNCH_SECONDS + size / BYTES_PER_SECOND[self.device.is_cpu] for size in sizes)
        if len(known) == len(sizes):
            launch = sum(known) * 1e-9
        energy = 0.0 if self.experiment.objective == "time" else 2 * TAKEN_SECONDS * len(sizes)
        return self.check(sizes) + (measure.warmup + measure.repeats) * launch + energy

    def confirm(self, processes: int, candidates: int, each: float) -> float:
        """Timing candidates and the baseline, of ``each`` so many seconds, in fresh processes."""
        cpu = self.device.is_cpu
        one = PROCESS_SECONDS[cpu] + CONFIRMED[cpu] * (1 + candidates) * each
        return max(0, processes) * one / self.bench_slots


def _slowness(measured: Measured) -> float:
    """How many times as long as for the baseline the timing of a trial takes; at least 1."""
    cells = [cell for cell in measured.cells if isinstance(cell, Full)]
    if not measured.complete or not cells:
        return 1.0
    return max(1.0, sum(one.median_ns for one in cells) / sum(one.baseline_ns for one in cells))


def _bytes(experiment: Experiment, binding: ShapeBinding) -> int:
    moved = moved_bytes(experiment, binding.symbols)
    if moved is not None:
        return moved
    arguments = resolve_arguments(experiment, binding.symbols)
    return sum(a.size * (2 if a.kind == "inout" else 1) for a in arguments if a.is_buffer)
