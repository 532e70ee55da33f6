"""Other inputs that follow from given ones: made where they are launched on, drawn nowhere.

Owns which arguments can vary, and how a device's host varies one. What follows from an array is as
likely as the array itself, so a kernel takes as long on it, unless it remembers: rows, elements and
whole arrays are others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import IntegerRange, ResolvedArgument, integer_limits
from workers.devices.port import OwnInputs, StagedBuffer, Variation
from workers.elements import is_float, is_row_major, numpy_dtype
from workers.groups import group_source
from workers.inputs import independent, is_foreign

PLACES = 3
"""Units in the last place by which a number is moved, at most."""
_KEPT = 3
"""Leading bits of a mantissa that stay where floats are mixed."""


def variation(argument: ResolvedArgument) -> Variation | None:
    """How an input can vary; ``None``: not at all."""
    if argument.kind not in ("in", "inout") or argument.fill == "zeros":
        return None
    if argument.elements > 1 and is_row_major(argument.shape, argument.strides):
        if independent(argument) and not is_foreign(argument):
            return _independent(argument)
        if argument.fill == "permutation":
            return Variation(kind="rotated")
    return Variation(kind="nudged") if is_float(argument.dtype) else None


def _independent(argument: ResolvedArgument) -> Variation:
    """How elements vary that are drawn independently from one distribution."""
    if isinstance(argument.fill, IntegerRange):
        return Variation(kind="mixed", limits=(argument.fill.lo, argument.fill.hi))
    uniform, limits = argument.fill == "uniform", argument.range
    if is_float(argument.dtype):
        return Variation(kind="mixed", limits=limits or ((0.0, 1.0) if uniform else None))
    if not uniform or argument.dtype == "bool":
        return Variation(kind="rotated")
    low, high = limits or integer_limits(argument.dtype)
    return Variation(kind="mixed", limits=(int(low), int(high)))


def variations(arguments: Sequence[ResolvedArgument]) -> dict[str, Variation]:
    """How each of these that can vary does; those by which outputs are grouped do not."""
    fixed = {group_source(argument) for argument in arguments if argument.is_output}
    found = ((argument.name, variation(argument)) for argument in arguments)
    return {name: how for name, how in found if how and name not in fixed}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to vary a buffer, in the words of its elements: unsigned integers of their size.

    A word is made of those from two places: its bits in ``mask`` come from the second; of integers
    the sum counts, modulo ``span``, what each exceeds ``least`` by. Where that is outside of
    ``limits``, the first is taken. With the word of ``infinity`` it is nudged instead.
    """

    mask: int = 0
    least: int = 0
    span: int = 0
    limits: tuple[float, float] = (-np.inf, np.inf)
    infinity: int = 0


def recipe(buffer: StagedBuffer) -> Recipe:
    """How to vary a buffer that can vary."""
    assert buffer.varies is not None
    dtype, limits = numpy_dtype(buffer.dtype), buffer.varies.limits
    if buffer.varies.kind == "nudged":
        return Recipe(infinity=_words(dtype)[1])
    if buffer.varies.kind == "rotated":
        return Recipe()
    if not is_float(buffer.dtype):
        assert limits is not None
        least, span = int(limits[0]), int(limits[1]) - int(limits[0]) + 1
        return Recipe(least=least, span=span) if max(least, span) < 1 << 63 else Recipe()
    mask = (1 << max(0, _mantissa_bits(dtype) - _KEPT)) - 1
    return Recipe(mask=mask, limits=limits or (-np.inf, np.inf))


def numbers(buffer: StagedBuffer, own: OwnInputs, sets: int) -> list[tuple[int, int]]:
    """For each set, the places from which its elements are taken; of nudged ones a key."""
    rng = np.random.default_rng([own.seed, *buffer.name.encode()])
    count = buffer.size // numpy_dtype(buffer.dtype).itemsize
    nudged = buffer.varies is not None and buffer.varies.kind == "nudged"
    drawn = rng.integers(0 if nudged else 1, 1 << 62 if nudged else count, (sets, 2))
    return [(int(first), int(second)) for first, second in drawn]


def varied(
    contents: NDArray[np.uint8], buffer: StagedBuffer, own: tuple[int, int]
) -> NDArray[np.uint8]:
    """What a buffer of a set holds in place of its contents, both in raw bytes.

    ``own`` is the set's one of :func:`numbers`.
    """
    how, dtype = recipe(buffer), numpy_dtype(buffer.dtype)
    found: NDArray[Any]
    if how.infinity:
        return nudged(contents.view(dtype), np.random.default_rng(own)).view(np.uint8)
    words = contents.view(f"u{dtype.itemsize}")
    first, second = (np.roll(words, places) for places in own)
    if how.span:
        kind = words.dtype.type
        least = kind(how.least % (1 << 8 * dtype.itemsize))
        more = ((first - least).astype("u8") + (second - least).astype("u8")) % how.span
        found = more.astype(kind) + least
        return found.view(np.uint8)
    mask = words.dtype.type(how.mask)
    found = (first & ~mask) | (second & mask)
    if how.mask:
        lowest, highest = how.limits
        values = found.view(dtype).astype("f8")
        found = np.where((values >= lowest) & (values <= highest), found, first)
    return found.view(np.uint8)


def nudged(values: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """The same floats, each moved by a few units in the last place.

    They may have any structure (an order, a triangle, zeros, gaps), which this keeps: zeros,
    infinities and NaNs stay, and no number becomes one of them.
    """
    words = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    sign, infinity = (words.dtype.type(word) for word in _words(values.dtype))
    magnitude = words & ~sign
    moved = magnitude + rng.integers(1, PLACES, words.shape, endpoint=True).astype(words.dtype)
    moved = np.where(moved < infinity, moved, magnitude - PLACES)
    fixed = (magnitude == 0) | (magnitude >= infinity)
    found: NDArray[Any] = np.where(fixed, words, moved | words & sign).view(values.dtype)
    return found


def _words(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The words of the sign and of infinity of a floating-point type."""
    word = f"u{dtype.itemsize}"
    sign, infinity = (np.array(x).astype(dtype).view(word) for x in (-0.0, np.inf))
    return int(sign), int(infinity)


def _mantissa_bits(dtype: np.dtype[Any]) -> int:
    """Bits of a floating-point type's mantissa: of the step from 1 to the next number."""
    one = np.array(1.0).astype(dtype)
    word = f"u{dtype.itemsize}"
    after = (one.view(word) + np.array(1, word)).view(dtype)
    return -int(np.log2(float(after) - float(one)))
