"""Which numbers a distribution draws: how far from zero, on which side, of what type.

Owns the intervals, magnitudes and special values; :mod:`workers.inputs` decides which argument gets
which.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import IntegerRange, ResolvedArgument, integer_limits
from workers.elements import is_float, numpy_dtype

Distribution = Literal[
    "default",
    "large",
    "small",
    "outliers",
    "zeros",
    "few",
    "ends",
    "low",
    "high",
    "specials",
    "rare specials",
    "whole",
    "most",
    "half",
    "lowest",
    "lower",
    "highest",
    "higher",
    "farthest apart",
    "far apart",
    "sides apart",
    "same",
    "tiny",
    "assorted",
    "parts",
]
"""``large``, ``small``: magnitudes :data:`LARGE` or :data:`SMALL` times as great.

``outliers``: a few elements far larger than others, ends of rows among them; ``zeros``: nothing but
zeros; ``few``: the same few values again and again; ``ends``: only the ends of the range;
``specials``: infinities and NaN, some in a row; ``rare specials``: one here and there alone;
``low``, ``high``: all far below zero, or above, or near an end of the range;
``whole``, ``most``, ``half``: values of the type's whole range, or of so much of it: magnitudes of
every exponent, denormals and zeros of both signs; integers of every length;
``lowest``, ``lower``, ``highest``, ``higher``: all near one end of the type, or less far from zero;
integers so near to each other that floats do not tell them apart.
``farthest apart``, ``far apart``, ``sides apart``: each array has either one of :data:`APART`;
``same``: one number throughout an array of integers, as if all fell into one bin; under it and
``ends`` normal floats are above zero, so that their sums do not cancel;
``tiny``: magnitudes :data:`TINY` times as great.
``assorted``: each row has one of :data:`ROWS`; the extremes of every second one are at its end.
``parts``: as if consecutive elements were such rows, whatever shape the array has.
"""

ROWS: tuple[tuple[Distribution, int], ...] = (
    ("default", 0),
    ("default", -1),
    ("default", 1),
    ("outliers", 0),
    ("few", 0),
    ("zeros", 0),
)
"""Kinds of rows in one array, and the side of zero that all their numbers are on, if not 0.

A single odd shape may be all on which a kernel takes a path, so that must meet them together.
"""

FAR, _FAR_INTEGER = 16.0, 96
"""A maximum that begins at zero is wrong this far below it, and a variance that is the difference
of two means loses eight of its bits."""
_FEW = 9
"""Values from -2 to 2 in steps of a half: rounding the halves tells how ties are rounded."""
_TIE_BITS = range(2, 14)
"""Bits of the numbers 0.75, 0.625 …: a type with one bit less has two numbers as near."""
_LEAST_TIES = 2.0**-10, 2.0**-17, 2.0**-25
"""Halves of the least numbers of eight-bit floats (e4m3, e5m2) and of float16."""
_EMPTY: tuple[Distribution, Distribution] = ("ends", "same")
APART: dict[Distribution, tuple[tuple[Distribution, Distribution], ...]] = {
    "farthest apart": (("lowest", "highest"), ("low", "high"), _EMPTY),
    "far apart": (("lower", "higher"), ("low", "high"), _EMPTY),
    "sides apart": (("low", "high"), _EMPTY),
}
"""Pairs of distributions. An array has either one of the first pair that it can have.

Sums of products are all far below zero where two arrays are on either side of it. Of offsets one
segment alone is not empty: what a kernel does in the middle of a long one shows on odd shapes."""
REACHES: dict[Distribution, tuple[float, float]] = {
    "whole": (1.0, 1.0),
    "most": (0.85, 0.45),
    "half": (0.5, 0.2),
}
"""Shares of the bits of integers, and of the exponents of floats, from the widest on.

Integers of 0.85 of the bits are not held by a float of as many, and few sums of them overflow.
Squares of 0.45 of the exponents can be summed, and four floats of 0.2 multiplied."""
_ENDS: dict[Distribution, tuple[Literal["low", "high"], float]] = {
    "lowest": ("low", 1.0),
    "lower": ("low", 0.3),
    "highest": ("high", 1.0),
    "higher": ("high", 0.3),
}
"""Sides of zero, and shares of the bits of integers and of the exponents of floats.

