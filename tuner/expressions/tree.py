"""The grammar of expressions: from text to a small immutable tree, and the kind of its value.

Python's parser reads the text and a whitelist converts its tree; nothing is ever executed.
"""

import ast
import difflib
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tuner.device import EXPRESSION_ATTRIBUTES
from tuner.errors import SpecError
from tuner.trial import Value

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
MAX_LENGTH = 2000
MAX_DEPTH = 40

Kind = Literal["number", "name"]
"""A number (bools are 0 and 1), or a name such as an enum member."""


class ExpressionError(SpecError, ValueError):
    """An expression that cannot be parsed, or has no value at a point."""


@dataclass(frozen=True, slots=True)
class Const:
    """A literal."""

    value: Value


@dataclass(frozen=True, slots=True)
class Name:
    """A parameter or a symbol."""

    name: str


@dataclass(frozen=True, slots=True)
class DeviceAttribute:
    """``device.<name>``."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator or function of operands that are all evaluated."""

    operator: str
    operands: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Comparisons in a row, ``first < second <= third``, stopping at the first that fails."""

    operators: tuple[str, ...]
    operands: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """``and`` or ``or``: short-circuits, and yields a bool."""

    operator: Literal["and", "or"]
    operands: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """``then if condition else otherwise``: only the chosen side is evaluated."""

    condition: "Node"
    then: "Node"
    otherwise: "Node"


Node = Const | Name | DeviceAttribute | Apply | Chain | Logic | Choice

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_ARITY: dict[str, tuple[int, int]] = {
    "min": (1, 16),
    "max": (1, 16),
    "abs": (1, 1),
    "ceil_div": (2, 2),
    "round_up": (2, 2),
    "log2": (1, 1),
}
FUNCTIONS = tuple(_ARITY)
RESERVED = frozenset({*FUNCTIONS, "device", "True", "False", "true", "false"})
"""Names that no parameter and no symbol may take."""

_HINTS = (
    (re.compile(r"&&"), "write 'and' for '&&'"),
    (re.compile(r"\|\|"), "write 'or' for '||'"),
    (re.compile(r"!(?!=)"), "write 'not' for '!'"),
    (re.compile(r"\?"), "write 'a if c else b' for 'c ? a : b'"),
    (re.compile(r"(?<![<>=!])=(?!=)"), "write '==' to compare"),
)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word most similar to ``word``, if any is similar."""
    matches = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the closest known word, else nothing."""
    match = closest(word, known)
    return f"; did you mean '{match}'?" if match else ""


def parse(text: str) -> Node:
    """The tree of ``text``; raises :class:`ExpressionError` with the reason if it is malformed."""
    return _convert(read(text), MAX_DEPTH)


def read(text: str) -> ast.expr:
    """Python's tree of ``text``, of any grammar; raises as :func:`parse`."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expression of {len(text)} characters; at most {MAX_LENGTH}")
    if not text:
        raise ExpressionError("empty expression")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        hint = next((hint for pattern, hint in _HINTS if pattern.search(text)), reason)
        raise ExpressionError(f"cannot read the expression {shown(text)}: {hint}") from None
    return tree.body


