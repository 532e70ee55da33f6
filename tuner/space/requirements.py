"""What a configuration must meet on a shape to be launched: stated once, in a fixed order.

Interpreted at one point by :mod:`tuner.space.lower`, at many by :mod:`tuner.space.conditions`, for
a finished launch by :mod:`tuner.space.limits`, and in C by :mod:`tuner.export.launch_code`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from tuner.device import Device
from tuner.experiment.model import (
    NEVER,
    CompilerFlag,
    Experiment,
    Kernel,
    Launch,
    ScratchArgument,
    Template,
)
from tuner.expressions import Expression
from tuner.expressions.tree import MAX_LENGTH
from tuner.trial import Code

INT64_MAX = 2**63 - 1
AXES = "xyz"

PORTABLE_CLUSTER = 8
"""Blocks in a cluster that every device with clusters allows; more need a device's consent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Wherever ``when`` is true: ``least`` ≤ the product of ``factors`` ≤ ``most``.

    Every factor needs an integer value, itself at least ``least``; one that is ``true`` needs a
    value other than 0. With ``item``, a type or the symbol of one, the product counts its bytes.
    ``label`` names the requirement, ``subject`` begins the message for a point that fails it.
    """

    label: str
    subject: str
    factors: tuple[Expression, ...]
    true: bool = False
    least: int | None = None
    most: int | None = None
    item: str | None = None
    when: Expression | None = None

    @property
    def names(self) -> frozenset[str]:
        """The parameters and symbols that it reads."""
        read = self.factors if self.when is None else (*self.factors, self.when)
        own = frozenset() if self.item is None else frozenset({self.item})
        return own.union(*(expression.names for expression in read))


@dataclass(frozen=True, slots=True)
class LaunchLimit:
    """What a device allows: the product of a launch's sizes from ``least`` to ``most``."""

    code: Code
    unit: str
    field: Literal["grid", "block", "shared_bytes", "cluster", "dependent"]
    axes: tuple[int, ...]
    least: int
    most: int

    def sizes(self, launch: Any) -> tuple[Any, ...]:
        """The sizes that it bounds: expressions of a ``Launch``, integers of a ``KernelStep``."""
        given = getattr(launch, self.field)
        return tuple(given[axis] for axis in self.axes if axis < len(given)) or (given,)


@lru_cache(maxsize=16)
def launch_limits(device: Device) -> tuple[LaunchLimit, ...]:
    """Every limit on a launch's geometry; kept, since each launch of each trial is compared."""
    return tuple(_launch_limits(device))


def _launch_limits(device: Device) -> Iterator[LaunchLimit]:
    shared = device.max_shared_bytes_per_block
    unit = "bytes of dynamic shared memory"
    yield LaunchLimit(Code.SHARED_MEMORY, unit, "shared_bytes", (), 0, shared)
    for axis, name in enumerate(AXES):
        blocks, threads = device.max_grid[axis], device.max_block[axis]
        yield LaunchLimit(Code.GRID, f"blocks along {name}", "grid", (axis,), 1, blocks)
        yield LaunchLimit(Code.THREADS, f"threads along {name}", "block", (axis,), 1, threads)
    threads = device.max_threads_per_block
    yield LaunchLimit(Code.THREADS, "threads per block", "block", (0, 1, 2), 1, threads)
    if device.compute_capability:
        newer = device.has_launch_attributes
        blocks = PORTABLE_CLUSTER if newer else 1
        yield LaunchLimit(Code.GRID, "blocks per cluster", "cluster", (0, 1, 2), 1, blocks)
        unit = "as the value of dependent"
        yield LaunchLimit(Code.LAUNCH_FAILED, unit, "dependent", (), 0, int(newer))


def requirements(
    experiment: Experiment, subject: Kernel | Template, device: Device
) -> Iterator[Requirement]:
    """Every requirement on a template's configurations, or on the baseline."""
    yield from domain(experiment)
    yield from requirements_of(subject, device)


def requirements_of(subject: Kernel | Template, device: Device) -> Iterator[Requirement]:
    """Every requirement but the domain."""
    yield from constraints(subject)
    for step in subject.steps:
        if isinstance(step, Launch):
            yield from _launch(step, device)
    template = subject if isinstance(subject, Template) else None
    for name, expression in template.defines.items() if template else ():
        yield _value(f"define {name}", expression)
    for option in subject.options or ():
        if isinstance(option, CompilerFlag):
            yield from _option(option)
    for argument in template.scratch if template else ():
        yield _scratch(argument)


def domain(experiment: Experiment) -> Iterator[Requirement]:
    """The shapes that the kernel is for."""
    for expression in experiment.shapes.domain:
        yield Requirement(
            label=f"the domain, {expression.text}",
            subject="the shape is outside the domain",
            factors=(expression,),
            true=True,
        )


def served(experiment: Experiment) -> tuple[Expression, ...]:
    """Conditions of the shapes that tuned kernels may serve in an application.

    The domain; without one nothing is promised beyond the spec's own shapes, so only these.
    """
    if experiment.shapes.domain:
        return experiment.shapes.domain
    found: list[str] = []
    for binding in (*experiment.shapes.tune, *experiment.shapes.held_out):
        equal = (
            f"{name} == {value!r}" if isinstance(value, str) else f"{name} == {int(value)}"
            for name, value in binding.symbols.items()
        )
        found.append(" and ".join(equal))
    while len(" or ".join(found)) > MAX_LENGTH:
        found.pop()
    return (Expression.parse(" or ".join(found)),)


def constraints(subject: Kernel | Template) -> Iterator[Requirement]:
    """A template's constraints; the baseline has none."""
    for expression in subject.constraints if isinstance(subject, Template) else ():
        yield constraint(expression)


def constraint(expression: Expression) -> Requirement:
    """The requirement that an expression is true."""
    return Requirement(
        label=f"the constraint {expression.text}",
        subject="a constraint does not hold",
        factors=(expression,),
        true=True,
    )


def _launch(launch: Launch, device: Device) -> Iterator[Requirement]:
    where = f"{launch.entry}: " if launch.entry else ""
    for limit in launch_limits(device):
        if limit.axes and limit.axes[0] >= len(getattr(launch, limit.field)):
            continue
        if limit.field == "dependent" and launch.dependent == NEVER:
            continue
        yield Requirement(
            label=f"{where}{limit.least} to {limit.most} {limit.unit}",
            subject=f"{limit.unit} on {device.name}",
            factors=limit.sizes(launch),
            least=limit.least,
            most=limit.most,
        )
    for axis, cluster in enumerate(launch.cluster):
        grid = launch.grid[axis].text if axis < len(launch.grid) else "1"
        name = AXES[axis]
        yield Requirement(
            label=f"{where}a grid of whole clusters along {name}",
            subject=f"the grid is no multiple of the cluster along {name}",
            factors=(Expression.parse(f"({grid}) % ({cluster.text}) == 0"),),
            true=True,
        )


def _option(option: CompilerFlag) -> Iterator[Requirement]:
    subject = f"option {option.flag}"
    if option.when is not None:
        yield _value(subject, option.when)
    if option.value is not None:
        yield _value(subject, option.value, option.when)


def _value(subject: str, expression: Expression, when: Expression | None = None) -> Requirement:
    return Requirement(
        label=f"a value for {subject}", subject=subject, factors=(expression,), when=when
    )


def _scratch(argument: ScratchArgument) -> Requirement:
    return Requirement(
        label=f"a size for scratch {argument.name}",
        subject=f"bytes of scratch {argument.name}",
        factors=argument.shape,
        least=1,
        most=INT64_MAX,
        item=argument.dtype,
    )
