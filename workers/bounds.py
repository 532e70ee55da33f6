"""How far each element of an output may be off.

The absolute part of a tolerance follows the magnitude of an element's neighbourhood, its row and
its column, so that outputs that are small beside others are checked as closely. The baseline's own
errors widen the bounds of the neighbourhoods that they are in.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.contents import Ulp, Unordered
from workers.comparison import Expected, Mode
from workers.elements import is_float

Bounds = NDArray[np.float64]
"""The bound of each element."""

_SAMPLED = 2**16
"""Elements that the magnitude of an output is computed from."""
_SEGMENT = 256
"""Elements of a row where an output has a single dimension, or only a few rows."""
_ENOUGH = 16
"""Fewer numbers do not show that their row or column is small."""
_LOOKED_AT = 32
"""Numbers of a row or column that its magnitude is computed from."""
_ALIKE = 8.0
"""Magnitudes, or errors, that differ by no more are taken as the same."""
_ERRORS_ALIKE = 2.0
"""By how many times an error may be nearer to local bounds than to that of the whole output, if it
is a rounding of the element itself."""
_WIDENED_TOGETHER = 1024
"""Elements whose largest error widens the bounds of all of them, at least.

The largest of so many random errors is 3.2 standard deviations: twice that is rarely exceeded.
"""

_SMALLEST = {
    "float16": 2.0**-23,
    "bfloat16": 2.0**-126,
    "float8_e4m3": 2.0**-8,
    "float8_e5m2": 2.0**-15,
    "float32": 2.0**-126,
    "float64": 2.0**-1022,
}
"""The absolute part at least: two steps between the smallest numbers of a type, or the smallest
number that no option rounds to zero."""
_EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}
_ROUNDINGS = 4.0
"""Rounding errors of a number of the usual size, which a far smaller one may consist of."""


def magnitude(values: NDArray[Any]) -> float:
    """The median magnitude of an array's finite numbers other than 0; 0 if there are none.

    Computed from a sample of a large array.
    """
    flat = values.reshape(-1)
    some = np.abs(flat[:: flat.size // _SAMPLED | 1].astype(np.float64))
    numbers = some[(some > 0) & np.isfinite(some)]
    return float(np.median(numbers)) if numbers.size else 0.0


def output_bound(argument: ResolvedArgument, growth: float) -> Expected:
    """The bound that the spec gives an output as a whole, with no path.

    Its absolute part is ``growth`` times as large, if that is more than 1.
    """
    mode: Mode
    match argument.compare:
        case Ulp():
            mode = "ulp"
        case Unordered():
            mode = "unordered"
        case asked:
            mode = asked
    return Expected(
        path="",
        dtype=argument.dtype,
        mode=mode,
        rtol=argument.tolerance.rtol,
        atol=argument.tolerance.atol * max(1.0, growth),
        ulp=argument.compare.ulp if isinstance(argument.compare, Ulp) else 0,
    )


def local_bounds(
    argument: ResolvedArgument, bound: Expected, want: NDArray[Any], *, given: bool
) -> Bounds | None:
    """The bound of each element, if some are in a far smaller or larger neighbourhood than others.

    A tolerance that is ``given`` is meant for all of the first test case: it grows less in small
    neighbourhoods, and never shrinks.
    """
    tolerance = argument.tolerance
    if bound.mode != "close" or not bound.atol or not is_float(argument.dtype):
        return None
    if given and bound.atol <= _ALIKE * tolerance.atol:
        return None
    if (factors := _local_factors(want)) is None:
        return None
    rounding = _EPSILON["float64" if argument.dtype == "float64" else "float32"]
    least = max(_SMALLEST[argument.dtype], _ROUNDINGS * rounding * magnitude(want))
    most = math.inf
    if given:
        least, most = tolerance.atol, bound.atol
    with np.errstate(all="ignore"):
        absolute = np.clip(bound.atol * factors, least, most)
        bounds: Bounds = _spread(absolute, want) + bound.rtol * np.abs(want.astype(np.float64))
    return bounds


def depend_on_each_other(
    want: NDArray[Any], local: NDArray[np.float32], whole: NDArray[np.float32]
) -> bool:
    """Whether the baseline's errors are no smaller where its results are.

    The elements of a running sum carry the roundings of all before them, so that it has small
    elements, but no exact ones: local bounds are not for it. Rows are taken as independent.

    Args:
        want: the oracle.
        local: the baseline's errors in local bounds.
        whole: and in the bound of the whole output.
    """
    return not _has_rows(want) and bool(local.max() > _ERRORS_ALIKE * whole.max())


def widened(
    bound: Expected, bounds: Bounds | None, want: NDArray[Any], errors: NDArray[Any] | float
) -> tuple[Expected, Bounds | None]:
    """Bounds that are wider where the baseline errs; that of the whole output is the widest.

    Args:
        bound: of the whole output.
        bounds: of each element, if they differ.
        want: the oracle.
        errors: by how many times its bound each element, or any of them, may be off.
    """
    most = float(np.max(errors, initial=1.0))
    if most == 1.0:
        return bound, bounds
    ulp = math.ceil(bound.ulp * most)
    wider = replace(bound, rtol=bound.rtol * most, atol=bound.atol * most, ulp=ulp)
    if np.ndim(errors) == 0:
        return wider, None if bounds is None else bounds * most
    rows, columns = _largest_around(np.broadcast_to(errors, want.shape))
    least = min(rows.min(), math.inf if columns is None else columns.min())
    if bound.mode != "close" or (bounds is None and least * _ALIKE >= most):
        return wider, None
    if bounds is None:
        with np.errstate(all="ignore"):
            bounds = bound.atol + bound.rtol * np.abs(want.astype(np.float64))
    factors = rows if columns is None else np.minimum(rows, columns)
    return wider, bounds * _spread(factors, want)


def _local_factors(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """By how many times the neighbourhood of each element of the table is larger than all of it.

    Those of its row and its column multiply, as in an outer product.
    """
    whole = magnitude(values)
    if not whole:
        return None
    table = _table(values)
    columns = _factors(table, axis=0, unit=whole)
    rows = _factors(table, axis=1, unit=whole * columns)
    return None if (rows == 1).all() and (columns == 1).all() else rows * columns


def _table(values: NDArray[Any]) -> NDArray[Any]:
    """Rows of neighbours: those of the last dimension, or segments where these are few and long."""
    if _has_rows(values):
        return values.reshape(-1, _extents(values)[-1])
    rows = -(-values.size // _SEGMENT)
    return np.resize(values.reshape(-1), (rows, _SEGMENT))


def _has_rows(values: NDArray[Any]) -> bool:
    """Whether there are enough rows to compare them with each other."""
    return len(_extents(values)) > 1 and math.prod(_extents(values)[:-1]) >= _ENOUGH


def _extents(values: NDArray[Any]) -> list[int]:
    return [extent for extent in values.shape if extent > 1]


def _spread(table: NDArray[Any], values: NDArray[Any]) -> Bounds:
    """What a table of :func:`_table` says of each element."""
    full = np.broadcast_to(table, _table(values).shape)
    found: Bounds = full.reshape(-1)[: values.size].reshape(values.shape)
    return found


def _factors(table: NDArray[Any], axis: int, unit: float | NDArray[Any]) -> NDArray[np.float64]:
    """By how many times each column (0) or row (1) is larger than the unit; 1 if nearly alike.

    Larger by the median of numbers other than 0, smaller by their largest: behind an activation
    most of a row may be nearly 0, and the rest as far off as in any other. A few numbers may show
    that they are larger, not smaller.
    """
    step = -(-table.shape[axis] // _LOOKED_AT)
    some = table[::step] if axis == 0 else table[:, ::step]
    with np.errstate(all="ignore"):
        units = unit if np.ndim(unit) == 0 else np.asarray(unit)[:, ::step]
        parts = np.abs(some.astype(np.float64)) / units
    parts[~((parts > 0) & np.isfinite(parts))] = np.nan
    parts.sort(axis=axis)  # NaN last
    counts = np.count_nonzero(~np.isnan(parts), axis=axis, keepdims=True)
    last = np.maximum(counts - 1, 0)
    middle, largest = (np.take_along_axis(parts, at, axis) for at in (last // 2, last))
    smaller = (largest < 1 / _ALIKE) & (counts >= _ENOUGH)
    return np.where(middle > _ALIKE, middle, np.where(smaller, largest, 1.0))


def _largest_around(errors: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """The largest error in the rows around each element, as a column; and in its column, as a row.

    The latter counts if it is less. There is none where all rows are around each element.
    """
    table = _table(errors)
    block = -(-_WIDENED_TOGETHER // table.shape[1])
    starts = np.arange(0, table.shape[0], block)
    if starts.size > 1 and table.shape[0] % block:
        starts = starts[:-1]  # the last block is longer, not shorter
    rows = np.maximum.reduceat(table.max(axis=1), starts).astype(np.float64)
    each = np.repeat(np.maximum(rows, 1.0), np.diff([*starts, table.shape[0]]))[:, None]
    if table.shape[0] < _WIDENED_TOGETHER:
        return each, None
    return each, np.maximum(table.max(axis=0).astype(np.float64), 1.0)
