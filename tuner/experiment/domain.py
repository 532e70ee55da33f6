"""Which shapes are in the domain, also where an equation makes sizes follow from others.

Of ``tokens == batch * seq`` no size could be varied alone. So tied sizes are left out while shapes
are made, and computed from the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from tuner.errors import SpecError
from tuner.experiment.arguments import resolve_arguments
from tuner.experiment.contents import FromFile
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.expressions import Expression, ExpressionError
from tuner.expressions.tree import Chain
from tuner.trial import Value

Ties = Mapping[str, Expression]
"""What each tied size equals, in an order in which they can be computed."""


def free_symbols(experiment: Experiment, shape: ShapeBinding) -> dict[str, Value]:
    """The symbols of a shape that do not follow from others."""
    tied = _ties(experiment)
    return {name: value for name, value in shape.symbols.items() if name not in tied}


def all_symbols(experiment: Experiment, free: Mapping[str, Value]) -> dict[str, Value]:
    """The free symbols with those that follow from them, in the order of the spec's shapes.

    Raises:
        ExpressionError: one that follows is undefined.
    """
    found = with_ties(free, _ties(experiment))
    return {name: found[name] for name in experiment.shapes.tune[0].symbols}


def elements(experiment: Experiment, free: Mapping[str, Value]) -> int:
    """The elements of all buffers."""
    resolved = resolve_arguments(experiment, all_symbols(experiment, free))
    return sum(argument.elements for argument in resolved if argument.is_buffer)


def meets_conditions(experiment: Experiment, free: Mapping[str, Value]) -> bool:
    """Whether every condition of the domain holds."""
    try:
        symbols = all_symbols(experiment, free)
        return all(condition.evaluate(symbols) for condition in experiment.shapes.domain)
    except ExpressionError:
        return False


def inside(experiment: Experiment, free: Mapping[str, Value]) -> bool:
    """Whether a shape is in the domain, and arguments can have it."""
    try:
        if not meets_conditions(experiment, free):
            return False
        filled = _filled(experiment, all_symbols(experiment, free))
    except SpecError:
        return False
    return not filled or filled == _filled(experiment, experiment.shapes.tune[0].symbols)


def _filled(experiment: Experiment, symbols: Mapping[str, Value]) -> list[tuple[object, ...]]:
    """The arguments that are filled from files and cannot vary: shape and file.

    Those that can are floats with a file for each shape, whose numbers are repeated.
    """
    return [
        (*argument.shape, argument.fill.file)
        for argument in resolve_arguments(experiment, symbols)
        if isinstance(argument.fill, FromFile) and not argument.repeats
    ]


def _ties(experiment: Experiment) -> Ties:
    symbols = experiment.shapes.tune[0].symbols
    sizes = frozenset(name for name, value in symbols.items() if type(value) is int)
    return ties(experiment.shapes.domain, sizes)


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
