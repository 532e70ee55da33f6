"""Bounds of a kernel's index expressions: guesses that hold where indices are not negative.

A thread's or block's index has the launch's extent as its bound, another variable the comparison
that guards it, or else the bound of what it was set to.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.csource.arithmetic import Polynomial
from tuner.csource.host_program import bound, called
from tuner.csource.host_values import Scope
from tuner.csource.tree import Tree, parse_expression

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_NAMES = 12
"""Names set to names that are followed in a row."""

ONE = Polynomial.number(1)
_LEAVING = re.compile(r"[^;{}]{0,500}\)\s*\{?\s*(?:return|continue|break)\b")
_TRANSPARENT = frozenset("min static_cast int int64_t size_t uint32_t uint64_t __umul24".split())


class IndexBounds:
    """Exclusive bounds in one function's body.

    Args:
        scope: the body, and the values that all threads agree on.
        known: bounds of names.
    """

    def __init__(self, scope: Scope, known: Mapping[str, Polynomial]) -> None:
        self._scope, self._known = scope, known
        self._resolving: set[str] = set()
        self._found: dict[str, Polynomial | None] = {}

    def of(self, node: "Node", tree: Tree) -> Polynomial | None:
        """The bound of an expression, or ``None`` if there is none to be seen."""
        if node.type in ("identifier", "field_expression"):
            return self._of_name(re.sub(r"\s", "", tree.text(node)))
        value = self._scope.value(tree.text(node))
        if value is not None:
            return value + ONE
        match node.type:
            case "parenthesized_expression" if node.named_children:
                return self.of(node.named_children[0], tree)
            case "cast_expression":
                return self._of_part(node, "value", tree)
            case "subscript_expression":
                array = node.child_by_field_name("argument")
                return self._known.get(f"{tree.text(array)}[]") if array else None
            case "conditional_expression":
                return self._of_part(node, "consequence", tree)
            case "call_expression":
                return self._of_call(node, tree)
            case "binary_expression":
                return self._of_binary(node, tree)
        return None

    def of_text(self, text: str) -> Polynomial | None:
        """As :meth:`of`, of an expression's code."""
        parsed = parse_expression(text)
        return self.of(*parsed) if parsed else None

    def _of_part(self, node: "Node", part: str, tree: Tree) -> Polynomial | None:
        inner = node.child_by_field_name(part)
        return self.of(inner, tree) if inner else None

    def _of_call(self, node: "Node", tree: Tree) -> Polynomial | None:
        call = called(node, tree)
        if call is None:
            return None
        name, given = call
        macro = self._scope.program.macros.get(name)
        if macro and macro.parameters is not None and name not in macro.body:
            return self.of_text(bound(macro.body, macro.parameters, given))
        if name == "__umul24" and len(given) == 2:
            return self.of_text(f"({given[0]}) * ({given[1]})")
        return self.of_text(given[0]) if name in _TRANSPARENT and given else None

    def _of_binary(self, node: "Node", tree: Tree) -> Polynomial | None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = node.child_by_field_name("operator")
        if left is None or right is None or operator is None:
            return None
        sign, by = tree.text(operator), self._scope.value(tree.text(right))
        if sign == "%":
            return by
        if sign == "&" and by is not None and by.constant is not None:
            return by + ONE
        a = self.of(left, tree)
        if a is None or sign == "-":
            return a
        if sign in (">>", "<<") and by is not None and by.constant is not None:
            by = Polynomial.number(1 << min(by.constant, 62))
        if sign in ("/", ">>"):
            return (a - ONE) // by + ONE if by is not None and by.terms else None
        if sign == "<<":
            return (a - ONE) * by + ONE if by is not None else None
        b = self.of(right, tree)
        if b is None or sign not in ("+", "|", "*"):
            return None
        return (a - ONE) * (b - ONE) + ONE if sign == "*" else a + b - ONE

    def _of_name(self, name: str) -> Polynomial | None:
        if name in self._known:
            return self._known[name]
        if not self._resolving:
            if name not in self._found:
                self._found[name] = self._resolved(name)
            return self._found[name]
        return self._resolved(name)

    def _resolved(self, name: str) -> Polynomial | None:
        """The bound of a name; ``None`` too for one that is being resolved."""
        if name in self._resolving or len(self._resolving) >= MAX_NAMES:
            return None
        self._resolving.add(name)
        try:
            value = self._scope.value(name)
            if value is not None:
                return value + ONE
            definition = self._scope.definition(name)
            defined = self.of_text(definition) if definition else None
            guard = self._guard(name)
            if guard is None:
                return None if self._scope.varies(name) else defined
            small = guard.constant is not None and defined and defined.constant is not None
            return defined if small and not self._scope.varies(name) else guard
        finally:
            self._resolving.discard(name)

    def _guard(self, name: str) -> Polynomial | None:
        """The first comparison that bounds a variable by something with a bound itself."""
        code = self._scope.local
        word = rf"(?<![\w.]){re.escape(name)}\s*"
        stays = rf"{word}(?P<sign><=?)(?![<=])\s*(?P<bound>[^;&|?<>=,]+)"
        bound = r"(?P<bound>[^;&|?<>={}]+?)(?:\|\|[^;{}]*)?\)\s*{?\s*(?:return|continue|break)\b"
        leaves = rf"{word}(?P<sign>>=)\s*{bound}"
        for found in (*re.finditer(stays, code), *re.finditer(leaves, code)):
            text = _balanced(found["bound"])
            end = found.start("bound") + len(text)
            if code[end:].lstrip(" )")[:1] == "?":
                continue  # a choice guards one of its sides only
            if "<" in found["sign"] and _LEAVING.match(code, end):
                continue  # what stays is not below this
            value = self._scope.value(text)
            if value is not None and value.constant == 0:
                continue
            if value is not None:
                return self._stepped(name, value + ONE if found["sign"] == "<=" else value)
            largest = self.of_text(text)
            if largest is not None and "<" in found["sign"]:
                return largest if found["sign"] == "<=" else largest - ONE
        return None

    def _stepped(self, name: str, bound: Polynomial) -> Polynomial:
        """The bound of a counter from 0, less what its last step leaves."""
        step = re.search(rf"\b{re.escape(name)}\s*\+=\s*([^;)]+)", self._scope.local)
        by = self._scope.value(step[1]) if step else None
        if bound.constant and by and by.constant and self._scope.definition(name) == "0":
            return Polynomial.number((bound.constant - 1) // by.constant * by.constant + 1)
        return bound


def _balanced(text: str) -> str:
    """The text up to a bracket that it does not open."""
    depth = 0
    for place, mark in enumerate(text):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if depth < 0:
            return text[:place]
    return text