A maximum that begins at any number but the least one is wrong somewhere. Cubes of the exponents of
0.3 can be summed."""
NARROWER: dict[Distribution, Distribution] = {
    "whole": "most",
    "most": "half",
    "lowest": "lower",
    "highest": "higher",
    "farthest apart": "sides apart",
    "far apart": "sides apart",
    "specials": "rare specials",
}
"""What stands for a distribution on which the baseline is undefined."""
WIDE = frozenset({*NARROWER, *NARROWER.values()} - {"specials", "rare specials"})
"""Distributions on which finite inputs may have results that are not."""
_CLOSE = 63
"""Integers between the ends of an interval in which single precision has one number."""
_HEADROOM = 8
"""Exponents left above the largest float, at most a quarter of all: constant factors fit."""
_DENORMAL_SHARE, _ZERO_SHARE = 1 / 32, 1 / 32
_SPECIALS = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}
_SPECIAL_SHARE = 0.01
SPECIAL_PARTS = 8
"""An array has so many parts of consecutive rows: one full of each special value, one half full."""


def one_sided(argument: ResolvedArgument, side: Literal["low", "high"]) -> tuple[float, float]:
    """A part of the range that is far from zero on one side, or as far as the range allows."""
    if is_float(argument.dtype):
        low, high = argument.range or (0.0 if argument.fill == "uniform" else -np.inf, np.inf)
        part = min((high - low) / 16, FAR / 4)
        if side == "low":
            low = float(np.clip(-FAR, low, high - part))
            return low, low + part
        high = float(np.clip(FAR, low + part, high))
        return high - part, high
    least, most = (int(end) for end in argument.range or integer_limits(argument.dtype))
    if argument.fill == "normal" and argument.range is None:
        least, most = max(least, -_FAR_INTEGER), min(most, _FAR_INTEGER)
    return end(least, most, side)


def end(low: int, high: int, side: Literal["low", "high"]) -> tuple[int, int]:
    """A sixteenth of some integers at one of their ends, at least the last one."""
    part = (high - low) // 16
    return (low, low + part) if side == "low" else (high - part, high)


def at_end(argument: ResolvedArgument, distribution: Distribution) -> tuple[float, float] | None:
    """An interval near one end of the argument's type, or of its range, for one of :data:`_ENDS`.

    None for other distributions, and where that is no farther from zero than :func:`one_sided`.
    """
    if distribution not in _ENDS or argument.fill != "normal" or argument.dtype == "bool":
        return None
    side, share = _ENDS[distribution]
    if not is_float(argument.dtype):
        lowest, highest = integer_limits(argument.dtype)
        if argument.range is not None or (side == "low" and not lowest):
            return None
        bits = int(highest).bit_length()
        most = int(highest) >> (bits - round(bits * share))
        part = min(most // 16, _CLOSE)
        return (-most - 1, -most - 1 + part) if side == "low" else (most - part, most)
    exponents, *_ = _magnitudes(argument.dtype)
    low, high = argument.range or (-np.inf, np.inf)
    most = max(FAR, 2.0 ** ((exponents - min(_HEADROOM, exponents / 4)) * share))
    most = min(most, -low if side == "low" else high)
    if most < FAR:
        return None
    if side == "low":
        return -most, min(-most * 0.75, high)
    return max(most * 0.75, low), most


def reaching(
    argument: ResolvedArgument, rng: np.random.Generator, bits: float, exponents: float
) -> NDArray[Any]:
    """Values of a share of the type's range, within the argument's."""
    shape = argument.shape
    if not is_float(argument.dtype):
        lowest, highest = integer_limits(argument.dtype)
        length = int(highest).bit_length()
        highest >>= length - round(length * bits)
        low = -highest - 1 if lowest else 0
        drawn = rng.integers(low, highest, size=shape, endpoint=True, dtype=wide(argument))
        shift = rng.integers(0, 1 + round(length * bits), size=shape).astype(drawn.dtype)
        return np.where(rng.random(shape) < 0.5, drawn, drawn >> shift)
    most, least, denormal = _magnitudes(argument.dtype)
    reach = (most - min(_HEADROOM, most / 4)) * exponents
    first, last = argument.range or (-np.inf, np.inf)
    reach = min(reach, float(np.log2(max(abs(first), abs(last), 2.0**least))))
    powers = rng.uniform(max(least, -most) * exponents, reach, shape)
    tiny = rng.random(shape) < _DENORMAL_SHARE
    powers[tiny] = rng.uniform(denormal, least, np.count_nonzero(tiny))
    signs = rng.choice([-1.0, 1.0], shape) if argument.fill == "normal" else np.ones(shape)
    found = np.where(rng.random(shape) < _ZERO_SHARE, 0.0, np.exp2(powers)) * signs
    return np.clip(found, first, last)


def on_side(argument: ResolvedArgument, values: NDArray[Any], side: int) -> NDArray[Any]:
    """Numbers around 0 with their signs changed to ``side``, as far as the argument may have it."""
    most = (-np.inf, np.inf) if is_float(argument.dtype) else integer_limits(argument.dtype)
    low, high = argument.range or most
    if side < 0 <= low:
        return np.full_like(values, low)
    found: NDArray[Any] = np.clip(side * np.abs(values), low, high)
    return found


def _magnitudes(dtype: str) -> tuple[float, float, float]:
    """Exponents of base 2: of the largest float, the least normal one, the least denormal one."""
    import ml_dtypes

    info = ml_dtypes.finfo(numpy_dtype(dtype))
    numbers = (float(info.max), float(info.smallest_normal), float(info.smallest_subnormal))
    most, least, denormal = (float(np.log2(number)) for number in numbers)
    return most, least, denormal


def few(argument: ResolvedArgument) -> NDArray[Any]:
    """Evenly spaced values, in halves but for other ranges; zero among them if it may.

    Of integers also what is next to a power of two: 0, ±1, 2, 3, 4, 7, 8 …
    """
    low, high = argument.range or ((0, 1) if argument.fill == "uniform" else (-2, 2))
    if isinstance(argument.fill, IntegerRange):
        low, high = argument.fill.lo, argument.fill.hi
    elif not is_float(argument.dtype):
        lowest, highest = integer_limits(argument.dtype)
        low, high = int(max(low, lowest)), int(min(high, highest))
    else:
        spaced = 2 * np.linspace(low / 2, high / 2, _FEW)
        return np.append(spaced, 0.0 if low <= 0 <= high else low)
    found = {low + (high - low) * number // (_FEW - 1) for number in range(_FEW)}
    powers = [1 << bit for bit in range(64)]
    found.update(sign * (n - less) for n in powers for sign in (1, -1) for less in (0, 1))
    return np.array(sorted(n for n in found if low <= n <= high), wide(argument))


def ties(argument: ResolvedArgument) -> NDArray[Any]:
    """Floats halfway between two numbers of some shorter type, the nearer to zero of them even."""
    low, high = argument.range or ((0, 1) if argument.fill == "uniform" else (-2, 2))
    positive = [*(0.5 + 0.5**bits for bits in _TIE_BITS), *_LEAST_TIES]
    found = np.array([*positive, *(-number for number in positive)])
    return found[(low <= found) & (found <= high)]


def wide(argument: ResolvedArgument) -> type[np.int64 | np.uint64]:
    """The type that holds all integers of the argument's."""
    return np.uint64 if argument.dtype == "uint64" else np.int64


