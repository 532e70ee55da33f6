"""What a host expression computes, as a value over the sizes that a kernel is given.

Follows local variables, constants, macros, helper functions of one statement, and the callers of a
wrapper. A name whose value depends on the input becomes a size of that name.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from tuner.csource import host_locals
from tuner.csource.arithmetic import Polynomial, applied, ceil_div, remainder
from tuner.csource.host_program import Function, HostProgram, bound, called, split
from tuner.csource.host_types import class_bindings, type_bytes
from tuner.csource.number_literals import whole_number
from tuner.csource.tree import Tree, parse_expression

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_STEPS = 24
"""Names and calls followed in a row."""

MAX_WORK = 2000
"""Expressions parsed, each in about 0.1 ms, and their nodes read, for one value."""

MAX_LENGTH = 1000
MAX_FACTOR = 2**64
"""A value written with more characters, or with a larger number in it, is unknown."""

MAX_CALLERS = 4

MAX_LAUNCHED = 2**31 - 1
"""What a launch takes along an axis, and as bytes, at most."""

_CAST = re.compile(r"(?:static_cast|reinterpret_cast|const_cast|int|unsigned|float|double|\w+_t)")
_FLOATING = re.compile(r"\b(?:float|double)\b|(?<![\w.])(?:\d+\.|\.\d)")
_CEIL_DIV = re.compile(r"(?:i?ceil_?div|div_?up|idivup|cdiv|div_?round_?up|ceildiv)", re.IGNORECASE)
_BINARY = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": remainder,
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression stands.

    ``local`` is the function's code before it, ``known`` the values of names, ``types`` the dtypes
    or C types of names. With ``opaque``, a name without a value becomes a size; else there is none.
    """

    program: HostProgram
    function: Function | None = None
    local: str = ""
    known: Mapping[str, Polynomial] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    opaque: bool = True

    def value(self, text: str) -> Polynomial | None:
        """The value of an expression, or ``None`` if it is not understood."""
        try:
            return _Evaluator(self, MAX_STEPS).text(text)
        except (_BeyondBoundsError, RecursionError):
            return None

    def axes(self, text: str) -> tuple[Polynomial, ...] | None:
        """The values of a ``dim3``, or of the integer that stands for one.

        ``None`` if one is not understood or is more than a launch takes.
        """
        listed = _axes(text, self, MAX_STEPS)
        values = [self.value(part) for part in ([text] if listed is None else listed)]
        found = [v for v in values if v is not None and (v.constant or 0) <= MAX_LAUNCHED]
        if not values or len(found) < len(values):
            return None
        while len(found) > 1 and found[-1].constant == 1:
            found.pop()
        return tuple(found)

    def definition(self, name: str) -> str | None:
        """What a local variable was last set to, as written."""
        return host_locals.definition(name, self.local)

    def varies(self, name: str) -> bool:
        """Whether a local variable is stepped, as a loop's counter is."""
        return host_locals.varies(name, self.local)

    def size(self, type_: str) -> int | None:
        """The bytes of a type."""
        value = self.value(f"sizeof({type_})")
        return None if value is None else value.constant

    def number(self, text: str) -> int | None:
        """The value of an expression if the application fixes it, through its callers too."""
        fixed = replace(self, known=_fixed(self.known), opaque=False)
        value = fixed.value(text)
        return None if value is None else value.constant


def _fixed(known: Mapping[str, Polynomial]) -> dict[str, Polynomial]:
    return {name: value for name, value in known.items() if value.constant is not None}


def _axes(text: str, scope: Scope, steps: int) -> list[str] | None:
    """The parts of a ``dim3``: ``None`` if the text is no such thing."""
    text = text.strip()
    if not steps:
        return None
    if found := re.fullmatch(r"dim3\s*[({](.*)[)}]", text, re.DOTALL):
        return list(split(found[1]))
    if found := re.fullmatch(r"\{(.*)\}", text, re.DOTALL):
        return list(split(found[1]))
    if not re.fullmatch(r"[A-Za-z_]\w*", text):
        return None
    local = scope.local
    members = [host_locals.member(text, axis, local) for axis in "xyz"]
    whole = _whole(text, scope, steps)
    if not any(members):
        return whole
    return [one or part or "1" for one, part in zip_longest(members, whole or ())]


def _whole(text: str, scope: Scope, steps: int) -> list[str] | None:
    """The parts that a name of a ``dim3`` was defined with."""
    local = scope.local
    definition = host_locals.definition(text, local)
    is_dim3 = re.search(rf"\bdim3\s+(?:[^;]*,\s*)?{re.escape(text)}\b", local)
    if definition is None:
        body = scope.program.definition(text)
        return _axes(body, scope, steps - 1) if body else None
    if is_dim3:
        return _axes(definition, scope, steps - 1) or list(split(definition))
    return _axes(definition, scope, steps - 1)


class _BeyondBoundsError(Exception):
    """A bound of this module is reached: the whole value is unknown."""


