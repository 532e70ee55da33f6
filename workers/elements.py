"""Element types in NumPy, and conversion between dense arrays and strided storage."""

import math
from typing import Any, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tuner.experiment.arguments import ResolvedArgument, item_bytes

Array = NDArray[np.generic]

_ML_DTYPES = {
    "bfloat16": "bfloat16",
    "float8_e4m3": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
}


GAP = 0xFF
"""Each byte between the elements of an input: NaN in floats, which spoils what uses it."""


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """The NumPy type of an element type of the format."""
    if name in _ML_DTYPES:
        import ml_dtypes

        return cast("np.dtype[np.generic]", np.dtype(getattr(ml_dtypes, _ML_DTYPES[name])))
    return np.dtype(name)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The format's name of a NumPy type."""
    return next((name for name, theirs in _ML_DTYPES.items() if theirs == dtype.name), dtype.name)


def is_float(name: str) -> bool:
    """Whether an element type is a floating-point type."""
    return name.startswith(("float", "bfloat"))


def to_storage(dense: Array, argument: ResolvedArgument) -> NDArray[np.uint8]:
    """A dense array as the argument's bytes; a view where there are no gaps.

    Gaps between the elements hold :data:`GAP`.
    """
    dtype = numpy_dtype(argument.dtype)
    dense = np.ascontiguousarray(dense, dtype)
    if dense.nbytes == argument.size and is_row_major(argument.shape, argument.strides):
        return dense.reshape(-1).view(np.uint8)
    storage = np.full(argument.size, GAP, np.uint8).view(dtype)
    _strided(storage, argument)[...] = dense
    return storage.view(np.uint8)


def from_storage(storage: bytes, argument: ResolvedArgument) -> Array:
    """The dense array that the argument's bytes hold; a view where there are no gaps."""
    return _strided(np.frombuffer(storage, numpy_dtype(argument.dtype)), argument)


def holding(values: Array, byte: int) -> NDArray[np.bool_]:
    """Which elements of a vector hold ``byte`` in each of their bytes."""
    raw = np.ascontiguousarray(values)
    word = np.dtype(f"u{raw.dtype.itemsize}")
    found: NDArray[np.bool_] = raw.view(word) == int.from_bytes([byte] * word.itemsize)
    return found


def gaps_changed(storage: bytes, argument: ResolvedArgument, byte: int) -> bool:
    """Whether a byte between the elements of an output no longer holds this ``byte``."""
    item = numpy_dtype(argument.dtype).itemsize
    if argument.size == argument.elements * item:
        return False
    taken = np.zeros(argument.size // item, bool)
    _strided(taken, argument)[...] = True
    words = np.frombuffer(storage, np.uint8).reshape(-1, item)
    return bool((words[~taken] != byte).any())


def _strided(storage: Array, argument: ResolvedArgument) -> Array:
    item = storage.dtype.itemsize
    if math.prod(argument.shape) == storage.size and is_row_major(argument.shape, argument.strides):
        return storage.reshape(argument.shape)
    return as_strided(storage, argument.shape, [step * item for step in argument.strides])


def is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether an array has no gaps and is in C order."""
    expected = 1
    for extent, step in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and step != expected:
            return False
        expected *= extent
    return True


def suits_float32(output: ResolvedArgument) -> bool:
    """Whether the oracle of an output is precise enough as float32: where it has 16 bits or 8."""
    small = is_float(output.dtype) and item_bytes(output.dtype) <= 2
    return small and output.compare == "close"
