"""Rejections of a baseline that cannot serve as an oracle, and whether its runs differ."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import ResolvedArgument
from tuner.trial import Code, Rejected, Stage
from workers.comparison import ArrayComparison, Expected
from workers.elements import from_storage, holding, is_float, numpy_dtype
from workers.integrity.launch_checks import element_name, first_element

POISONS = (0xFF, 0x7F)
"""What outputs hold before each of the baseline's two runs."""

_ERRORS = (
    Code.DISAGREES,
    Code.ROUNDING,
    Code.NOT_WRITTEN,
    Code.OUT_OF_BOUNDS,
    Code.INPUT_OVERWRITTEN,
    Code.ILLEGAL_ADDRESS,
)
_NEAR = 16.0
"""Beyond so many times the tolerance an error is gross."""
_LONG_SUM = 1024
"""Rounding errors of one operation that a sum of 100,000 numbers one by one gathers, say."""
_LARGE = 0.03
"""A relative error beyond this is gross in any type."""
_LEAVES_SOME = "launch as many blocks and threads as it needs; say 'inout' if some stay unwritten"
_READS_IT = "its kind is 'out': if the kernel reads it too, say 'inout'"


def differ(argument: ResolvedArgument, one: bytes, other: bytes) -> bool:
    """Whether two runs wrote different elements; between strided ones each has its own poison."""
    if one == other:
        return False
    first, second = (from_storage(run, argument) for run in (one, other))
    return first.tobytes() != second.tobytes()


def unwritten(
    argument: ResolvedArgument, first: NDArray[Any], second: NDArray[Any]
) -> Rejected | None:
    """The rejection if elements hold the poison of both runs."""
    if argument.kind != "out":
        return None
    kept = np.ones(first.size, bool)
    for run, poison in zip((first, second), POISONS, strict=True):
        kept &= holding(run.reshape(-1), poison)
    if not kept.any():
        return None
    place = element_name(argument, int(np.flatnonzero(kept)[0]))
    count = np.count_nonzero(kept)
    which = f"{count} elements, such as {place}" if count > 1 else place
    detail = f"the baseline never writes {which}"
    detail += f"; {_READS_IT}" if kept.all() else f"; {_LEAVES_SOME}"
    return _rejected(Code.NOT_WRITTEN, detail)


def no_number(argument: ResolvedArgument, run: NDArray[Any]) -> Rejected | None:
    """The rejection if an ``out`` is NaN throughout, as after reading the poison in it."""
    if argument.kind != "out" or not is_float(argument.dtype):
        return None
    if not (np.isnan(run.flat[0]) and np.isnan(run).all()):
        return None
    detail = f"the baseline leaves NaN in every element of {argument.name}; {_READS_IT}"
    return _rejected(Code.NOT_FINITE, detail)


def overflow(argument: ResolvedArgument, run: NDArray[Any]) -> Rejected | None:
    """The rejection if some result is too large for its type."""
    if not is_float(argument.dtype) or np.isfinite(run).all():
        return None
    return _rejected(Code.NOT_FINITE, f"the baseline's {argument.name} is not finite")


def disagreement(argument: ResolvedArgument, found: ArrayComparison, own: Expected) -> Rejected:
    """The rejection of a baseline that its reference contradicts."""
    place = element_name(argument, found.index)
    return _rejected(
        Code.ROUNDING if _is_rounding(argument, found, own) else Code.DISAGREES,
        f"the baseline disagrees with its reference: {place} is {found.got:.6g}, "
        f"expected {found.want:.6g} ({_excess(found.error)}{found.failures} of "
        f"{argument.elements} elements{first_element(argument, found)}; {_bound(argument, own)})",
    )


def _is_rounding(argument: ResolvedArgument, found: ArrayComparison, own: Expected) -> bool:
    """Whether the worst error can be the rounding of a long sum.

    Cancellation leaves sums that are small beside their terms, whose size ``atol`` tells.
    """
    if own.mode != "close" or not is_float(argument.dtype) or not found.error <= _NEAR:
        return False
    import ml_dtypes

    size = max(abs(found.want), own.atol / own.rtol if own.rtol else 0.0)
    rounding = float(ml_dtypes.finfo(numpy_dtype(argument.dtype)).eps) * _LONG_SUM
    return abs(found.got - found.want) <= min(rounding, _LARGE) * size


def _excess(error: float) -> str:
    """By how much an error is over its bound; nothing where the bound is 0 or the error is not."""
    return f"{error:.3g} times the tolerance; " if math.isfinite(error) else ""


def _bound(argument: ResolvedArgument, own: Expected) -> str:
    """The bound in words, with where it comes from."""
    if argument.compare != "close":
        return f"the spec compares {argument.name} otherwise than by a tolerance"
    return f"the `tolerance` of {argument.name} is rtol {own.rtol:g}, here atol {own.atol:.3g}"


def unsteady(argument: ResolvedArgument, found: ArrayComparison) -> Rejected:
    """The rejection of a baseline that varies from run to run."""
    place = element_name(argument, found.index)
    return _rejected(
        Code.NOT_DETERMINISTIC,
        f"the baseline is not deterministic: {place} was {found.want:.6g}, then "
        f"{found.got:.6g} on the same inputs; give {argument.name} a tolerance, or compare it "
        "unordered",
    )


def is_wrong(rejection: Rejected) -> bool:
    """Whether it shows an error of the baseline, rather than that nothing could be told.

    A misaligned access does not: how its arrays are aligned is the spec's to say.
    """
    return rejection.code in _ERRORS and not _misaligned(rejection)


def of_baseline(rejection: Rejected) -> Rejected:
    """A rejection, said of the baseline."""
    remedy = ""
    if _misaligned(rejection):
        remedy = (
            "; its arrays are aligned to their elements and no more: where your application's "
            "are (those of cudaMalloc and PyTorch are), give them `align: 16`"
        )
    return replace(rejection, detail=f"the baseline itself fails: {rejection.detail}{remedy}")


def _rejected(code: Code, detail: str) -> Rejected:
    return Rejected(stage=Stage.VERIFY, code=code, detail=detail)


def _misaligned(rejection: Rejected) -> bool:
    """Whether the driver says so: its code is that of any illegal address."""
    return rejection.code is Code.ILLEGAL_ADDRESS and "misaligned" in rejection.detail.lower()
