"""The symbol that the value of an expression determines, as C or as a number.

Inverts what has one solution: a symbol, and sums, differences and products with one side known. The
solution is exact where one exists; callers check it by evaluating the expression.
"""

from collections.abc import Mapping, Set

from tuner.expressions import Expression, ExpressionError, scalar
from tuner.expressions.c import render
from tuner.expressions.tree import Apply, Name, Node, walk
from tuner.trial import Value

_GIVEN = "="
"""Stands for the value in a solution; no symbol has this name."""


def solve(expression: Expression, value: str, known: Set[str]) -> tuple[str, str] | None:
    """The one symbol of ``expression`` that is not ``known``, and C for its value.

    Args:
        expression: over the symbols.
        value: C for the value of the expression, of type ``long long``.
        known: symbols that C reads as ``s->NAME``.

    Returns:
        ``None`` if there is not exactly one such symbol, or it is not determined.
    """
    found = _solution(expression, known)
    if found is None:
        return None
    name, solution = found
    return name, render(solution, lambda read: value if read == _GIVEN else f"s->{read}")


def solve_number(
    expression: Expression, value: int, known: Mapping[str, Value]
) -> tuple[str, int] | None:
    """The one symbol of ``expression`` that is not ``known``, and its number; ``None`` as above."""
    found = _solution(expression, known.keys())
    if found is None:
        return None
    name, solution = found
    try:
        return name, int(scalar.evaluate(solution, {**known, _GIVEN: value}, None))
    except (ExpressionError, ValueError):  # a division by zero, or a type's name as a number
        return None


def _solution(expression: Expression, known: Set[str]) -> tuple[str, Node] | None:
    unknown = expression.names - known
    if len(unknown) != 1 or expression.device_names:
        return None
    (name,) = unknown
    solution = _inverse(expression.root, name, Name(_GIVEN))
    return None if solution is None else (name, solution)


def _inverse(node: Node, name: str, value: Node) -> Node | None:
    match node:
        case Name(found) if found == name:
            return value
        case Apply("+" | "-" | "*" as operator, (left, right)):
            in_left, in_right = (Name(name) in walk(side) for side in (left, right))
            if in_left == in_right:
                return None
            unknown, known = (left, right) if in_left else (right, left)
            if operator == "*":
                return _inverse(unknown, name, Apply("//", (value, known)))
            if operator == "+":
                return _inverse(unknown, name, Apply("-", (value, known)))
            undone = ("+", (value, known)) if in_left else ("-", (known, value))
            return _inverse(unknown, name, Apply(*undone))
    return None
