"""How an exported kernel is called: its arguments, the shape that follows from them, their checks.

Sizes follow from the extents of arrays and from scalars whose expression has one solution. The
rest is then compared with what the spec says for that shape.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.errors import SpecError
from tuner.experiment.arguments import holds, item_bytes, passed_bytes, row_major, spanned
from tuner.experiment.constants import fixed_scalars
from tuner.experiment.contents import follows
from tuner.experiment.model import Argument, Experiment
from tuner.expressions import Expression, ExpressionError, closest
from tuner.expressions.inverse import solve, solve_number
from tuner.expressions.real import RealExpression
from tuner.plan import Shape
from tuner.trial import Value
from workers.loader.port import ArrayView

_STAND_INS = {"bfloat16": "uint16", "float8_e4m3": "uint8", "float8_e5m2": "uint8"}
"""What holds a type's bits in libraries that lack it."""

Scalar = bool | int | float


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of one call by name, and symbols that were given by name."""

    arrays: dict[str, ArrayView] = field(default_factory=dict)
    scalars: dict[str, Scalar] = field(default_factory=dict)
    structs: dict[str, bytes] = field(default_factory=dict)
    symbols: Shape = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Equation:
    """What an argument's extent, number of elements or value says about symbols."""

    argument: str
    given: str
    expression: Expression
    number: int


class _WrongShape(SpecError):
    """An array does not have the extents that follow from the symbols."""


