"""Changes what a spec gives one value: scalars, and inputs that hold one number throughout."""

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from itertools import cycle

import numpy as np

from tuner.experiment.arguments import IntegerRange, ResolvedArgument, ResolvedField
from tuner.experiment.constants import (
    CHANGED_WITH,
    HALVES,
    Constants,
    OtherSign,
    changed_fields,
    changed_with,
)
from tuner.experiment.contents import FromFile, FromPython
from workers.elements import is_float, numpy_dtype

_FACTOR = (2.0, 4.0)
"""A scalar without a range is multiplied or divided by so much."""
_NONZERO = (0.25, 1.0)
"""Values in place of a scalar that is 0."""


def change_constants(
    arguments: Sequence[ResolvedArgument],
    scalars: Set[str],
    what: Constants,
    rng: np.random.Generator,
) -> tuple[tuple[ResolvedArgument, ...], str]:
    """The arguments with other constants, and what was changed, in words.

    Args:
        arguments: of one shape.
        scalars: names of those that do not follow from the shape, and of such fields of structs.
        what: which constants to change.
        rng: chooses the values.
    """
    found, words = [], []
    first = what in ("ends", "some flags")
    near = cycle((first, not first))
    for argument in arguments:
        fields = changed_fields(argument, scalars, what)
        if what in HALVES:
            fields = tuple(field for field in fields if next(near))
        if fields:
            found.append(_with_other_fields(argument, fields, what, near, rng))
            words.append(
                f"{', '.join(f'{argument.name}.{field.name}' for field in fields)} changed"
            )
            continue
        constant = argument.kind != "scalar" or argument.name in scalars
        if isinstance(what, OtherSign):
            constant = argument.name == what.name
        wanted = "scalars" if isinstance(what, OtherSign) else CHANGED_WITH.get(what, what)
        changes = constant and changed_with(argument) == wanted
        if what in HALVES:
            changes = changes and argument.kind == "scalar" and next(near)
        if not changes:
            found.append(argument)
            continue
        changed = _changed(argument, what, near, rng)
        found.append(changed)
        if argument.kind == "scalar":
            words.append(f"{argument.name}={changed.value:.6g} in place of {argument.value:.6g}")
            if isinstance(what, OtherSign):
                words.append("which no `range` excludes")
        else:
            words.append(f"{argument.name} not constant")
    return tuple(found), ", ".join(words)


def not_constant(argument: ResolvedArgument) -> ResolvedArgument:
    """An input that holds one number throughout with others, another argument as it is."""
    varies = argument.kind != "scalar" and changed_with(argument) == "contents"
    return _with_other_contents(argument) if varies else argument


def _changed(
    argument: ResolvedArgument, what: Constants, near: Iterator[bool], rng: np.random.Generator
) -> ResolvedArgument:
    if argument.kind == "scalar":
        return replace(argument, value=_other(argument, what, near, rng))
    return _with_other_contents(argument)


def _with_other_contents(argument: ResolvedArgument) -> ResolvedArgument:
    if isinstance(argument.fill, FromFile | FromPython):
        return replace(argument, unlike=True)
    if is_float(argument.dtype) or argument.range is not None:
        return replace(argument, fill="normal")
    return replace(argument, fill=IntegerRange(lo=0, hi=1))


def _with_other_fields(
    argument: ResolvedArgument,
    fields: Sequence[ResolvedField],
    what: Constants,
    near: Iterator[bool],
    rng: np.random.Generator,
) -> ResolvedArgument:
    """The struct with other values in these fields."""

    def other(field: ResolvedField, value: float) -> float:
        scalar = replace(argument, kind="scalar", dtype=field.dtype, value=value)
        return _other(scalar, what, near, rng)

    return replace(
        argument,
        fields=tuple(
            replace(one, values=tuple(other(one, value) for value in one.values))
            if one in fields
            else one
            for one in argument.fields
        ),
    )


def _other(
    scalar: ResolvedArgument, what: Constants, near: Iterator[bool], rng: np.random.Generator
) -> float:
    """Another value of a scalar: at one of its ends, on the other side of 0, or anywhere."""
    if what in ("ends", "other ends"):
        return _end(scalar, rng, near=next(near))
    if isinstance(what, OtherSign):
        return -_float(scalar, rng)
    if not is_float(scalar.dtype):
        return _integer(scalar, rng)
    return _power_of_two(_float(scalar, rng), scalar)


def _end(scalar: ResolvedArgument, rng: np.random.Generator, *, near: bool) -> float:
    """What is nearest to 0 of a scalar's range, or its end below 0, or else the one above.

    Without a range: 0, or another value of the same sign. One that is 0 is made less.
    """
    if scalar.range is None:
        other = _float(scalar, rng)
        return other if not near else 0.0 if scalar.value else -other
    low, high = scalar.range
    if near:
        return min(max(low, 0), high)
    return low if low < 0 else high


def _float(argument: ResolvedArgument, rng: np.random.Generator) -> float:
    """Another value, as the type holds it."""
    value = float(argument.value or 0.0)
    if argument.range is not None:
        value = rng.uniform(*argument.range)
    elif value == 0:
        value = rng.uniform(*_NONZERO)
    else:
        value *= rng.uniform(*_FACTOR) ** rng.choice([-1, 1])
    with np.errstate(over="ignore"):
        held = float(np.array(value).astype(numpy_dtype(argument.dtype)))
    return held if np.isfinite(held) else float(argument.value or 0.0)


def _power_of_two(value: float, scalar: ResolvedArgument) -> float:
    """The power of 2 below, if it is another value: what is divided by it can be a tie.

    1 would not show that a kernel leaves the scalar out.
    """
    if not value:
        return value
    found = math.copysign(2.0 ** math.floor(math.log2(abs(value))), value)
    low, high = scalar.range or (-math.inf, math.inf)
    unlike = abs(found) != 1 and found != scalar.value
    return found if unlike and low <= found <= high else value


def _integer(argument: ResolvedArgument, rng: np.random.Generator) -> int:
    """Another integer of the range, half of the time 1 or the nearest, or a flag's other value."""
    value = int(argument.value or 0)
    if argument.range is None:
        return 1 - value
    low, high = (int(end) for end in argument.range)
    least = min(max(low, 1), high)
    if least != value and rng.random() < 0.5:
        return least
    other = int(rng.integers(low, max(low, high - 1), endpoint=True))
    return min(other + (other >= value), high)
