"""Compares outputs with the oracle, element by element.

This comparer runs in the supervisor; a backend that compares on its device obeys the same rules.

The rules. ``close``: where either side is not finite both must be the same (NaN with NaN, an
infinity with the same infinity); elsewhere ``|got - want| <= atol + rtol * |want|`` in float64, or
at most the element's own bound where bounds differ.
``exact``: equal values (NaN equals NaN, -0 equals 0). ``ulp``: at most ``ulp`` representable values
apart in the output's own type, NaN with NaN. ``unordered``: as ``close`` after sorting both sides
within their groups, which must be equal. Every element is compared.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workers.elements import holding
from workers.groups import Groups

Mode = Literal["close", "exact", "ulp", "unordered"]
_CHUNK = 1 << 16
"""Elements compared at a time: few enough that intermediate arrays stay in the cache."""
_NONE = np.zeros(_CHUNK)
_LEAST = 1e-300
"""Least bound, so that the quotient with it is finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The oracle of one output: a raw C-ordered array in a read-only file, and the tolerance.

    ``dtype`` is the type of the file's elements (float64 where a float64 reference made them, the
    output's own otherwise); ``rtol`` and ``atol`` are already widened by the baseline's own error.
    One path always holds the same bytes, so a backend may keep them in pinned memory by path. The
    bytes of an output that is ``returned`` are needed besides its own comparison. ``bounds`` is the
    path of each element's own bound in float64, which counts instead of ``rtol`` and ``atol``.
    """

    path: str
    dtype: str
    mode: Mode
    rtol: float = 0.0
    atol: float = 0.0
    ulp: int = 0
    returned: bool = False
    bounds: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayComparison:
    """The result of comparing one output: elements outside the bound, and the worst of them.

    ``index`` is the worst element's place in the C-ordered array; ``error`` its distance divided by
    its bound (infinite where one side is not finite); with ``failures`` 0 it is the largest of all.
    ``first`` is the first failing element's place, -1 if none fails.
    ``poisoned`` counts the elements that still hold the poison in every byte, ``unwritten`` the
    failing ones among them.
    """

    failures: int
    unwritten: int
    poisoned: int
    index: int
    first: int
    got: float
    want: float
    error: float


@np.errstate(all="ignore")  # converting a signalling NaN warns, and outputs may hold any bits
def compare(
    got: NDArray[Any],
    want: NDArray[Any],
    expected: Expected,
    poison: int | None = None,
    groups: Groups | None = None,
    bounds: NDArray[Any] | None = None,
    largest: NDArray[np.float32] | None = None,
) -> ArrayComparison:
    """Compare an output with its oracle, element by element.

    Args:
        got: the output, in the argument's own type.
        want: the oracle, of the same shape; ``float64`` or the argument's own type.
        expected: the tolerance; its path is not read.
        poison: the byte that the output held before the launch, if it was poisoned.
        groups: of an unordered output; without them the whole array is one group.
        bounds: of each element, if they differ; not for an unordered output.
        largest: each element's largest error so far, as a vector, which is updated; not for an
            unordered output.
    """
    if got.shape != want.shape:
        raise ValueError(f"an output of shape {got.shape} for an oracle of shape {want.shape}")
    got, want = got.reshape(-1), want.reshape(-1)
    bounds = None if bounds is None else bounds.reshape(-1)
    if got.dtype == bool:
        got, want = got.view(np.uint8), want.astype(np.uint8)
    order, misplaced = None, None
    if expected.mode == "unordered":
        order, other = (
            _order(side, None if groups is None else groups[number])
            for number, side in enumerate((got, want))
        )
        got, want = got[order], want[other]
        if groups is not None:
            misplaced = groups[0][order] != groups[1][other]
    worst, place, failures, unwritten, poisoned = -1.0, 0, 0, 0, 0
    first = -1
    for start in range(0, got.size, _CHUNK):
        here = slice(start, start + _CHUNK)
        part, goal = got[here], want[here]
        own = None if bounds is None else bounds[here]
        errors = (
            _NONE[: part.size] if _identical(part, goal) else _errors(part, goal, expected, own)
        )
        if misplaced is not None:
            errors = np.where(misplaced[here], np.inf, errors)
        if largest is not None:
            np.maximum(largest[here], errors, out=largest[here])
        wrong = ~(errors <= 1.0)
        failing = int(np.count_nonzero(wrong))
        failures += failing
        if failing and (order is not None or first < 0):
            places = np.flatnonzero(wrong) + start
            earliest = int(places[0] if order is None else order[places].min())
            first = earliest if first < 0 else min(first, earliest)
        if poison is not None:
            untouched = holding(part, poison)
            poisoned += int(np.count_nonzero(untouched))
            unwritten += int(np.count_nonzero(untouched & wrong))
        at = int(np.argmax(errors))
        if errors[at] > worst:
            worst, place = float(errors[at]), start + at
    return ArrayComparison(
        failures=failures,
        unwritten=unwritten,
        poisoned=poisoned,
        index=place if order is None else int(order[place]),
        first=first,
        got=float(got[place]),
        want=float(want[place]),
        error=worst,
    )


def _order(values: NDArray[Any], groups: NDArray[Any] | None) -> NDArray[np.intp]:
    """The order by group, then by value; NaN is last."""
    plain = values if values.dtype.kind in "iub" else values.astype(np.float64)
    return np.lexsort((plain,) if groups is None else (plain, groups))


def _identical(got: NDArray[Any], want: NDArray[Any]) -> bool:
    """Whether all bits are the same, which is right in every mode and found out at once."""
    bits = f"u{got.dtype.itemsize}"
    return got.dtype == want.dtype and np.array_equal(got.view(bits), want.view(bits))


def _errors(
    got: NDArray[Any], want: NDArray[Any], expected: Expected, bounds: NDArray[Any] | None
) -> NDArray[np.float64]:
    """Distance divided by bound, infinite where it must fail whatever the bound; never NaN."""
    if expected.mode == "exact":
        return np.where(_same(got, want), 0.0, np.inf)
    if expected.mode == "ulp":
        return _ulp_errors(got, want.astype(got.dtype, copy=False), expected.ulp)
    if got.dtype.kind in "iub" and want.dtype.kind in "iub" and not expected.rtol + expected.atol:
        return np.where(got == want, 0.0, np.inf)
    x, r = got.astype(np.float64), want.astype(np.float64)
    bound = expected.atol + expected.rtol * np.abs(r) if bounds is None else bounds
    distance = np.abs(x - r)
    if np.isfinite(distance.max(initial=0.0)) and bound.min(initial=1.0) >= _LEAST:
        quotient: NDArray[np.float64] = distance / bound
        return quotient
    finite = np.isfinite(x) & np.isfinite(r)
    errors = np.where(distance <= bound, distance / np.maximum(bound, _LEAST), np.inf)
    errors = np.where((distance > bound) & (bound > 0), distance / bound, errors)
    return np.where(finite, errors, np.where(_same(x, r), 0.0, np.inf))


def _ulp_errors(got: NDArray[Any], want: NDArray[Any], ulp: int) -> NDArray[np.float64]:
    if got.dtype.kind in "iub":
        steps = np.abs(got.astype(np.float64) - want.astype(np.float64))
    else:
        steps = _steps(_ordered(got), _ordered(want))
        steps[np.isnan(got) != np.isnan(want)] = np.inf
        steps[np.isnan(got) & np.isnan(want)] = 0.0
        infinite = np.isinf(got.astype(np.float64)) | np.isinf(want.astype(np.float64))
        steps[infinite & (got != want)] = np.inf
    return np.where(steps <= ulp, steps / max(ulp, 1), np.maximum(steps / max(ulp, 1), 1.0 + 1e-9))


def _ordered(values: NDArray[Any]) -> NDArray[np.int64]:
    """Each value's rank among the representable ones of its type; both zeros have the same."""
    width = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"i{width}").astype(np.int64)
    return np.where(bits < 0, np.int64(-(2 ** (8 * width - 1))) - bits, bits)


def _steps(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.float64]:
    """Distance between ranks; exact except for numbers far apart on either side of zero."""
    far = np.abs(a.astype(np.float64) - b.astype(np.float64))
    same = (a < 0) == (b < 0)
    return np.where(same, np.abs(np.where(same, a, 0) - np.where(same, b, 0)), far)


def _same(got: NDArray[Any], want: NDArray[Any]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = got == want
    if got.dtype.kind not in "iub" and want.dtype.kind not in "iub":
        same = same | (np.isnan(got) & np.isnan(want))
    return same
