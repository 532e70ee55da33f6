"""Odd shapes of a domain, on which kernels tuned for round sizes tend to fail.

Finalists are checked on them; they are never searched or timed. Also the numbering of all shapes.
"""

from collections.abc import Iterable, Mapping, Sequence

from tuner.errors import SpecError
from tuner.experiment.arguments import resolve_arguments
from tuner.experiment.contents import FromFile
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.expressions import ExpressionError
from tuner.trial import Value

_REACH = 256
_MOST_ELEMENTS = 1 << 23
_MOST_FAR, _FAR_ELEMENTS, _SMALL = 3, 1 << 20, 7


def odd_shapes(experiment: Experiment) -> tuple[ShapeBinding, ...]:
    """A few shapes inside the domain.

    - all sizes just below the first tune shape's, primes preferred;
    - all sizes as small as the domain allows;
    - these two alternating;
    - all sizes just above the largest known of each, or above one known shape's if that is too big;
    - for each size that makes some argument larger: that size far above all known ones, the others
      small, but large enough that elements differ.

    Empty without a ``domain``, since then only the spec's own shapes are promised to work.
    """
    if not experiment.shapes.domain:
        return ()
    base = experiment.shapes.tune[0].symbols
    known = [shape.symbols for shape in (*experiment.shapes.tune, *experiment.shapes.held_out)]
    found: list[dict[str, Value]] = []
    sizes = [name for name, value in base.items() if type(value) is int]
    for pick in (lambda _: True, lambda _: False, lambda place: place % 2 == 0):
        symbols = dict(base)
        for place, name in enumerate(sizes):
            values = _below(base[name]) if pick(place) else range(1, _REACH)
            symbols[name] = _first(experiment, symbols, name, values)
        if symbols not in known and symbols not in found:
            found.append(symbols)
    found += _larger(experiment, known)
    small = dict(base)
    for name in sizes:
        small[name] = _first(experiment, small, name, range(_SMALL, _REACH))
    for name in sizes[:_MOST_FAR]:
        symbols = {**small, name: max(int(symbols[name]) for symbols in known)}
        while _grows(experiment, symbols, further := {**symbols, name: 2 * int(symbols[name])}):
            symbols = further
        if symbols not in (*known, *found) and _grows(experiment, small, symbols):
            found.append(symbols)
    return tuple(ShapeBinding(symbols) for symbols in found)


def every_shape(experiment: Experiment) -> tuple[ShapeBinding, ...]:
    """Tune, held-out and odd shapes, in the order that numbers them from 0."""
    shapes = experiment.shapes
    return (*shapes.tune, *shapes.held_out, *odd_shapes(experiment))


def _below(value: Value) -> list[int]:
    """Smaller sizes, primes first, nearest first."""
    sizes = range(int(value) - 1, max(0, int(value) - _REACH), -1)
    return sorted(sizes, key=lambda size: (not _is_prime(size), -size))


def _larger(experiment: Experiment, known: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
    """The shape with all sizes just above the largest known ones, or above one known shape's."""
    largest = {
        name: max(int(symbols[name]) for symbols in known) if type(value) is int else value
        for name, value in known[0].items()
    }
    several = sorted(known, key=lambda symbols: -_elements(experiment, symbols))
    for symbols in (largest, *several):
        found = dict(symbols)
        for name, value in symbols.items():
            if type(value) is int:
                sizes = sorted(range(value + 1, value + _REACH), key=lambda n: not _is_prime(n))
                found[name] = _first(experiment, found, name, sizes)
        fits = _inside(experiment, found) and _elements(experiment, found) <= _MOST_ELEMENTS
        if fits and found not in known:
            return [found]
    return []


def _grows(
    experiment: Experiment, symbols: Mapping[str, Value], further: Mapping[str, Value]
) -> bool:
    """Whether ``further`` is in the domain and larger than ``symbols``, but not too large."""
    if not _inside(experiment, further):
        return False
    return _elements(experiment, symbols) < _elements(experiment, further) <= _FAR_ELEMENTS


def _elements(experiment: Experiment, symbols: Mapping[str, Value]) -> int:
    return sum(a.elements for a in resolve_arguments(experiment, symbols) if a.is_buffer)


def _first(
    experiment: Experiment, symbols: Mapping[str, Value], name: str, values: Iterable[int]
) -> Value:
    """The first of ``values`` that keeps the shape in the domain, or else its present one."""
    for value in values:
        if _inside(experiment, {**symbols, name: value}):
            return value
    return symbols[name]


def _inside(experiment: Experiment, symbols: Mapping[str, Value]) -> bool:
    try:
        if not all(condition.evaluate(symbols) for condition in experiment.shapes.domain):
            return False
        filled = _filled(experiment, symbols)
    except (ExpressionError, SpecError):
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


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
