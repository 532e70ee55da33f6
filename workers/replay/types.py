"""Element types of captured memory: by how NaNs spread through a launch, and by how values look."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.drafts.guesses import Guess
from workers.elements import numpy_dtype
from workers.replay.port import Change, ReplayFailed
from workers.replay.probe import Bytes, Probe, Region

_NANS = {
    "float16": b"\x01\x7c",
    "bfloat16": b"\x81\x7f",
    "float32": b"\x01\x00\x80\x7f",
    "float64": b"\x01\x00\x00\x00\x00\x00\xf0\x7f",
}
"""NaNs with the fewest bits set, the smallest type first: in a larger type, the same bytes are an
ordinary number at one of two neighbouring places."""

_SAMPLE = 1 << 20
"""Bytes looked at."""

_WIDE, _FAR = 5.0, 40.0
"""Standard deviation and size of binary exponents, above which bytes are no such numbers: 1.6 for
normal values, and 9 or more for the mantissa of a larger type read as exponents."""

_SMALL_INTEGER = 1 << 24
"""Integers below are tiny as floats, below any number that kernels compute with."""

_SHARE = 0.99


def nan_type(probe: Probe, region: Region, held: Bytes) -> Guess | None:
    """The float type in which single NaNs in a region become NaNs in some result.

    ``held`` is what the region holds as far as it is read: of the types that it looks like, those
    are tried. ``None``: no result becomes NaN.
    """
    reach = len(held)
    for dtype in list(_plausible(_sample(held))) or _NANS:
        if dtype not in _NANS:
            continue
        nan = _NANS[dtype]
        for place in (reach // 2 // 16 * 16, 0):
            if place + 2 * len(nan) <= reach and all(
                _spreads(probe, region, place + step, nan) for step in (0, len(nan))
            ):
                reason = "a NaN of this type there makes results NaN"
                return Guess(text=dtype, why=reason, confidence="high")
    return None


def looks_like(contents: Bytes) -> Guess:
    """The type as which the bytes are plausible numbers."""
    for dtype in _plausible(_sample(contents)):
        return Guess(text=dtype, why="its bytes look like it", confidence="medium")
    return Guess(text="uint8", why="its bytes look like no type", confidence="low")


def _sample(contents: Bytes) -> Bytes:
    return contents[: min(len(contents), _SAMPLE) // 8 * 8]


def _plausible(sample: Bytes) -> Iterator[str]:
    if not sample.any():
        return
    if sample.max() <= 1 and sample[1::2].any():
        yield "bool"
    wide, narrow = sample.view(np.int64), sample.view(np.int32)
    if (narrow[1::2] == narrow[::2] >> 31).all() and np.abs(wide).max() < _SMALL_INTEGER:
        yield "int64"
    if np.abs(narrow.astype(np.int64)).max() < _SMALL_INTEGER:
        yield "int32"
    for dtype in ("bfloat16", "float16", "float32", "float64"):
        if _ordinary(sample, dtype):
            yield dtype


def _ordinary(sample: Bytes, dtype: str) -> bool:
    """Whether exponents are close to each other, alike at even and odd places."""
    with np.errstate(all="ignore"):
        values = np.abs(sample.view(numpy_dtype(dtype)).astype(np.float64))
        if np.isnan(values).mean() > 1 - _SHARE:
            return False
        spread = []
        for part in (values[::2], values[1::2]):
            used = part[np.isfinite(part) & (part > 0)]
            if used.size == 0:
                return False
            exponents = np.log2(used)
            spread.append((exponents.std(), exponents.mean()))
    (deviation, mean), (other_deviation, other_mean) = spread
    alike = abs(deviation - other_deviation) < _WIDE / 2 and abs(mean - other_mean) < _WIDE
    return bool(max(deviation, other_deviation) < _WIDE and abs(mean) < _FAR and alike)


def _spreads(probe: Probe, region: Region, place: int, nan: bytes) -> bool:
    """Whether a NaN there makes some results NaN, and changes no other results."""
    try:
        seen = probe.changed([Change(region.buffer, region.start + place, nan)])
    except ReplayFailed:
        return False
    changed = [(now, then, differs) for now, then, differs in seen if differs.any()]
    return bool(changed) and all(_became_nan(*one) for one in changed)


def _became_nan(now: Bytes, then: Bytes, differs: NDArray[np.bool_]) -> bool:
    """Whether, as some float type, all changed elements are NaN, and were not before."""
    return any(_all_nan(now, then, differs, dtype) for dtype in _NANS)


def _all_nan(now: Bytes, then: Bytes, differs: NDArray[np.bool_], dtype: str) -> bool:
    size = len(_NANS[dtype])
    whole = len(now) // size * size
    touched = differs[:whole].reshape(-1, size).any(axis=1)
    if not touched.any():
        return False
    with np.errstate(invalid="ignore"):
        values = now[:whole].view(numpy_dtype(dtype))[touched].astype(np.float64)
        earlier = then[:whole].view(numpy_dtype(dtype))[touched].astype(np.float64)
    return bool(np.isnan(values).all() and not np.isnan(earlier).any())


def result_type(candidates: Sequence[str], contents: Bytes) -> Guess:
    """The type of a result: an input's if it looks like that, else what it looks like."""
    found = list(_plausible(_sample(contents)))
    both = [dtype for dtype in candidates if dtype in found]
    if both:
        reason = "its bytes look like it, as do the inputs'"
        return Guess(text=both[0], why=reason, confidence="medium")
    return looks_like(contents)
