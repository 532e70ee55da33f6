"""What a run will cost, before it starts: trials, and a rough time."""

from dataclasses import dataclass

from tuner.device import Device
from tuner.spec.experiment import Experiment

COMPILE_SECONDS = {"cuda": 0.15, "opencl": 0.1}
"""One small kernel on one core."""

VERIFY_SECONDS_PER_MIB = 0.004
"""Filling, running, fetching and comparing one shape's buffers."""

TRIAL_SECONDS = 0.01
"""What every trial costs beside its launches."""

PROCESS_SECONDS = 1.5
"""A fresh bench process, until it can time."""

LAUNCH_SECONDS = 20e-6
"""A launch of a small kernel, its overhead included."""

BYTES_PER_SECOND = {True: 5e9, False: 1e12}
"""What a kernel moves, on a CPU device and on a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Trials, and seconds of searching and confirming; good to a factor of a few."""

    trials: int
    space: int
    search_seconds: float
    confirm_seconds: float

    def __str__(self) -> str:
        whole = self.search_seconds + self.confirm_seconds
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
    tune = [_bytes(experiment, index) for index in range(len(experiment.shapes.tune))]
    held_out = [
        _bytes(experiment, index + len(tune)) for index in range(len(experiment.shapes.held_out))
    ]
    measure = experiment.measure
    launches = measure.warmup + measure.repeats

    def time(sizes: list[int]) -> float:
        return sum(
            launches * (LAUNCH_SECONDS + size / BYTES_PER_SECOND[device.is_cpu])
            + VERIFY_SECONDS_PER_MIB * size / 2**20
            for size in sizes
        )

    compiling = COMPILE_SECONDS[device.backend] / compile_slots
    timing = (TRIAL_SECONDS + time(tune)) / bench_slots
    each = compiling + timing if device.is_cpu else max(compiling, timing)
    finalists = 1 + min(trials, experiment.confirm.top + len(tune))
    confirming = PROCESS_SECONDS + finalists * time(tune + held_out)
    return Estimate(
        trials=trials,
        space=space,
        search_seconds=min(PROCESS_SECONDS + trials * each, experiment.search.seconds),
        confirm_seconds=experiment.confirm.processes * confirming / bench_slots,
    )


def _bytes(experiment: Experiment, shape: int) -> int:
    bindings = (*experiment.shapes.tune, *experiment.shapes.held_out)
    if experiment.cost is None or experiment.cost.bytes is None:
        return 2**20
    value = experiment.cost.bytes.evaluate(bindings[shape].symbols)
    assert isinstance(value, int)
    return value
