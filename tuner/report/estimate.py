"""Estimates of the duration of a run, or of what is left of it."""

from dataclasses import dataclass

from tuner.backends.registry import traits_of
from tuner.device import Device
from tuner.engine.progress import duration
from tuner.experiment.arguments import moved_bytes, resolve_arguments
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.experiment.odd_shapes import every_shape
from tuner.results.statistics import FEWEST

CHECK_SECONDS_PER_MIB = {True: 0.02, False: 1e-4}
"""Checking the outputs of one candidate on a shape, by ``is_cpu``: a GPU compares on the device."""

ORACLE_SECONDS_PER_MIB, ORACLE_BYTES, ORACLES = 0.03, 64 << 20, 4
"""Drawing one shape's inputs and computing the reference in float64 on one core; the size above
which the baseline is the reference; how many are computed in parallel at most."""

TEST_CASES, EXTRA_CASES = 2, 3
"""Test cases of each shape in the search, and further ones for finalists."""

BEGIN_SECONDS = 4.0
"""Finding devices, compiling the baseline, measuring ceilings."""

PROCESS_SECONDS = 0.5
"""Start of a bench process."""

CONFIRMED = 3
"""Confirming a candidate on a shape, as a multiple of what the search takes for it."""

LAUNCH_SECONDS = 20e-6
"""Launch of a small kernel, with overhead."""

BYTES_PER_SECOND = {True: 5e9, False: 1e12}
"""Memory throughput of a kernel, by ``is_cpu``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Number of trials, and seconds of preparation, search and confirmation on an idle machine.

    Rough: it assumes a memory-bound kernel, and that no configuration is cut short.
    """

    trials: int
    space: int | None
    prepare_seconds: float
    search_seconds: float
    confirm_seconds: float

    def __str__(self) -> str:
        whole = self.prepare_seconds + self.search_seconds + self.confirm_seconds
        tried = f"at most {self.trials}" if self.space is None else f"{self.trials} of {self.space}"
        what = f"{tried} configurations" if self.trials else "confirming"
        return f"{what}, roughly {duration(whole)}"


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
    searched: float = 0.0,
    confirmed: int = 0,
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
        searched: seconds that it has searched.
        confirmed: processes that it has confirmed in.
    """
    backend = traits_of(device.backend)
    most = experiment.search.trials
    if space is not None:
        most = min(most, space)
    trials = most if trials is None else trials
    shapes, measure = experiment.shapes, experiment.measure
    launches = measure.warmup + measure.repeats
    tune = [_bytes(experiment, binding) for binding in shapes.tune]
    held_out = [_bytes(experiment, binding) for binding in shapes.held_out]
    odd = [_bytes(experiment, one) for one in every_shape(experiment)[len(tune + held_out) :]]

    def oracle(sizes: list[int]) -> float:
        weighed = sum(min(size, ORACLE_BYTES) for size in sizes) / 2**20
        return ORACLE_SECONDS_PER_MIB * weighed / min(ORACLES, compile_slots + bench_slots)

    def check(sizes: list[int]) -> float:
        mebibytes = sum(sizes) / 2**20
        return backend.shape_seconds * len(sizes) + CHECK_SECONDS_PER_MIB[device.is_cpu] * mebibytes

    def time(sizes: list[int]) -> float:
        moved = launches * sum(sizes) / BYTES_PER_SECOND[device.is_cpu]
        return check(sizes) + launches * LAUNCH_SECONDS * len(sizes) + moved

    compiling = backend.compile_seconds / compile_slots
    timing = time(tune) / bench_slots
    trial = compiling + timing if device.is_cpu else max(compiling, timing)
    few = min(FEWEST, experiment.confirm.processes)
    finalists = min(most, experiment.confirm.top + (len(tune) + 1) // 2)
    winning = min(finalists, 1 + len(tune) // 2)
    rest = held_out if device.is_cpu else tune + held_out + held_out

    def confirmed_in(processes: int, candidates: int, sizes: list[int]) -> float:
        each = PROCESS_SECONDS + CONFIRMED * (1 + candidates) * time(sizes)
        return processes * each / bench_slots

    confirming = rounds * (
        confirmed_in(max(0, few - confirmed), finalists, tune)
        + finalists * (time(tune) + check(odd))
    )
    if rest:
        confirming += confirmed_in(few, winning, rest) + winning * time(held_out)
    seen = max((size for size in tune + held_out + odd if size <= checker_bytes), default=0)
    if seen:
        confirming += backend.checker_seconds + backend.checker_seconds_per_mib * seen / 2**20
    return Estimate(
        trials=trials,
        space=space,
        prepare_seconds=BEGIN_SECONDS
        + TEST_CASES * oracle(tune + held_out)
        + time(tune + held_out),
        search_seconds=min(trials * trial, max(0.0, experiment.search.seconds - searched)),
        confirm_seconds=EXTRA_CASES * oracle(tune + held_out) + oracle(odd) + confirming,
    )


def _bytes(experiment: Experiment, binding: ShapeBinding) -> int:
    moved = moved_bytes(experiment, binding.symbols)
    if moved is not None:
        return moved
    arguments = resolve_arguments(experiment, binding.symbols)
    return sum(a.size * (2 if a.kind == "inout" else 1) for a in arguments if a.is_buffer)