class _Evaluator:
    """Evaluates in one scope, following at most ``steps`` names and calls.

    All scopes of one evaluation share its ``work``; ``names`` has the values found in this one.
    """

    def __init__(
        self,
        scope: Scope,
        steps: int,
        work: Iterator[int] | None = None,
        names: dict[str, Polynomial | None] | None = None,
    ) -> None:
        self._scope, self._steps = scope, steps
        self._work = iter(range(MAX_WORK)) if work is None else work
        self._names = {} if names is None else names

    def text(self, text: str) -> Polynomial | None:
        if not text.strip() or len(text) > 2000:
            return None
        if self._steps <= 0:
            raise _BeyondBoundsError
        self._spend()
        parsed = parse_expression(text)
        return self._node(*parsed) if parsed else None

    def _inner(self, text: str, scope: Scope | None = None) -> Polynomial | None:
        names = self._names if scope is None else None
        return _Evaluator(scope or self._scope, self._steps - 1, self._work, names).text(text)

    def _spend(self) -> None:
        if next(self._work, None) is None:
            raise _BeyondBoundsError

    def _node(self, node: "Node", tree: Tree) -> Polynomial | None:
        self._spend()
        value = self._read(node, tree)
        if value is not None and (
            any(abs(factor) > MAX_FACTOR for factor in value.terms.values())
            or len(str(value)) > MAX_LENGTH
        ):
            raise _BeyondBoundsError
        return value

    def _read(self, node: "Node", tree: Tree) -> Polynomial | None:
        text = tree.text(node)
        match node.type:
            case "number_literal":
                try:
                    number = whole_number(text)
                except OverflowError:
                    raise _BeyondBoundsError from None
                return None if number is None else Polynomial.number(number)
            case "true" | "false":
                return Polynomial.number(int(text == "true"))
            case "identifier" | "field_expression":
                return self._name(re.sub(r"\s", "", text))
            case "qualified_identifier":
                class_, _, name = text.rpartition("::")
                return self._member(class_, name) or self._name(name)
            case "parenthesized_expression":
                return self._node(node.named_children[0], tree) if node.named_children else None
            case "cast_expression":
                value = node.child_by_field_name("value")
                return self._node(value, tree) if value else None
            case "initializer_list" if len(node.named_children) == 1:
                return self._node(node.named_children[0], tree)
            case "sizeof_expression":
                return self._size(re.sub(r"^sizeof\s*\(?|\)$|\bconst\b", "", text).strip())
            case "binary_expression":
                return self._binary(node, tree)
            case "conditional_expression":
                return self._choice(node, tree)
            case "call_expression":
                return self._call(node, tree)
            case "unary_expression" if text.startswith("-"):
                negated = self._node(node.named_children[0], tree)
                return None if negated is None else Polynomial() - negated
        return None

    def _binary(self, node: "Node", tree: Tree) -> Polynomial | None:
        left, right = (node.child_by_field_name(side) for side in ("left", "right"))
        operator = node.child_by_field_name("operator")
        if left is None or right is None or operator is None:
            return None
        a, b = self._node(left, tree), self._node(right, tree)
        if a is None or b is None:
            return None
        sign = tree.text(operator)
        if sign in ("<<", ">>") and b.constant is not None and 0 <= b.constant < 62:
            power = Polynomial.number(1 << b.constant)
            return a * power if sign == "<<" else a // power
        if sign == "/" and b == Polynomial():
            return None
        return _BINARY[sign](a, b) if sign in _BINARY else None

    def _choice(self, node: "Node", tree: Tree) -> Polynomial | None:
        condition = node.child_by_field_name("condition")
        parts = [node.child_by_field_name(name) for name in ("consequence", "alternative")]
        values = [self._node(part, tree) for part in parts if part is not None]
        if condition is not None and len(values) == 2 and None not in values:
            text = tree.text(condition).strip("() ")
            found = re.fullmatch(r"(\w+)\s*(<|<=|>|>=|==)\s*(\w+)", text)
            sides = [self._inner(found[1]), self._inner(found[3])] if found else [None]
            if found and None not in sides:
                known = [side.constant for side in sides if side is not None]
                if None not in known:
                    return values[0 if _holds(known, found[2]) else 1]
                return Polynomial.atom(
                    f"({values[0]} if {sides[0]} {found[2]} {sides[1]} else {values[1]})"
                )
        return values[0] if values else None

    def _size(self, type_: str) -> Polynomial | None:
        type_ = self._scope.types.get(type_, type_).rpartition("::")[2]
        size = type_bytes(self._scope.program, type_, self._scope.types)
        return None if size is None else Polynomial.number(size)

    def _member(self, class_: str, name: str) -> Polynomial | None:
        """A constant of a class; of an instance, with the template's arguments in place."""
        types = {**self._scope.types, **class_bindings(self._scope.program, class_)}
        constant = self._scope.program.constant(name)
        scope = Scope(self._scope.program, types=types, opaque=False)
        return self._inner(constant, scope) if constant else None

    def _call(self, node: "Node", tree: Tree) -> Polynomial | None:
        call, listed = called(node, tree), node.child_by_field_name("arguments")
        if call is None or listed is None:
            return None
        name, given = call
        if _CAST.fullmatch(name) and len(given) == 1:
            return self._inner(given[0])
        program = self._scope.program
        macro = program.macros.get(name)
        if macro and macro.parameters is not None:
            return self._inner(bound(macro.body, macro.parameters, given))
        if name in ("ceil", "ceilf") and len(listed.named_children) == 1:
            return self._rounded_up(listed.named_children[0], tree)
        if name in ("gcd", "__gcd") and given:
            return self._inner(given[0])  # a vector's width and a size: the width where it divides
        values = [self._inner(text) for text in given]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        if name in ("min", "max", "fmin", "fmax") and known:
            return applied(name.removeprefix("f"), *known)
        if (_CEIL_DIV.fullmatch(name) or name == "ceil_div") and len(known) == 2:
            return ceil_div(*known)
        if name in ("floor", "size_t", "next_power_of_2") and len(known) == 1:
            return known[0]
        for helper in program.functions:
            if helper.name == name and len(helper.parameters) == len(given):
                body = program.code[helper.file][slice(*helper.body)]
                returned = re.fullmatch(r"\{\s*return\b([^;{}]*);\s*\}", body)
                if returned:
                    values_of = dict(zip(helper.parameters, known, strict=True))
                    return self._inner(returned[1], Scope(program, known=values_of))
        return None

    def _rounded_up(self, node: "Node", tree: Tree) -> Polynomial | None:
        """The value of ``ceil``; a quotient of integers was rounded down before."""
        while node.type == "parenthesized_expression" and node.named_children:
            node = node.named_children[0]
        sides = [node.child_by_field_name(side) for side in ("left", "operator", "right")]
        left, sign, right = (tree.text(side) if side else "" for side in sides)
        if sign != "/" or not _FLOATING.search(f"{left}/{right}"):
            return self._node(node, tree)
        a, b = self._inner(left), self._inner(right)
        return None if a is None or b is None or b == Polynomial() else ceil_div(a, b)

    def _name(self, name: str) -> Polynomial | None:
        scope = self._scope
        if name in scope.known:
            return scope.known[name]
        if name not in self._names:
            self._names[name] = self._unresolved(name)  # what it stands for within itself
            self._names[name] = self._resolved(name)
        return self._names[name]

    def _unresolved(self, name: str) -> Polynomial | None:
        plain = re.sub(r"\W+", "_", name)
        return Polynomial.atom(plain) if self._scope.opaque else None

    def _resolved(self, name: str) -> Polynomial | None:
        scope = self._scope
        definition = scope.definition(name)
        if definition is not None and definition != name and not scope.varies(name):
            value = self._inner(definition)
            if value is not None:
                return value
        elif definition is None and name not in self._parameters():
            text = scope.program.definition(name)
            if text and (value := self._inner(text)) is not None:
                return value
        if definition is None:
            if (value := self._dispatched(name) or self._from_callers(name)) is not None:
                return value
            if (value := self._axis(name)) is not None:
                return value
        return self._unresolved(name)

    def _parameters(self) -> tuple[str, ...]:
        function = self._scope.function
        return (*function.parameters, *function.template) if function else ()

    def _axis(self, name: str) -> Polynomial | None:
        """The member of a ``dim3``."""
        whole, dot, axis = name.partition(".")
        listed = _axes(whole, self._scope, self._steps - 1) if dot and axis in "xyz" else None
        if listed is None:
            return None
        number = "xyz".index(axis)
        return self._inner(listed[number]) if number < len(listed) else Polynomial.number(1)

    def _dispatched(self, name: str) -> Polynomial | None:
        """The value that a macro such as ``DISPATCH(value, NAME, {…})`` gives a name."""
        found = re.findall(
            rf"\b[A-Z_0-9]+\s*\(([^(),]+),\s*{re.escape(name)}\s*,", self._scope.local
        )
        return self._inner(found[-1]) if found else None

    def _from_callers(self, name: str) -> Polynomial | None:
        """What the callers of the enclosing function pass, if the first to fix it does."""
        scope = self._scope
        function = scope.function
        if function is None or scope.opaque:
            return None
        for call in scope.program.calls(function.name)[:MAX_CALLERS]:
            caller = scope.program.enclosing(call.file, call.place)
            for names, given in (
                (function.parameters, call.arguments),
                (function.template, call.template),
            ):
                number = names.index(name) if name in names else len(given)
                if number >= len(given) or caller is None or caller == function:
                    continue
                local = scope.program.code[call.file][caller.body[0] : call.place]
                program = scope.program.seen_from(call.file)
                there = Scope(program, caller, local, opaque=False)
                if (value := self._inner(given[number], there)) is not None:
                    return value
        return None


def _holds(sides: "list[int | None]", sign: str) -> bool:
    a, b = sides
    assert a is not None
    assert b is not None
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b}[sign]
