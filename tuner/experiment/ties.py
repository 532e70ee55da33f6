"""Sizes that an equation of the domain makes follow from others, as ``tokens == batch * seq`` does.

None of them can be varied alone: each is computed anew where one that it follows from is another.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from tuner.expressions import Expression, ExpressionError
from tuner.expressions.tree import Chain
from tuner.trial import Value

Ties = Mapping[str, Expression]
"""What each tied size equals, in an order in which they can be computed."""


@lru_cache(maxsize=64)
def ties(domain: Sequence[Expression], sizes: frozenset[str]) -> Ties:
    """The sizes that follow from others.

    Args:
        domain: the conditions on the symbols.
        sizes: the symbols that are integers.
    """
    found: dict[str, Expression] = {}
    for name, other in (pair for condition in domain for pair in _equations(condition)):
        if name not in sizes - found.keys() - other.names or not other.names <= sizes:
            continue
        if all(name not in known.names for known in found.values()):
            found[name] = other
        elif other.names.isdisjoint(found):
            found = {name: other, **found}
    return found


def with_ties(symbols: Mapping[str, Value], tied: Ties) -> dict[str, Value]:
    """The symbols with each tied size as it follows from the others.

    Raises:
        ExpressionError: it is undefined for them.
    """
    found = dict(symbols)
    for name, other in tied.items():
        found[name] = int(other.evaluate(found))
    return found


def _equations(condition: Expression) -> Iterator[tuple[str, Expression]]:
    """Each name that is a side of the condition and the other side, if it is an equation."""
    root = condition.root
    if not isinstance(root, Chain) or root.operators != ("==",):
        return
    with suppress(ExpressionError):  # where parentheses hold both sides
        left, right = (Expression.parse(side) for side in condition.text.split("=="))
        if condition.text.count("==") == 1:
            yield from ((name.text, side) for name, side in ((left, right), (right, left)))