def with_specials(
    values: NDArray[Any], argument: ResolvedArgument, rng: np.random.Generator, *, in_a_row: bool
) -> NDArray[Any]:
    """The values, some replaced by special ones, in some parts all or half of them if ``in_a_row``.

    The first element of a sum or maximum may be special, or all of a row or window.
    """
    table = np.array([_SPECIALS[name] for name in argument.specials]).astype(values.dtype)
    chosen = rng.random(values.size) < _SPECIAL_SHARE
    chosen[int(rng.integers(values.size))] = True
    names = rng.integers(len(table), size=values.size)
    rows = math.prod(values.shape[:-1])
    length = values.shape[-1] if rows >= SPECIAL_PARTS else 1
    ends = np.linspace(0, values.size // length, SPECIAL_PARTS + 1).astype(int) * length
    order = rng.permutation(SPECIAL_PARTS) if in_a_row else np.arange(0)
    for number, part in enumerate(order[: len(table) + 1].tolist()):
        here = slice(ends[part], ends[part + 1])
        if number < len(table):
            chosen[here], names[here] = True, number
        else:
            chosen[here] |= rng.random(chosen[here].size) < 0.5
            chosen[here.start] = True  # which begins a row
    found: NDArray[Any] = np.where(chosen, table[names], values.reshape(-1)).reshape(values.shape)
    return found


def ending_in_extremes(rows: NDArray[Any]) -> NDArray[Any]:
    """The rows with their greatest number moved to the end, and their least one before it.

    An index of 16 bits holds those of all but the last columns of a row of 65,540. Where the
    extremes may be anywhere, they are hardly ever there.
    """
    rows, each = rows.copy(), np.arange(len(rows))
    for last, extreme in ((-1, np.argmax), (-2, np.argmin)):
        if -last <= rows.shape[1]:
            at = extreme(rows[:, : rows.shape[1] + last + 1], axis=1)
            rows[each, at], rows[each, last] = rows[each, last], rows[each, at]
    return rows


def offsets(
    argument: ResolvedArgument, last: int, rng: np.random.Generator, distribution: Distribution
) -> NDArray[Any]:
    """Sorted integers; the first is 0 unless it is the last, which is ``last``.

    At the ``ends``, or if all are the ``same``, all segments are empty beside one; with a ``few``
    values many are.
    """
    many = max(0, argument.elements - 2)
    inner = rng.integers(0, last, size=many, endpoint=True)
    if distribution in ("few", "ends", "same"):
        inner = rng.choice([0, last // 2, last] if distribution == "few" else [0, last], many)
    inner = np.sort(inner)
    return np.concatenate([[0], inner, [last]])[-argument.elements :].reshape(argument.shape)
