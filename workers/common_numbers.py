"""Numbers that several arguments hold: kernels find them, count them, or have a path for them.

A search finds what it looks for, an element is exactly a threshold, two points are one: where each
argument is drawn for itself, that hardly happens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import IntegerRange, ResolvedArgument
from workers.elements import is_float, numpy_dtype
from workers.inputs import independent

_SHARE = 0.25
"""Elements, or else rows, of an array that other arguments hold too."""


def with_common_numbers(
    contents: NDArray[Any],
    argument: ResolvedArgument,
    others: Mapping[str, NDArray[Any]],
    arguments: Sequence[ResolvedArgument],
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Drawn contents of which some elements are numbers of other arguments, within the range.

    Of an array with the same rows they come from the same row. Some rows are whole rows of others.

    Args:
        contents: of one argument.
        argument: that one.
        others: contents of other arguments, by name.
        arguments: all of the shape, for their scalars.
        rng: chooses elements and numbers.
    """
    if not independent(argument):
        return contents
    sources = [other for other in others.values() if other.dtype == contents.dtype and other.size]
    floating = is_float(argument.dtype)
    scalars = [a.value for a in arguments if a.kind == "scalar" and is_float(a.dtype) == floating]
    if numbers := [value for value in scalars if value is not None]:
        with np.errstate(over="ignore"):
            sources.append(np.array(numbers).astype(numpy_dtype(argument.dtype)))
    found = contents.copy()
    for source in sources:
        places = np.nonzero(rng.random(found.shape, np.float32) < _SHARE / len(sources))
        count = len(places[0])
        if source.ndim > 1 and source.shape[:-1] == found.shape[:-1]:
            taken = source[(*places[:-1], rng.integers(source.shape[-1], size=count))]
        else:
            taken = rng.choice(source.reshape(-1), count)
        allowed = _allowed(taken, argument)
        found[tuple(axis[allowed] for axis in places)] = taken[allowed]
    for source in sources:
        if found.ndim > 1 and source.shape[-1] == found.shape[-1]:
            _share_rows(found, source, argument, rng)
    return found


def _share_rows(
    found: NDArray[Any],
    source: NDArray[Any],
    argument: ResolvedArgument,
    rng: np.random.Generator,
) -> None:
    """Replace some rows by rows of a source: by the same ones, if it has as many."""
    rows, given = (array.reshape(-1, array.shape[-1]) for array in (found, source))
    here = np.nonzero(rng.random(len(rows)) < _SHARE)[0]
    taken = given[here if len(given) == len(rows) else rng.integers(len(given), size=len(here))]
    allowed = _allowed(taken, argument).all(axis=1)
    rows[here[allowed]] = taken[allowed]


def _allowed(values: NDArray[Any], argument: ResolvedArgument) -> NDArray[np.bool_]:
    """Which values the argument may hold."""
    fill = argument.fill
    limits = (fill.lo, fill.hi) if isinstance(fill, IntegerRange) else argument.range
    if limits is None:
        return np.isfinite(values) if is_float(argument.dtype) else np.ones(values.shape, np.bool_)
    found: NDArray[np.bool_] = (limits[0] <= values) & (values <= limits[1])
    return found
