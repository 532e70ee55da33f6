"""Expressions: the small language in which launches, constraints, shapes and costs are written.

Exact 64-bit integers, bools and names over parameters, symbols and ``device.<limit>``:
``+ - * // % **``, comparisons and ``in``, ``and or not`` (yielding bools), ``a if c else b``, and
``min max abs ceil_div round_up log2`` (``log2`` rounds down). A whitelisted grammar, never
executed. An expression is *ill-typed* everywhere (a name in place of a number, an unknown name), or
*undefined* at a point (division by zero, overflow) if evaluation reaches the operation.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

import numpy as np
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tuner.device import Device
from tuner.expressions import c, fold, mask, postfix, scalar, tree
from tuner.expressions.c import C_HELPERS
from tuner.expressions.mask import Bools, Column, Values
from tuner.expressions.tree import (
    RESERVED,
    ExpressionError,
    Kind,
    closest,
    described,
    nearest,
    shown,
)
from tuner.trial import Value

__all__ = [
    "C_HELPERS",
    "RESERVED",
    "Expression",
    "ExpressionError",
    "Kind",
    "closest",
    "described",
    "nearest",
    "shown",
]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: immutable, hashable, equal to every other of the same text.

    ``names`` are the parameters and symbols that it reads, ``device_names`` the limits it reads as
    ``device.<name>``.
    """

    text: str
    names: frozenset[str] = field(compare=False)
    device_names: frozenset[str] = field(compare=False)
    root: tree.Node = field(compare=False)

    @classmethod
    def parse(cls, given: Value) -> Self:
        """Read an expression from its text, or take an integer or a bool as a constant.

        Raises:
            ExpressionError: The text is outside the grammar, too long or too deep.
        """
        if not isinstance(given, str):
            return cls.constant(given)
        text = " ".join(given.split())
        return cls._of(tree.parse(text), text)

    @classmethod
    def constant(cls, value: Value) -> Self:
        """The expression that is ``value`` everywhere: a number, or a name."""
        return cls._of(tree.constant(value), repr(value))

    @classmethod
    def _of(cls, root: tree.Node, text: str) -> Self:
        nodes = list(tree.walk(root))
        number = _number(root)
        return cls(
            text if number is None else str(number),
            frozenset(node.name for node in nodes if isinstance(node, tree.Name)),
            frozenset(node.name for node in nodes if isinstance(node, tree.DeviceAttribute)),
            root,
        )

    def kind(self, strings: Set[str] = frozenset()) -> Kind:
        """Whether it yields numbers or names, where the names in ``strings`` hold names.

        Raises:
            ExpressionError: It is ill-typed.
        """
        return _kind(self, self.names & strings)

    def evaluate(self, env: Mapping[str, Value], device: Device | None = None) -> Value:
        """Its value at one point.

        Raises:
            ExpressionError: A name is unbound, the expression is ill-typed, reads the device when
                there is none, or is undefined here.
        """
        if isinstance(self.root, tree.Const):  # as most sizes of most launches
            return self.root.value
        self._check(env, device, lambda value: isinstance(value, str))
        try:
            return scalar.evaluate(self.root, env, device)
        except ExpressionError as error:
            at = ", ".join(f"{name}={env[name]}" for name in sorted(self.names))
            raise ExpressionError(
                f"{tree.shown(self.text)}: {error}" + (f" at {at}" if at else "")
            ) from None

    def mask(
        self, columns: Mapping[str, Column], device: Device | None, length: int
    ) -> tuple[Values, Bools]:
        """Its values at ``length`` points, and which of them are defined.

        Args:
            columns: For each name an array of shape ``[length]`` (integers, bools, or names as a
                NumPy string array), or one value for all points.
            device: What ``device.<name>`` reads.
            length: The number of points.

        Returns:
            ``(values, valid)``, both of shape ``[length]``; where not valid, the value is 0, False
            or the empty name. At every point this is what :meth:`evaluate` says there.

        Raises:
            ExpressionError: As :meth:`evaluate`, save for what is undefined at single points.
        """
        self._check(columns, device, _holds_names)
        values, valid = mask.evaluate(self.root, columns, device)
        valid = np.broadcast_to(valid, (length,))
        values = np.broadcast_to(values, (length,))
        return np.where(valid, values, np.zeros((), values.dtype)), valid

    def _check(
        self, bound: Mapping[str, Any], device: Device | None, is_name: Callable[[Any], bool]
    ) -> None:
        if unbound := self.names - bound.keys():
            name = min(unbound)
            hint = nearest(name, bound)
            raise ExpressionError(f"{tree.shown(self.text)}: unknown name '{name}'{hint}")
        if device is None and self.device_names:
            raise ExpressionError(f"{tree.shown(self.text)} needs a device")
        try:
            self.kind({name for name in self.names if is_name(bound[name])})
        except ExpressionError as error:
            raise ExpressionError(f"{tree.shown(self.text)}: {error}") from None

    def bind(self, values: Mapping[str, Value], device: Device | None = None) -> "Expression":
        """The same expression with some names replaced by their values, and the device's if given.

        What is then constant is folded, unless it is undefined.
        """
        root = fold.substitute(self.root, values, device)
        return Expression._of(root, fold.unparse(root))

    def name_literals(self) -> frozenset[tuple[str, str]]:
        """Each pair (name, literal) of a parameter or symbol compared with a name in quotes."""
        return frozenset(tree.name_literals(self.root))

    def to_c(self, rename: Callable[[str], str] = str) -> str:
        """One C expression of type ``long long`` or ``int`` that calls :data:`C_HELPERS`.

        ``rename`` gives each name's C expression. Rounds as the original for operands of any sign;
        errors are not detected: see :meth:`to_c_defined`. Names and device limits have no C form:
        :meth:`bind` them first.

        Raises:
            ExpressionError: It still holds a name literal or reads the device.
        """
        return c.render(self.root, rename)

    def to_c_defined(self, rename: Callable[[str], str] = str) -> str:
        """A C condition: whether evaluation reaches nothing undefined; empty if it never does.

        It calls :data:`C_HELPERS`. Raises as :meth:`to_c`.
        """
        return c.render_defined(self.root, rename)

    def to_postfix(self, variable: Callable[[str], str]) -> list[str]:
        """The words of a postfix program (see :mod:`tuner.expressions.postfix`).

        ``variable`` gives each name's word. Names and device limits have no form: :meth:`bind` them
        first.

        Raises:
            ExpressionError: It still holds a name literal or reads the device.
        """
        return postfix.render(self.root, variable)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(cls._plain),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": ["string", "integer", "boolean"]}

    @classmethod
    def _validate(cls, given: object) -> Self:
        if isinstance(given, cls):
            return given
        if not isinstance(given, bool | int | str):
            kind = "a fraction" if isinstance(given, float) else described(given)
            raise ValueError(f"an expression is text, an integer, true or false, not {kind}")  # noqa: TRY004
        return cls.parse(given)

    def _plain(self) -> Value:
        number = _number(self.root)
        return self.text if number is None else number


def _number(node: tree.Node) -> bool | int | None:
    match node:
        case tree.Const(bool() | int() as value):
            return value
    return None


def _holds_names(column: Column) -> bool:
    return isinstance(column, str) or (isinstance(column, np.ndarray) and column.dtype.kind == "U")


@lru_cache(maxsize=4096)
def _kind(expression: Expression, strings: frozenset[str]) -> Kind:
    return tree.kind(expression.root, strings)