class Signature:
    """The arguments that a call passes, in the kernel's order, and the symbols of its shape.

    Work space and null pointers are not passed. A scalar may be left out if it follows from the
    shape, or has one value only.
    """

    def __init__(self, experiment: Experiment) -> None:
        passed = ("in", "out", "inout", "constant", "scalar", "struct")
        self.arguments = tuple(a for a in experiment.arguments if a.kind in passed)
        self.names = tuple(argument.name for argument in self.arguments)
        self.fixed = {a.name: a for a in fixed_scalars(experiment)}
        self._by_name = {argument.name: argument for argument in self.arguments}
        first = experiment.shapes.tune[0].symbols
        self.symbols = tuple(first)
        self.types = {name for name, value in first.items() if isinstance(value, str)}
        self._elements = {
            a.name: Expression.parse(" * ".join(f"({e.text})" for e in a.shape) or 1)
            for a in self.arguments
        }

    def named(
        self, positional: Sequence[object], by_name: Mapping[str, object]
    ) -> dict[str, object]:
        """The given values by the name of their argument or symbol.

        Raises:
            SpecError: one is unknown, given twice, or missing.
        """
        if len(positional) == len(self.names) and not by_name:
            return dict(zip(self.names, positional, strict=True))
        call = ", ".join(self.names)
        if len(positional) > len(self.names):
            raise SpecError(f"{len(positional)} arguments are given; the kernel takes ({call})")
        given = dict(zip(self.names, positional, strict=False))
        for name, value in by_name.items():
            if name in given:
                raise SpecError(f"argument '{name}' is given twice: by place and by name")
            if name not in self._by_name and name not in self.symbols:
                near = closest(name, (*self.names, *self.symbols))
                hint = f" (did you mean '{near}'?)" if near else ""
                raise SpecError(f"there is no argument '{name}'{hint}; the kernel takes ({call})")
            given[name] = value
        for argument in self.arguments:
            if argument.name not in given and not self.may_lack(argument):
                raise SpecError(f"argument '{argument.name}' is missing; the kernel takes ({call})")
        return given

    def may_lack(self, argument: Argument) -> bool:
        """Whether a call may leave it out."""
        return argument.kind == "scalar" and (
            follows(argument.value) or argument.name in self.fixed
        )

    def unknown_symbols(self) -> tuple[str, ...]:
        """Symbols that a call must name, since they follow from no argument."""
        known = {argument.dtype for argument in self.arguments} & self.types
        while True:
            solved = (solve(one, "v", known) for one in self._every_expression())
            found = next(filter(None, solved), None)
            if found is None:
                return tuple(name for name in self.symbols if name not in known)
            known = known | {found[0]}

    def _every_expression(self) -> Iterator[Expression]:
        for argument in self.arguments:
            yield from argument.shape
            if argument.kind == "scalar" and isinstance(argument.value, Expression):
                yield argument.value

    def shape(self, given: Given) -> Shape:
        """The values of all symbols.

        Raises:
            SpecError: one does not follow from the arguments, or what it follows from is no size.
        """
        known, _ = self._solved(given)
        for name in self.symbols:
            if name not in known:
                raise SpecError(
                    f"the size '{name}' does not follow from the arguments: pass {name}=…"
                )
        return {name: known[name] for name in self.symbols}

    def _solved(self, given: Given) -> tuple[Shape, dict[str, _Equation]]:
        """The symbols that follow, and the equation that each size follows from."""
        known: Shape = dict(given.symbols)
        origins: dict[str, _Equation] = {}
        for name, view in given.arrays.items():
            symbol = self._by_name[name].dtype
            if symbol in self.types and view.dtype:
                known.setdefault(symbol, view.dtype)
        equations = list(self._equations(given))
        while found := next(filter(None, (_solution(one, known) for one in equations)), None):
            name, number, equation = found
            known[name], origins[name] = number, equation
        return known, origins

    def _equations(self, given: Given) -> Iterator[_Equation]:
        for name, view in given.arrays.items():
            if view.dtype:
                words = f"'{name}' of shape {view.shape}"
                own = self._by_name[name].shape
                if len(own) == len(view.shape):
                    for one, extent in zip(own, view.shape, strict=True):
                        yield _Equation(name, words, one, extent)
                yield _Equation(name, words, self._elements[name], math.prod(view.shape))
        for name, value in given.scalars.items():
            expression = self._by_name[name].value
            if isinstance(expression, Expression) and expression.names:
                size = checked_size(name, value)
                yield _Equation(name, f"'{name}' of {value}", expression, size)

    def _disagreement(self, name: str, given: Given, symbols: Shape) -> str | None:
        """Which other argument gives a symbol another value than an array does, if one does."""
        _, origins = self._solved(given)
        for equation in self._equations(given):
            if equation.argument != name:
                continue
            for symbol in self.symbols:
                origin = origins.get(symbol)
                if symbol not in equation.expression.names or not origin:
                    continue
                others = {other: value for other, value in symbols.items() if other != symbol}
                found = solve_number(equation.expression, equation.number, others)
                if origin.argument == name or found is None or found[1] == symbols[symbol]:
                    continue
                if equation.expression.evaluate({**symbols, symbol: found[1]}) == equation.number:
                    first = _told(origin, symbol, symbols, origins)
                    second = _told(equation, symbol, symbols, origins)
                    return (
                        f"arguments '{origin.argument}' and '{name}' disagree about '{symbol}': "
                        f"{first} gives {symbols[symbol]}, {second} gives {found[1]}"
                    )
        return None

    def check(self, given: Given, symbols: Shape) -> None:
        """Compare the arguments with what the spec says for a shape.

        Raises:
            SpecError: naming the argument.
        """
        for name, view in given.arrays.items():
            try:
                self._check_array(self._by_name[name], view, symbols)
            except _WrongShape as error:
                words = self._disagreement(name, given, symbols)
                raise SpecError(words or f"argument '{name}': {error}") from None
            except (SpecError, ExpressionError) as error:
                raise SpecError(f"argument '{name}': {error}") from None
        for name, data in given.structs.items():
            if len(data) != (size := passed_bytes(self._by_name[name], symbols)):
                raise SpecError(f"argument '{name}': {len(data)} bytes are given; it has {size}")
        for name, value in given.scalars.items():
            argument = self._by_name[name]
            dtype = str(symbols.get(argument.dtype, argument.dtype))
            check_number(name, value, dtype)
            if follows(argument.value):
                wanted = own_value(argument, symbols)
                if not math.isclose(value, wanted, rel_tol=_near(argument, dtype)):
                    raise SpecError(
                        f"argument '{name}': {value} is given, but the other arguments make "
                        f"{argument.value} = {wanted}"
                    )

    def _check_array(self, argument: Argument, view: ArrayView, symbols: Shape) -> None:
        dtype = str(symbols.get(argument.dtype, argument.dtype))
        if view.dtype not in ("", dtype, _STAND_INS.get(dtype)):
            raise SpecError(f"its dtype is {view.dtype}, but the kernel takes {dtype}: convert it")
        if argument.is_output and not view.writable:
            raise SpecError("it is read-only, but the kernel writes to it: pass a copy")
        shape, strides = extents(argument, symbols)
        if not view.dtype:
            if view.size < (needed := spanned(shape, strides) * item_bytes(dtype)):
                raise SpecError(f"the buffer has {view.size} bytes; {needed} are needed")
            return
        text = ", ".join(one.text for one in argument.shape)
        if view.shape != shape:
            if math.prod(view.shape) != spanned(shape, strides):
                raise _WrongShape(f"its shape is {view.shape}, but [{text}] is {shape}")
            shape, strides = view.shape, row_major(view.shape)
        steps = zip(shape, view.strides, strides, strict=True)
        if 0 not in shape and any(n > 1 and ours != theirs for n, ours, theirs in steps):
            raise SpecError(
                f"its strides are {view.strides} elements, but the kernel takes {strides}: pass a "
                "contiguous copy"
            )


