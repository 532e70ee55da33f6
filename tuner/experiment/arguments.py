"""Arguments resolved for one shape: every expression evaluated, every default applied.

Allocating and filling buffers is up to the workers.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tuner.backends.registry import traits_of
from tuner.errors import SpecError
from tuner.experiment.contents import (
    Compare,
    Fill,
    FromFile,
    FromPython,
    Integers,
    Number,
    Offsets,
    Tolerance,
)
from tuner.experiment.fields import MAX_STRUCT_BYTES
from tuner.experiment.model import ITEM_BYTES, Argument, Experiment, Template
from tuner.experiment.tolerances import EXACT, default_tolerance
from tuner.expressions import Expression, ExpressionError
from tuner.trial import Value

POINTER_BYTES = 8

MAX_BYTES = 1 << 46
"""Largest buffer, far above any device's memory: a larger one is a mistake in the spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerRange:
    """Uniform integers from ``lo`` to ``hi``, both included."""

    lo: int
    hi: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsTo:
    """Integers that never decrease, from 0 to exactly ``last``."""

    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedField:
    """One field of a struct: ``values`` of one type from ``offset``, in bytes, on."""

    name: str
    dtype: str
    offset: int
    values: tuple[int | float, ...]


ResolvedFill = (
    Literal["normal", "uniform", "zeros", "permutation"]
    | IntegerRange
    | OffsetsTo
    | FromFile
    | FromPython
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedArgument:
    """One argument on one shape, in the kernel's order.

    ``shape`` and ``strides`` are in elements, row-major by default; ``align`` is in bytes. ``fill``
    gives the initial contents of an ``in``, ``constant`` or ``inout`` argument, ``value`` that of a
    scalar. A struct of ``struct_bytes`` has ``fields``, or ``contents`` as hexadecimal digits.
    ``dtype`` is empty for a struct and a null pointer. Contents from the user that are one number
    throughout are changed if they must be ``unlike``.
    """

    name: str
    kind: Literal["in", "out", "inout", "scalar", "struct", "scratch", "constant", "null"]
    dtype: str
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    align: int = 1
    fill: ResolvedFill = "zeros"
    range: tuple[float, float] | None = None
    specials: tuple[Literal["inf", "-inf", "nan"], ...] = ()
    fixed: bool = False
    unlike: bool = False
    tolerance: Tolerance = EXACT
    compare: Compare = "close"
    value: int | float | None = None
    symbol: str | None = None
    struct_bytes: int = 0
    fields: tuple[ResolvedField, ...] = ()
    contents: str = ""

    @property
    def repeats(self) -> bool:
        """Whether shapes without a file of their own repeat the numbers of another's."""
        floating = self.dtype.startswith(("float", "bfloat"))
        return isinstance(self.fill, FromFile) and bool(self.fill.sample) and floating

    @property
    def elements(self) -> int:
        """Number of elements that the kernel may read or write."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes from the first element to the end of the last one, gaps of strides included."""
        return spanned(self.shape, self.strides) * item_bytes(self.dtype)

    @property
    def is_buffer(self) -> bool:
        """Whether it occupies device memory."""
        return self.kind in ("in", "out", "inout", "scratch", "constant")

    @property
    def is_input(self) -> bool:
        """Whether it has contents before a launch."""
        return self.kind in ("in", "inout", "constant")

    @property
    def is_output(self) -> bool:
        """Whether its contents are compared."""
        return self.kind in ("out", "inout")


def item_bytes(dtype: str) -> int:
    """The size of one element; raises :class:`SpecError` for an unknown type."""
    try:
        return ITEM_BYTES[dtype]
    except KeyError:
        raise SpecError(f"unknown element type '{dtype}'") from None


def passed_bytes(argument: Argument | None, symbols: Mapping[str, Value]) -> int:
    """The bytes of a kernel's parameter: a value's, or (for ``None``) a pointer's."""
    if argument is None:
        return POINTER_BYTES
    if argument.kind == "struct":
        return _resolved_struct(argument, symbols).struct_bytes
    return item_bytes(str(symbols.get(argument.dtype, argument.dtype)))


def type_name(dtype: str, language: str) -> str:
    """The language's name of an element type; raises :class:`SpecError` if it has none."""
    try:
        return traits_of(language).type_names[dtype]
    except KeyError:
        raise SpecError(f"{language} has no element type '{dtype}'") from None


def resolve_arguments(
    experiment: Experiment, symbols: Mapping[str, Value]
) -> tuple[ResolvedArgument, ...]:
    """The kernel's arguments on the shape ``symbols``.

    Raises:
        SpecError: An expression has no value there, or a size is out of range; the message names
            argument and shape.
    """
    return tuple(resolve_argument(argument, symbols) for argument in experiment.arguments)


def resolve_argument(argument: Argument, symbols: Mapping[str, Value]) -> ResolvedArgument:
    """One argument on the shape ``symbols``; raises as :func:`resolve_arguments`."""
    try:
        return _resolve(argument, symbols)
    except SpecError as error:
        at = ", ".join(f"{name}={value}" for name, value in symbols.items())
        raise SpecError(f"argument '{argument.name}' at {at}: {error}") from None


def _resolve(argument: Argument, symbols: Mapping[str, Value]) -> ResolvedArgument:
    if argument.kind == "null":
        return ResolvedArgument(name=argument.name, kind="null", dtype="")
    if argument.kind == "struct":
        return _resolved_struct(argument, symbols)
    dtype = str(symbols.get(argument.dtype, argument.dtype))
    item = item_bytes(dtype)
    if argument.kind == "scalar":
        return ResolvedArgument(
            name=argument.name,
            kind="scalar",
            dtype=dtype,
            align=item,
            range=argument.range,
            fixed=argument.fixed,
            value=_number(argument.value, dtype, symbols),
        )
    shape = tuple(_integer(extent, symbols, "shape", 1) for extent in argument.shape)
    strides = row_major(shape)
    if argument.strides:
        strides = tuple(_integer(step, symbols, "strides", 0) for step in argument.strides)
        if len(strides) != len(shape):
            raise SpecError(f"{len(strides)} strides for {len(shape)} dimensions")
    filled = argument.initial if argument.kind == "inout" else argument.values
    resolved = ResolvedArgument(
        name=argument.name,
        kind=argument.kind,
        dtype=dtype,
        shape=shape,
        strides=strides,
        align=argument.align or item,
        fill=_fill(filled, symbols),
        range=argument.range,
        specials=argument.specials,
        fixed=argument.fixed,
        tolerance=argument.tolerance or default_tolerance(dtype),
        compare=argument.compare,
        symbol=argument.symbol,
    )
    if resolved.size > MAX_BYTES or resolved.elements > MAX_BYTES:
        raise SpecError(f"the buffer takes {resolved.size} bytes; at most 2**46 are possible")
    if argument.is_output:
        _check_disjoint(shape, strides)
    return resolved


@lru_cache(maxsize=4096)
def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous array, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def spanned(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last one, gaps included; none where an extent is 0."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def _check_disjoint(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Refuse an output whose elements share memory: its contents would be undefined."""
    reach = 0
    for step, extent in sorted(zip(strides, shape, strict=True)):
        if extent > 1:
            if step <= reach:
                raise SpecError("strides let elements of an output overlap")
            reach += (extent - 1) * step


def _integer(
    expression: Expression, symbols: Mapping[str, Value], what: str, least: int | None = None
) -> int:
    value = expression.evaluate(symbols)
    if isinstance(value, str):
        raise ExpressionError(f"{what}: '{expression}' is the name '{value}', not a number")
    if least is not None and value < least:
        raise SpecError(f"{what}: '{expression}' is {int(value)}; at least {least} is needed")
    return int(value)


def _fill(fill: Fill, symbols: Mapping[str, Value]) -> ResolvedFill:
    if isinstance(fill, Offsets):
        return OffsetsTo(last=_integer(fill.offsets, symbols, "offsets", 0))
    if isinstance(fill, FromFile):
        try:
            return fill.at(symbols)
        except KeyError as unknown:
            raise SpecError(f"file: {unknown} in {fill.file} is no symbol") from None
    if not isinstance(fill, Integers):
        return fill
    lo, hi = (_integer(end, symbols, "integers") for end in fill.integers)
    if lo > hi:
        raise SpecError(f"integers: the lowest value, {lo}, is above the highest, {hi}")
    return IntegerRange(lo=lo, hi=hi)


def passed_numbers(
    argument: Argument, symbols: Mapping[str, Value]
) -> Iterator[tuple[str, int, Number]]:
    """Type, offset in bytes and value of each number that an argument passes by value."""
    if argument.kind == "scalar" and argument.value is not None:
        yield str(symbols.get(argument.dtype, argument.dtype)), 0, argument.value
    elif argument.kind == "struct":
        laid_out = resolve_argument(argument, symbols).fields
        for given, field in zip(argument.fields, laid_out, strict=True):
            for place, value in enumerate(given.value):
                yield field.dtype, field.offset + place * item_bytes(field.dtype), value


def _resolved_struct(argument: Argument, symbols: Mapping[str, Value]) -> ResolvedArgument:
    """A struct with its fields laid out as in C."""
    fields, end, widest = [], 0, 1
    for field in argument.fields:
        dtype = str(symbols.get(field.dtype, field.dtype))
        item = item_bytes(dtype)
        align = field.align or item
        start = -(-end // align) * align
        try:
            values = tuple(_number(value, dtype, symbols) for value in field.value)
        except SpecError as error:
            raise SpecError(f"field '{field.name}': {error}") from None
        fields.append(ResolvedField(name=field.name, dtype=dtype, offset=start, values=values))
        end, widest = start + item * len(values), max(widest, align)
    size = -(-end // widest) * widest if fields else len(argument.bytes or "") // 2
    if not 1 <= size <= MAX_STRUCT_BYTES:
        raise SpecError(f"a struct of {size} bytes; 1 to {MAX_STRUCT_BYTES} can be passed by value")
    return ResolvedArgument(
        name=argument.name,
        kind="struct",
        dtype="",
        fixed=argument.fixed,
        struct_bytes=size,
        fields=tuple(fields),
        contents=argument.bytes or "",
    )


_TOO_LARGE: Mapping[str, float] = {
    "float8_e4m3": 464,
    "float8_e5m2": 61440,
    "float16": 65520,
    "bfloat16": 2**128 - 2**119,
    "float32": 2**128 - 2**103,
    "float64": 2**1024 - 2**970,
}
"""From where on each floating-point type rounds to infinity: half a step past its largest number.
Integers, since a float of Python does not hold the last one."""

_TOO_SMALL: Mapping[str, float] = {
    "float8_e4m3": 2**-10,
    "float8_e5m2": 2**-17,
    "float16": 2**-25,
    "bfloat16": 2**-134,
    "float32": 2**-150,
}
"""Up to where each type below float64 rounds to 0: half its smallest subnormal number."""


def _number(given: Number | None, dtype: str, symbols: Mapping[str, Value]) -> int | float:
    if given is None:
        raise SpecError("a scalar needs a value")
    if dtype.startswith(("float", "bfloat")):
        if isinstance(given, Expression):
            real = float(_integer(given, symbols, "value"))
        else:
            real = given if isinstance(given, float) else given.evaluate(symbols)
        if not holds(dtype, real):
            raise SpecError(f"value: '{given}' is {real:g}, outside {dtype}")
        return real
    if not isinstance(given, Expression):
        whole = "; '//' divides whole numbers" if "/" in str(given) else ""
        raise SpecError(f"value: {given} is a fraction, but {dtype} holds integers{whole}")
    value = _integer(given, symbols, "value")
    if not holds(dtype, value):
        raise SpecError(f"value: '{given}' is {value}, outside {dtype}")
    return value


def holds(dtype: str, value: float) -> bool:
    """Whether a type holds a number. Floating-point types round; they hold infinities and NaN.

    Raises:
        SpecError: there is no such type.
    """
    if dtype in _TOO_LARGE:
        return not _TOO_LARGE[dtype] <= abs(value) < math.inf
    low, high = integer_limits(dtype)
    return low <= value <= high and value == int(value)


def rounds_to_zero(dtype: str, value: float) -> bool:
    """Whether a number that is not 0 is 0 in a floating-point type."""
    return 0 < abs(value) <= _TOO_SMALL.get(dtype, 0)


def integer_limits(dtype: str) -> tuple[int, int]:
    """The least and the greatest value of an integer type or bool."""
    if dtype == "bool":
        return 0, 1
    bits = 8 * item_bytes(dtype)
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def module_variables(experiment: Experiment) -> tuple[str, ...]:
    """The module's variables that constants fill."""
    return tuple(dict.fromkeys(a.symbol for a in experiment.arguments if a.symbol))


def moved_bytes(experiment: Experiment, symbols: Mapping[str, Value]) -> int | None:
    """The bytes that the experiment's ``cost`` gives for a shape; ``None`` without one."""
    cost = experiment.cost
    return None if cost is None or cost.bytes is None else int(cost.bytes.evaluate(symbols))


def kernel_arguments(experiment: Experiment, template: Template | None = None) -> tuple[str, ...]:
    """Names that a launch passes by default: all but constants, which belong to the module."""
    own = (argument.name for argument in experiment.arguments if argument.kind != "constant")
    return (*own, *(scratch.name for scratch in (template.scratch if template else ())))
