"""What makes a configuration feasible on a shape, as vectorised conditions in a fixed order.

The same rules as :mod:`tuner.space.lower` applies to one configuration: the domain, the
constraints, a value for every expression, and the limits that a launch's geometry can break. Knows
nothing of how a space is walked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.device import Device
from tuner.experiment.arguments import item_bytes
from tuner.experiment.model import CompilerFlag, Experiment, Launch, ScratchArgument, Template
from tuner.expressions import Expression
from tuner.space.limits import AXES
from tuner.space.lower import INT64_MAX
from tuner.trial import Value

Column = npt.NDArray[np.generic] | Value
Columns = Mapping[str, Column]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Condition:
    """One requirement: ``holds(columns, length)`` tells for ``length`` points which meet it.

    ``names`` are the parameters and symbols it reads; ``label`` is for people.
    """

    label: str
    names: frozenset[str]
    holds: Callable[[Columns, int], Bools]


def conditions(experiment: Experiment, template: Template, device: Device) -> tuple[Condition, ...]:
    """Every condition on a template's configurations and the experiment's shapes."""
    found = [
        *(holds(f"the domain, {e.text}", e, device) for e in experiment.shapes.domain),
        *(holds(f"the constraint {e.text}", e, device) for e in template.constraints),
    ]
    for step in template.steps:
        if isinstance(step, Launch):
            found.extend(_launch(step, device))
    for name, expression in template.defines.items():
        found.append(_between(f"a value for define {name}", expression, device))
    for option in template.options or ():
        if isinstance(option, CompilerFlag):
            found.extend(_option(option, device))
    found.extend(_scratch(argument, device) for argument in template.scratch)
    return tuple(found)


def _launch(launch: Launch, device: Device) -> Iterator[Condition]:
    where = f"{launch.entry}: " if launch.entry else ""
    for expressions, unit, limits in (
        (launch.block, "threads", device.max_block),
        (launch.grid, "blocks", device.max_grid),
    ):
        for axis, expression, limit in zip(AXES, expressions, limits, strict=False):
            label = f"{where}1 to {limit} {unit} along {axis}"
            yield _between(label, expression, device, 1, limit)
    yield _product(
        f"{where}at most {device.max_threads_per_block} threads per block",
        launch.block,
        device,
        device.max_threads_per_block,
    )
    yield _between(
        f"{where}at most {device.max_shared_bytes_per_block} bytes of dynamic shared memory",
        launch.shared_bytes,
        device,
        0,
        device.max_shared_bytes_per_block,
    )


def _option(option: CompilerFlag, device: Device) -> Iterator[Condition]:
    if option.when is not None:
        yield _between(f"a value for option {option.flag}", option.when, device)
    if option.value is not None:
        value = _between(f"a value for option {option.flag}", option.value, device)
        yield value if option.when is None else _only_when(option.when, value, device)


def _scratch(argument: ScratchArgument, device: Device) -> Condition:
    symbol = argument.dtype

    def holds(columns: Columns, length: int) -> Bools:
        item = item_bytes(str(columns.get(symbol, symbol)))
        return _product_fits(argument.shape, device, columns, length, INT64_MAX // item)

    names = _names(argument.shape) | {symbol}
    return Condition(f"a size for scratch {argument.name}", names, holds)


def holds(label: str, expression: Expression, device: Device | None = None) -> Condition:
    """The condition that an expression is true."""

    def true(columns: Columns, length: int) -> Bools:
        values, valid = _numbers(expression, columns, device, length)
        return np.asarray(valid & (values != 0))

    return Condition(label, expression.names, true)


def _between(
    label: str,
    expression: Expression,
    device: Device,
    least: int | None = None,
    most: int | None = None,
) -> Condition:
    def holds(columns: Columns, length: int) -> Bools:
        values, valid = _numbers(expression, columns, device, length)
        if least is not None:
            valid = valid & (values >= least)
        if most is not None:
            valid = valid & (values <= most)
        return valid

    return Condition(label, expression.names, holds)


def _product(label: str, expressions: Iterable[Expression], device: Device, most: int) -> Condition:
    factors = tuple(expressions)

    def holds(columns: Columns, length: int) -> Bools:
        return _product_fits(factors, device, columns, length, most)

    return Condition(label, _names(factors), holds)


def _product_fits(
    factors: Iterable[Expression], device: Device, columns: Columns, length: int, most: int
) -> Bools:
    """Whether every factor is at least 1 and the product at most ``most``, without overflow."""
    fits: Bools = np.ones(length, np.bool_)
    room: Ints = np.full(length, most, np.int64)
    for factor in factors:
        values, valid = _numbers(factor, columns, device, length)
        fits &= valid & (values >= 1)
        room //= np.where(fits, values, 1)
    return np.asarray(fits & (room >= 1))


def _only_when(when: Expression, condition: Condition, device: Device) -> Condition:
    def holds(columns: Columns, length: int) -> Bools:
        values, valid = _numbers(when, columns, device, length)
        return np.asarray(~(valid & (values != 0)) | condition.holds(columns, length))

    return Condition(condition.label, condition.names | when.names, holds)


def _numbers(
    expression: Expression, columns: Columns, device: Device | None, length: int
) -> tuple[Ints, Bools]:
    values, valid = expression.mask(columns, device, length)
    if values.dtype.kind == "U":
        return np.zeros(length, np.int64), np.zeros(length, np.bool_)
    return values.astype(np.int64), valid


def _names(expressions: Iterable[Expression]) -> frozenset[str]:
    return frozenset().union(*(expression.names for expression in expressions))
