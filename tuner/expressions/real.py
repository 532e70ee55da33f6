"""Expressions over real numbers: scalars that follow from a shape, and metrics.

``+ - * / // **``, ``sqrt exp log min max abs`` over numbers and names, in double precision. Read by
the whitelist of a grammar, never executed. A value that is no finite number is an error.
"""

import ast
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tuner.expressions.tree import MAX_DEPTH, ExpressionError, Kind, described, nearest, read, shown

_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class _Operation:
    """What is computed from ``arity`` numbers, and its C."""

    compute: Callable[..., float]
    c: str
    arity: int = 2


_BINARY: dict[type[ast.operator], _Operation] = {
    ast.Add: _Operation(operator.add, "({} + {})"),
    ast.Sub: _Operation(operator.sub, "({} - {})"),
    ast.Mult: _Operation(operator.mul, "({} * {})"),
    ast.Div: _Operation(operator.truediv, "({} / {})"),
    ast.FloorDiv: _Operation(operator.floordiv, "floor({} / {})"),
    ast.Pow: _Operation(math.pow, "pow({}, {})"),
}
_FUNCTIONS = {
    "sqrt": _Operation(math.sqrt, "sqrt({})", 1),
    "exp": _Operation(math.exp, "exp({})", 1),
    "log": _Operation(math.log, "log({})", 1),
    "abs": _Operation(abs, "fabs({})", 1),
    "min": _Operation(min, "fmin({}, {})"),
    "max": _Operation(max, "fmax({}, {})"),
}
GRAMMAR = f"the grammar of real numbers: + - * / // **, {' '.join(_FUNCTIONS)}"


@dataclass(frozen=True, slots=True)
class RealExpression:
    """An expression over real numbers: immutable, hashable, equal to every other of the same text.

    ``names`` are the symbols and quantities that it reads.
    """

    text: str
    names: frozenset[str]

    @classmethod
    def parse(cls, given: str) -> Self:
        """Read an expression from its text.

        Raises:
            ExpressionError: the text is outside the grammar, too long or too deep.
        """
        text = " ".join(given.split())
        return cls(text, frozenset(_names(_tree(text))))

    def evaluate(self, env: Mapping[str, float | str]) -> float:
        """Its value.

        Raises:
            ExpressionError: it reads a name that ``env`` lacks or that holds a name such as a type,
                or has no finite value here.
        """
        numbers = {name: value for name, value in env.items() if not isinstance(value, str)}
        unbound = sorted(self.names - numbers.keys())
        if unbound:
            hint = nearest(unbound[0], numbers)
            raise ExpressionError(f"{shown(self.text)}: unknown number '{unbound[0]}'{hint}")
        at = ", ".join(f"{name}={numbers[name]:g}" for name in sorted(self.names))
        try:
            value = float(_value(_tree(self.text), numbers))
        except (ArithmeticError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise ExpressionError(f"{shown(self.text)} has no value" + (f" at {at}" if at else ""))
        return value

    def kind(self, strings: Set[str] = frozenset()) -> Kind:
        """``number``; raises :class:`ExpressionError` if it reads one of the names in ``strings``.

        Those hold names, such as types.
        """
        if wrong := sorted(self.names & strings):
            raise ExpressionError(f"'{wrong[0]}' is a name, not a number")
        return "number"

    def to_c(self, rename: Callable[[str], str]) -> str:
        """One C expression of type ``double``; ``rename`` gives that of each name."""
        return _c(_tree(self.text), rename)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "format": "real-expression"}

    @classmethod
    def _validate(cls, given: object) -> Self:
        if isinstance(given, cls):
            return given
        if not isinstance(given, str):
            raise ValueError(f"an expression is text, not {described(given)}")  # noqa: TRY004
        return cls.parse(given)


@lru_cache(maxsize=4096)
def _tree(text: str) -> ast.expr:
    tree = read(text)
    _check(tree, MAX_DEPTH)
    return tree


def _check(tree: ast.expr, depth: int) -> None:
    """Raise :class:`ExpressionError` for the first part outside the grammar."""
    if depth == 0:
        raise ExpressionError(f"expression nested deeper than {MAX_DEPTH} levels")
    match tree:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if not abs(value) <= _LARGEST:
                raise ExpressionError("a number beyond the range of float64")
        case ast.Name(id=name):
            if name in _FUNCTIONS:
                raise ExpressionError(f"{name} is a function: write {name}(…)")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, depth - 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            _check(left, depth - 1)
            _check(right, depth - 1)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in _FUNCTIONS:
                raise ExpressionError(f"unknown function '{name}'{nearest(name, _FUNCTIONS)}")
            if len(arguments) != _FUNCTIONS[name].arity:
                raise ExpressionError(f"{name}() takes {_FUNCTIONS[name].arity} numbers")
            for argument in arguments:
                _check(argument, depth - 1)
        case _:
            raise ExpressionError(f"{shown(ast.unparse(tree))} is outside {GRAMMAR}")


def _names(tree: ast.expr) -> Iterator[str]:
    match tree:
        case ast.Name(id=name):
            yield name
        case ast.Call(args=parts):
            for part in parts:
                yield from _names(part)
        case ast.BinOp(left=left, right=right):
            yield from _names(left)
            yield from _names(right)
        case ast.UnaryOp(operand=operand):
            yield from _names(operand)


def _value(tree: ast.expr, env: Mapping[str, float]) -> float:
    match tree:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return float(env[name])
        case ast.UnaryOp(op=sign, operand=operand):
            value = _value(operand, env)
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)].compute(_value(left, env), _value(right, env))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name].compute(*(_value(one, env) for one in arguments))
    raise AssertionError(tree)


def _c(tree: ast.expr, rename: Callable[[str], str]) -> str:
    match tree:
        case ast.Constant(value=int() | float() as value):
            return repr(float(value))
        case ast.Name(id=name):
            return f"(double){rename(name)}"
        case ast.UnaryOp(op=sign, operand=operand):
            return f"({'-' if isinstance(sign, ast.USub) else '+'}{_c(operand, rename)})"
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)].c.format(_c(left, rename), _c(right, rename))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name].c.format(*(_c(one, rename) for one in arguments))
    raise AssertionError(tree)
