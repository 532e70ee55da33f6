"""The symbol that the value of an expression determines, as C.

Inverts what has one solution: a symbol, and sums, differences and products with one side known. The
C is exact where a solution exists; callers check it by evaluating the expression.
"""

from collections.abc import Set

from tuner.expressions import Expression
from tuner.expressions.c import render
from tuner.expressions.tree import Apply, Name, Node, walk


def solve(expression: Expression, value: str, known: Set[str]) -> tuple[str, str] | None:
    """The one symbol of ``expression`` that is not ``known``, and C for its value.

    Args:
        expression: over the symbols.
        value: C for the value of the expression, of type ``long long``.
        known: symbols that C reads as ``s->NAME``.

    Returns:
        ``None`` if there is not exactly one such symbol, or it is not determined.
    """
    unknown = expression.names - known
    if len(unknown) != 1 or expression.device_names:
        return None
    (name,) = unknown
    solution = _inverse(expression.root, name, value)
    return None if solution is None else (name, solution)


def _inverse(node: Node, name: str, value: str) -> str | None:
    match node:
        case Name(found) if found == name:
            return value
        case Apply("+" | "-" | "*" as operator, (left, right)):
            in_left, in_right = (Name(name) in walk(side) for side in (left, right))
            if in_left == in_right:
                return None
            unknown, known = (left, right) if in_left else (right, left)
            other = render(known, lambda symbol: f"s->{symbol}")
            if operator == "*":
                return _inverse(unknown, name, f"kw_floor_div({value}, {other})")
            if operator == "+":
                return _inverse(unknown, name, f"({value} - {other})")
            undone = f"({value} + {other})" if in_left else f"({other} - {value})"
            return _inverse(unknown, name, undone)
    return None