def checked_size(name: str, value: Scalar) -> int:
    """A size that a caller gives as an argument or by name.

    Raises:
        SpecError: it is no integer of 64 bits.
    """
    if not holds("int64", value):
        raise SpecError(f"argument '{name}': {_shown(value)} is no size")
    return int(value)


def check_number(name: str, value: Scalar, dtype: str) -> None:
    """Raises :class:`SpecError` where the type of a scalar does not hold its value."""
    if not holds(dtype, value):
        raise SpecError(f"argument '{name}': {_shown(value)} is no {dtype}")


def _shown(value: Scalar) -> str:
    """A number for a message; Python prints no integer of more than 4,300 digits."""
    bits = value.bit_length() if isinstance(value, int) else 0
    return str(value) if bits <= 128 else f"an integer of {bits} bits"


def _solution(equation: _Equation, known: Shape) -> tuple[str, int, _Equation] | None:
    """The symbol that an equation determines, its number, and the equation."""
    found = solve_number(equation.expression, equation.number, known)
    return None if found is None else (*found, equation)


def _told(
    equation: _Equation, symbol: str, symbols: Shape, origins: Mapping[str, _Equation]
) -> str:
    """What an equation was told, with the other symbols in it and where each is from."""
    others = [
        f"{name}={symbols[name]} from '{origins[name].argument}'"
        for name in symbols
        if name != symbol and name in equation.expression.names and name in origins
        if origins[name].argument != equation.argument
    ]
    return f"{equation.given} with {' and '.join(others)}" if others else equation.given


def own_value(argument: Argument, symbols: Shape) -> int | float:
    """The value of a scalar that follows from the shape or is fixed."""
    value = argument.value
    if isinstance(value, Expression):
        return int(value.evaluate(symbols))
    assert value is not None
    return value.evaluate(symbols) if isinstance(value, RealExpression) else value


def _near(argument: Argument, dtype: str) -> float:
    """How far a scalar may be from what follows: the caller may compute a fraction in its type."""
    if not isinstance(argument.value, RealExpression):
        return 0.0
    return 1e-6 if dtype in ("float32", "float64") else 4e-3


def extents(argument: Argument, symbols: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents and strides, in elements, of an array on a shape; extents may be 0."""
    shape = tuple(_size(one, symbols) for one in argument.shape)
    if argument.strides:
        return shape, tuple(_size(one, symbols) for one in argument.strides)
    return shape, row_major(shape)


def _size(expression: Expression, symbols: Mapping[str, Value]) -> int:
    value = int(expression.evaluate(symbols))
    if value < 0:
        raise _WrongShape(f"{expression.text} is {value}, below 0")
    return value