def shown(text: str) -> str:
    """``text`` in quotes, shortened for a message."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def described(given: object) -> str:
    """Data of a file for a message: what it is, or a plain value itself."""
    if isinstance(given, dict):
        return "a mapping"
    if isinstance(given, list | tuple):
        return "a list"
    if given is None:
        return "nothing"
    if isinstance(given, bool):
        return str(given).lower()
    text = repr(given)
    return text if len(text) <= 60 else text[:57] + "..."


def constant(value: Value) -> Const:
    """A literal, checked: integers fit 64 bits, strings are printable and short."""
    if isinstance(value, str):
        if len(value) > 100 or not value.isprintable():
            raise ExpressionError("a name in quotes has at most 100 printable characters")
    elif not INT_MIN <= value <= INT_MAX:
        raise ExpressionError("an integer beyond 64 bits")
    return Const(value)


def _convert(tree: ast.expr, depth: int) -> Node:
    if depth == 0:
        raise ExpressionError(f"expression nested deeper than {MAX_DEPTH} levels")
    match tree:
        case ast.Constant(value=bool() | int() | str() as value):
            return constant(value)
        case ast.Constant(value=float()):
            raise ExpressionError("expressions are over integers; no fractions")
        case ast.Name(id=name):
            return Name(name)
        case ast.Attribute(value=ast.Name(id="device"), attr=name):
            if name not in EXPRESSION_ATTRIBUTES:
                raise ExpressionError(
                    f"device has no '{name}'" + nearest(name, EXPRESSION_ATTRIBUTES)
                )
            return DeviceAttribute(name)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)) if not (
            isinstance(number, bool)
        ):
            return constant(-number)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not() as sign, operand=operand):
            operator = {ast.USub: "neg", ast.UAdd: "pos", ast.Not: "not"}[type(sign)]
            return Apply(operator, (_convert(operand, depth - 1),))
        case ast.BinOp(left=left, op=op, right=right):
            if isinstance(op, ast.Div):
                raise ExpressionError("'/' has no integer meaning; write '//' or ceil_div(a, b)")
            if type(op) not in _BINARY:
                raise ExpressionError(_refusal(tree))
            return Apply(_BINARY[type(op)], (_convert(left, depth - 1), _convert(right, depth - 1)))
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[listed]):
            if not isinstance(listed, ast.Tuple | ast.List | ast.Set) or not listed.elts:
                raise ExpressionError("'in' needs a list of values on its right, as in (1, 2)")
            items = tuple(_convert(item, depth - 1) for item in listed.elts)
            found = Apply("in", (_convert(left, depth - 1), *items))
            return Apply("not", (found,)) if isinstance(op, ast.NotIn) else found
        case ast.Compare(left=left, ops=ops, comparators=others):
            if not all(type(op) in _COMPARE for op in ops):
                raise ExpressionError("compare with == != < <= > >=, or 'in' on its own")
            return Chain(
                tuple(_COMPARE[type(op)] for op in ops),
                tuple(_convert(operand, depth - 1) for operand in (left, *others)),
            )
        case ast.BoolOp(op=op, values=values):
            return Logic(
                "and" if isinstance(op, ast.And) else "or",
                tuple(_convert(value, depth - 1) for value in values),
            )
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return Choice(*(_convert(part, depth - 1) for part in (test, body, orelse)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name, arguments, depth)
    raise ExpressionError(_refusal(tree))


def _call(name: str, arguments: list[ast.expr], depth: int) -> Node:
    if name not in _ARITY:
        raise ExpressionError(f"unknown function '{name}'" + nearest(name, FUNCTIONS))
    low, high = _ARITY[name]
    if not low <= len(arguments) <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        raise ExpressionError(f"{name}() takes {wanted} arguments, not {len(arguments)}")
    return Apply(name, tuple(_convert(argument, depth - 1) for argument in arguments))


def _refusal(tree: ast.expr) -> str:
    try:
        text = shown(ast.unparse(tree))
    except RecursionError:
        text = f"a {type(tree).__name__}"
    return f"{text} is outside the grammar of expressions"


def walk(node: Node) -> Iterator[Node]:
    """The node and all its descendants."""
    yield node
    match node:
        case Apply(operands=operands) | Chain(operands=operands) | Logic(operands=operands):
            children = operands
        case Choice(condition, then, otherwise):
            children = (condition, then, otherwise)
        case _:
            return
    for child in children:
        yield from walk(child)


def name_literals(node: Node) -> Iterator[tuple[str, str]]:
    """Each (name, literal) of a name compared with a literal name in quotes."""
    for part in walk(node):
        if isinstance(part, Chain):
            pairs = list(zip(part.operands, part.operands[1:], strict=False))
        elif isinstance(part, Apply) and part.operator == "in":
            pairs = [(part.operands[0], item) for item in part.operands[1:]]
        else:
            continue
        for pair in pairs:
            match pair:
                case (Name(name), Const(str() as text)) | (Const(str() as text), Name(name)):
                    yield name, text


def kind(node: Node, strings: frozenset[str]) -> Kind:
    """The kind of the tree's value, where the names in ``strings`` hold names.

    Raises:
        ExpressionError: An operator meets a kind that it does not take, reached or not.
    """
    match node:
        case Const(value):
            return "name" if isinstance(value, str) else "number"
        case Name(name):
            return "name" if name in strings else "number"
        case DeviceAttribute(name):
            return "name" if name == "name" else "number"
        case Apply("in", (first, *items)):
            for item in items:
                _comparable("in", kind(first, strings), kind(item, strings))
            return "number"
        case Apply(operator, operands) | Logic(operator, operands):
            for operand in operands:
                _number(operator, operand, strings)
            return "number"
        case Chain(operators, operands):
            kinds = [kind(operand, strings) for operand in operands]
            for operator, left, right in zip(operators, kinds, kinds[1:], strict=False):
                _comparable(operator, left, right)
            return "number"
        case Choice(condition, then, otherwise):
            _number("if", condition, strings)
            result = kind(then, strings)
            if kind(otherwise, strings) != result:
                raise ExpressionError("both sides of 'if … else' must be numbers, or both names")
            return result


def _number(operator: str, operand: Node, strings: frozenset[str]) -> None:
    if kind(operand, strings) == "name":
        sign = {"neg": "-", "pos": "+"}.get(operator, operator)
        raise ExpressionError(f"'{sign}' takes numbers, not names")


def _comparable(operator: str, left: Kind, right: Kind) -> None:
    if left != right:
        raise ExpressionError(f"'{operator}' between a name and a number")
    if left == "name" and operator not in ("==", "!=", "in"):
        raise ExpressionError(f"names have no order: '{operator}' takes numbers")
