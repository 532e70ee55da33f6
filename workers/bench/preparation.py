"""What a bench knows about a prepared experiment, and the statistics of a timing."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.engine.work import BenchSetup
from tuner.experiment.arguments import ResolvedArgument, moved_bytes, resolve_arguments
from tuner.experiment.constants import Constants, constant_names
from tuner.experiment.model import Measure, ShapeBinding
from tuner.experiment.objective import ENERGY_SHARE
from tuner.experiment.odd_shapes import every_shape, shapes_with_changes
from tuner.trial import Code, CutShort, Full, Rejected, Stage
from workers.constants import change_constants
from workers.devices.staging import buffer_bytes
from workers.inputs import PythonFill, stream
from workers.integrity.launch_checks import VerificationCase
from workers.integrity.time_bounds import Bounds

COPIES = 4
"""Copies of a shape's arguments on a device, at least: two stagings, each with its image."""

Arguments = dict[int, tuple[ResolvedArgument, ...]]


def no_python(shape: int) -> PythonFill:
    """Stands for an oracle's functions until there is one."""
    raise LookupError(f"no oracle draws inputs of shape {shape} yet")


@dataclass(slots=True, kw_only=True)
class Preparation:
    """Setup, device, shapes, arguments and cases by shape, the baseline's medians, ceilings.

    Shapes are numbered as the baseline's cells: tune, held-out, then those that are only checked:
    odd ones, and those with other ``constants``: which, and the words for them. Timing uses a
    shape's first case. ``python_fill`` calls the spec's functions.
    """

    setup: BenchSetup
    device: Device
    bindings: tuple[ShapeBinding, ...]
    arguments: Arguments
    constants: dict[int, tuple[Constants, str]] = field(default_factory=dict)
    cases: dict[int, tuple[VerificationCase, ...]] = field(default_factory=dict)
    baseline_ns: dict[int, float] = field(default_factory=dict)
    ceilings: Ceilings | None = None
    python_fill: Callable[[int], PythonFill] = no_python

    @classmethod
    def of(cls, setup: BenchSetup, device: Device) -> Self:
        """With every shape's arguments resolved.

        Raises:
            SpecError: they cannot be.
        """
        experiment = setup.experiment
        bindings = every_shape(experiment)
        made = cls(
            setup=setup,
            device=device,
            bindings=bindings,
            arguments={
                shape: resolve_arguments(experiment, binding.symbols)
                for shape, binding in enumerate(bindings)
            },
        )
        scalars = constant_names(experiment)
        changed = shapes_with_changes(experiment)
        for shape, (binding, kinds) in enumerate(changed, len(bindings) - len(changed)):
            words: list[str] = []
            for what in kinds:
                made.arguments[shape], changes = change_constants(
                    made.arguments[shape],
                    scalars,
                    what,
                    stream(setup.secret, "constants", what, binding),
                )
                words += [changes] if changes else []
            made.constants[shape] = kinds[0], ", ".join(words)
        return made

    @property
    def measure(self) -> Measure:
        """Launches to warm up and to time."""
        return self.setup.experiment.measure

    @property
    def energy_share(self) -> float:
        """The exponent of energy in the objective; 0: it is not measured."""
        return ENERGY_SHARE[self.setup.experiment.objective]

    @property
    def bounds(self) -> Bounds:
        """Bounds of times, by the bytes that the experiment says must be moved on a shape.

        A CPU's clock is too coarse to compare with an empty launch.
        """
        moved = {
            shape: moved_bytes(self.setup.experiment, self.bindings[shape].symbols)
            for shape in self.timed
        }
        return Bounds(
            device=self.device,
            least_bytes={shape: size for shape, size in moved.items() if size is not None},
            launch_ns=0.0
            if self.ceilings is None or self.device.is_cpu
            else self.ceilings.launch_ns,
        )

    @property
    def tune(self) -> range:
        """The tune shapes."""
        return range(len(self.setup.experiment.shapes.tune))

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the tune shapes."""
        return tuple(shape.weight for shape in self.setup.experiment.shapes.tune)

    @property
    def timed(self) -> range:
        """The shapes that are timed: tune, then held-out."""
        shapes = self.setup.experiment.shapes
        return range(len(shapes.tune) + len(shapes.held_out))


def full(samples: Sequence[float], baseline_ns: float) -> Full:
    """Median and median absolute deviation of a timing."""
    median = statistics.median(samples)
    deviation = statistics.median(abs(sample - median) for sample in samples)
    return Full(median_ns=median, mad_ns=deviation, samples=len(samples), baseline_ns=baseline_ns)


def cut_short(samples: Sequence[float], baseline_ns: float) -> CutShort:
    """Median of a timing that was cut short."""
    return CutShort(
        median_ns=statistics.median(samples), samples=len(samples), baseline_ns=baseline_ns
    )


def fits_beside(prep: Preparation, shape: int) -> bool:
    """Whether a process can stage a shape while another one has all tune shapes staged."""
    staged = sum(buffer_bytes(prep.arguments[one]) for one in (*prep.tune, shape))
    return COPIES * staged <= prep.device.memory_bytes // 2


def too_large(prep: Preparation, shape: int) -> Rejected | None:
    """Why a shape's arguments cannot be staged, before they are filled."""
    size = buffer_bytes(prep.arguments[shape])
    room = prep.device.memory_bytes
    if COPIES * size <= room:
        return None
    detail = (
        f"the arguments of {prep.bindings[shape]} take {size / 2**30:.3g} GiB, and {COPIES} copies "
        f"are needed, where the device has {room / 2**30:.3g} GiB: take smaller shapes"
    )
    return Rejected(stage=Stage.LIMITS, code=Code.OUT_OF_MEMORY, detail=detail, shape=shape)
