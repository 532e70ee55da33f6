"""What a run costs: trials and roughly the time, before it starts, and by its pace once it goes."""

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.backends.registry import traits_of
from tuner.device import Device
from tuner.experiment.arguments import moved_bytes, resolve_arguments
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.experiment.odd_shapes import odd_shapes

CHECK_SECONDS_PER_MIB = {True: 0.02, False: 1e-4}
"""All looks at what one candidate left on a shape, on a CPU device and on a GPU, which compares by
itself."""

ORACLE_SECONDS_PER_MIB, ORACLE_BYTES, ORACLES = 0.03, 64 << 20, 4
"""Drawing one shape's inputs and computing what is right for them, in float64 on one core; above so
many bytes the baseline alone says that, at once; so many are made together at most."""

SEEDS, HARDER = 2, 3
"""Sets of inputs that the baseline is prepared for, and further ones that finalists are asked."""

PROCESS_SECONDS = 1.5
"""A fresh bench process, until it can time."""

LAUNCH_SECONDS = 20e-6
"""A launch of a small kernel, its overhead included."""

BYTES_PER_SECOND = {True: 5e9, False: 1e12}
"""What a kernel moves, on a CPU device and on a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Trials to do, and seconds of preparing, searching and confirming on an idle machine.

    Rough, since nobody knows yet how long the kernel takes: it is taken to do nothing but move its
    data; nor how soon hopeless configurations are given up.
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


def duration(seconds: float) -> str:
    """Seconds or minutes, as precise as a guess is."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def seconds_left(seconds: float, budgets: Iterable[tuple[float, float]]) -> float | None:
    """How long it takes until the first budget is spent, at the pace of the last ``seconds``.

    Args:
        seconds: not 0.
        budgets: how much of each was spent in them, and how much is left.

    Returns:
        ``None`` where nothing was spent.
    """
    each = [seconds * max(0.0, rest) / spent for spent, rest in budgets if spent > 0]
    return min(each, default=None)


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
    """How long a run would take, or what is left of one.

    Args:
        experiment: its budgets, shapes and ``cost.bytes``; its arguments where that is not given.
        device: what it runs on.
        space: how many configurations are feasible; ``None`` while there is no template.
        compile_slots: compile jobs at once.
        bench_slots: devices.
        rounds: of agents; each prepares its baseline, and confirms what it found.
        checker_bytes: the largest shape that a checker takes; 0 where there is no checker.
        trials: how many are left of a run that was begun.
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
    odd = [_bytes(experiment, binding) for binding in odd_shapes(experiment)]
    weighed = sum(min(size, ORACLE_BYTES) for size in tune + held_out + odd) / 2**20
    oracle = ORACLE_SECONDS_PER_MIB * weighed / min(ORACLES, compile_slots + bench_slots)

    def time(sizes: list[int]) -> float:
        moved = launches * sum(sizes) / BYTES_PER_SECOND[device.is_cpu]
        checks = CHECK_SECONDS_PER_MIB[device.is_cpu] * sum(sizes) / 2**20
        each = backend.shape_seconds + launches * LAUNCH_SECONDS
        return each * len(sizes) + moved + checks

    compiling = backend.compile_seconds / compile_slots
    timing = time(tune) / bench_slots
    trial = compiling + timing if device.is_cpu else max(compiling, timing)
    finalists = 1 + min(most, experiment.confirm.top)
    process = PROCESS_SECONDS + finalists * time(tune + held_out)
    processes = max(0, experiment.confirm.processes - confirmed)
    confirming = processes * process / bench_slots
    seen = max((size for size in tune + held_out + odd if size <= checker_bytes), default=0)
    if seen:
        confirming += backend.checker_seconds + backend.checker_seconds_per_mib * seen / 2**20
    return Estimate(
        trials=trials,
        space=space,
        prepare_seconds=rounds * (PROCESS_SECONDS + SEEDS * oracle + time(tune + held_out + odd)),
        search_seconds=min(trials * trial, max(0.0, experiment.search.seconds - searched)),
        confirm_seconds=rounds * (HARDER * oracle + finalists * time(odd) + confirming),
    )


def _bytes(experiment: Experiment, binding: ShapeBinding) -> int:
    moved = moved_bytes(experiment, binding.symbols)
    if moved is not None:
        return moved
    arguments = resolve_arguments(experiment, binding.symbols)
    return sum(a.size * (2 if a.kind == "inout" else 1) for a in arguments if a.is_buffer)
