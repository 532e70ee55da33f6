"""What a run will cost, before it starts: trials, and a rough time."""

from dataclasses import dataclass

from tuner.device import Device
from tuner.spec.experiment import Experiment, ShapeBinding
from tuner.spec.odd import odd_shapes
from tuner.spec.resolve import moved_bytes

COMPILE_SECONDS = {"cuda": 0.15, "opencl": 0.1}
"""One small kernel on one core."""

SHAPE_SECONDS = {"cuda": 0.02, "opencl": 0.12}
"""One candidate on one shape: the first launch, for which OpenCL compiles again, and the checks."""

ORACLE_SECONDS_PER_MIB = 0.03
"""Drawing one shape's inputs and computing what is right for them, in float64 on one core."""

SEEDS = 2
"""Input seeds that the baseline is prepared for."""

PROCESS_SECONDS = 1.5
"""A fresh bench process, until it can time."""

LAUNCH_SECONDS = 20e-6
"""A launch of a small kernel, its overhead included."""

BYTES_PER_SECOND = {True: 5e9, False: 1e12}
"""What a kernel moves, on a CPU device and on a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Trials, and seconds of preparing, searching and confirming; good to a factor of a few."""

    trials: int
    space: int
    prepare_seconds: float
    search_seconds: float
    confirm_seconds: float

    def __str__(self) -> str:
        whole = self.prepare_seconds + self.search_seconds + self.confirm_seconds
        time = f"{whole:.0f} s" if whole < 120 else f"{whole / 60:.0f} min"
        return f"{self.trials} of {self.space} configurations, about {time}"


def estimate(
    experiment: Experiment, device: Device, space: int, *, compile_slots: int, bench_slots: int
) -> Estimate:
    """How long a run would take.

    Args:
        experiment: its budgets, shapes and ``cost.bytes``; 1 MiB a shape where that is not given.
        device: what it runs on.
        space: how many configurations are feasible.
        compile_slots: compile jobs at once.
        bench_slots: devices.
    """
    trials = min(experiment.search.trials, space)
    shapes, measure = experiment.shapes, experiment.measure
    launches = measure.warmup + measure.repeats
    tune = [_bytes(experiment, binding) for binding in shapes.tune]
    others = [
        _bytes(experiment, binding) for binding in (*shapes.held_out, *odd_shapes(experiment))
    ]
    oracle = ORACLE_SECONDS_PER_MIB * sum(tune + others) / 2**20

    def time(sizes: list[int]) -> float:
        moved = launches * sum(sizes) / BYTES_PER_SECOND[device.is_cpu]
        each = SHAPE_SECONDS[device.backend] + launches * LAUNCH_SECONDS
        return each * len(sizes) + moved

    compiling = COMPILE_SECONDS[device.backend] / compile_slots
    timing = time(tune) / bench_slots
    trial = compiling + timing if device.is_cpu else max(compiling, timing)
    finalists = 1 + min(trials, experiment.confirm.top + len(tune))
    confirming = PROCESS_SECONDS + oracle + finalists * time(tune + others)
    return Estimate(
        trials=trials,
        space=space,
        prepare_seconds=PROCESS_SECONDS + SEEDS * oracle + time(tune + others),
        search_seconds=min(trials * trial, experiment.search.seconds),
        confirm_seconds=experiment.confirm.processes * confirming / bench_slots,
    )


def _bytes(experiment: Experiment, binding: ShapeBinding) -> int:
    moved = moved_bytes(experiment, binding.symbols)
    return 2**20 if moved is None else moved
