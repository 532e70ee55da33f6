"""Other inputs that follow from given ones: made where they are launched on, drawn nowhere.

Owns which arguments can vary, and how a device's host varies one. What follows from an array is as
likely as the array itself, so a kernel takes as long on it, unless it remembers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import ResolvedArgument
from workers.devices.port import OwnInputs, StagedBuffer, Variation
from workers.elements import is_float, is_row_major, numpy_dtype
from workers.groups import group_source
from workers.inputs import independent, is_foreign

PLACES = 3
"""Units in the last place by which a number is moved, at most."""


def variation(argument: ResolvedArgument) -> Variation | None:
    """How an input can vary; ``None``: not at all."""
    if argument.kind not in ("in", "inout") or argument.fill == "zeros":
        return None
    dense = is_row_major(argument.shape, argument.strides)
    drawn = not is_foreign(argument) and (independent(argument) or argument.fill == "permutation")
    if drawn and dense and argument.elements > 1:
        return "rotated"
    return "nudged" if is_float(argument.dtype) else None


def variations(arguments: Sequence[ResolvedArgument]) -> dict[str, Variation]:
    """How each of these that can vary does; those by which outputs are grouped do not."""
    fixed = {group_source(argument) for argument in arguments if argument.is_output}
    found = ((argument.name, variation(argument)) for argument in arguments)
    return {name: how for name, how in found if how and name not in fixed}


def numbers(buffer: StagedBuffer, own: OwnInputs, sets: int) -> list[int]:
    """For each set, by how many elements its buffer is rotated, or how its floats are nudged."""
    rng = np.random.default_rng([own.seed, *buffer.name.encode()])
    count = buffer.size // numpy_dtype(buffer.dtype).itemsize
    most = count if buffer.varies == "rotated" else 1 << 62
    return [int(number) for number in rng.integers(1, most, sets)]


def varied(contents: NDArray[np.uint8], buffer: StagedBuffer, number: int) -> NDArray[np.uint8]:
    """What a buffer of a set holds in place of its contents, both in raw bytes.

    ``number`` is the set's one of :func:`numbers`.
    """
    values = contents.view(numpy_dtype(buffer.dtype))
    if buffer.varies == "rotated":
        return np.roll(values, number).view(np.uint8)
    return nudged(values, np.random.default_rng(number)).view(np.uint8)


def nudged(values: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """The same floats, each moved by a few units in the last place.

    They may have any structure (an order, a triangle, zeros, gaps), which this keeps: zeros,
    infinities and NaNs stay, and no number becomes one of them.
    """
    words, sign, infinity = float_words(values)
    magnitude = words & ~sign
    moved = magnitude + rng.integers(1, PLACES, words.shape, endpoint=True).astype(words.dtype)
    moved = np.where(moved < infinity, moved, magnitude - PLACES)
    fixed = (magnitude == 0) | (magnitude >= infinity)
    found: NDArray[Any] = np.where(fixed, words, moved | words & sign).view(values.dtype)
    return found


def float_words(values: NDArray[Any]) -> tuple[NDArray[Any], Any, Any]:
    """Floats as unsigned integers, and the words of the sign and of infinity."""
    words = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    sign, infinity = (np.array(x, values.dtype).view(words.dtype) for x in (-0.0, np.inf))
    return words, sign, infinity
