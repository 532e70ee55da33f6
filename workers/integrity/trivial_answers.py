"""Refuses experiments whose checks pass trivial answers.

Tried on the comparer alone, without a device: doing nothing, zeros, the mean, half of the right
answer, a copy of an input, its negation.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import ResolvedArgument
from tuner.trial import Code, Rejected, Stage
from workers.comparison import Expected, compare
from workers.elements import dtype_name, from_storage, is_float, numpy_dtype
from workers.groups import Groups, groups
from workers.integrity.launch_checks import VerificationCase

_FEW = 4096
_OMITTED = 0.01
"""Share of the elements that are left out, the smallest ones."""
_TRIED = 2**20
"""Elements of an output from which some are left out."""
_TELLING = 32
"""With fewer elements an output may be all zeros by chance."""


def trivial_answer_rejection(
    arguments: Mapping[int, Sequence[ResolvedArgument]],
    cases: Mapping[int, Sequence[VerificationCase]],
) -> Rejected | None:
    """The experiment's rejection if a trivial answer passes in both cases of a shape.

    Each output is judged on the shapes where it has enough elements, or else the most.

    Args:
        arguments: of the tune shapes.
        cases: of the same shapes; the first and the last of each are tried.
    """
    most: dict[str, int] = {}
    for argument in (one for listed in arguments.values() for one in listed):
        most[argument.name] = max(most.get(argument.name, 0), argument.elements)
    for shape, listed in arguments.items():
        large = [a for a in listed if a.elements >= min(_TELLING, most[a.name])]
        first, last = cases[shape][0], cases[shape][-1]
        found = trivial_answer(first, large, _inputs(listed, first))
        if found and trivial_answer(last, large, _inputs(listed, last)):
            return found
    return None


def _inputs(
    arguments: Sequence[ResolvedArgument], case: VerificationCase
) -> dict[str, NDArray[Any]]:
    return {
        argument.name: from_storage(Path(case.contents[argument.name]).read_bytes(), argument)
        for argument in arguments
        if argument.name in case.contents
    }


def trivial_answer(
    case: VerificationCase,
    arguments: Sequence[ResolvedArgument],
    inputs: Mapping[str, NDArray[Any]],
) -> Rejected | None:
    """The experiment's rejection if a trivial answer passes for one of its outputs.

    A copy or negation that equals the oracle exactly is accepted: then the operation is one.

    Args:
        case: inputs and oracle.
        arguments: of the case's shape.
        inputs: dense contents of ``in`` and ``inout`` arguments.
    """
    for argument in arguments:
        if not argument.is_output:
            continue
        want, expected = case.wants[argument.name], case.expected[argument.name]
        known = {**inputs, **case.wants}
        grouped = groups(argument, known.__getitem__, known.__getitem__)
        bounds = case.bounds.get(argument.name)
        for what, answer in _answers(argument, want, inputs):
            if _passes(answer, want, expected, grouped, bounds):
                return Rejected(
                    stage=Stage.VERIFY,
                    code=Code.WRONG_RESULT,
                    detail=f"the check proves nothing: {what} passes for {argument.name}; "
                    "tighten its tolerance, or give inputs under which it differs",
                    shape=case.shape,
                )
    return None


def unnoticed_omissions(
    arguments: Sequence[ResolvedArgument], case: VerificationCase
) -> Iterator[str]:
    """What to note of outputs whose smallest elements may be left out unnoticed."""
    for argument in arguments:
        expected = case.expected.get(argument.name)
        if expected is None or expected.mode != "close" or not is_float(argument.dtype):
            continue
        want = case.wants[argument.name].reshape(-1)[:_TRIED]
        size = np.abs(want.astype(np.float64))
        numbers = size[(size > 0) & np.isfinite(size)]
        if numbers.size < 1 / _OMITTED:
            continue
        least = np.quantile(numbers, _OMITTED)
        answer = np.where(size <= least, 0.0, want).astype(want.dtype)
        bounds = case.bounds.get(argument.name)
        own = None if bounds is None else bounds.reshape(-1)[:_TRIED]
        if compare(answer, want, expected, bounds=own).failures == 0:
            yield (
                f"{argument.name}: its smallest 1 % (up to {least:.2g}) may be left out within the "
                f"tolerance; if they matter, give a smaller `atol`"
            )


def _passes(
    answer: NDArray[Any],
    want: NDArray[Any],
    expected: Expected,
    grouped: Groups | None,
    bounds: NDArray[Any] | None,
) -> bool:
    """Whether every element is within its bound; most answers fail within the first few."""
    few = slice(_FEW)
    if expected.mode != "unordered":
        some = None if bounds is None else bounds.reshape(-1)[few]
        begins = answer.reshape(-1)[few], want.reshape(-1)[few]
        if compare(*begins, expected, bounds=some).failures:
            return False
    return compare(answer, want, expected, groups=grouped, bounds=bounds).failures == 0


def _answers(
    argument: ResolvedArgument, want: NDArray[Any], inputs: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[str, NDArray[Any]]]:
    dtype = numpy_dtype(argument.dtype)
    if argument.name in inputs:
        yield "leaving it as it was", inputs[argument.name]
    yield "filling it with zeros", np.zeros(argument.shape, dtype)
    if argument.elements > 1 and want.min() != want.max():
        with np.errstate(all="ignore"):
            mean = np.full(argument.shape, want.astype(np.float64).mean()).astype(dtype)
        yield "filling it with its mean", mean
    if is_float(argument.dtype):
        with np.errstate(all="ignore"):
            yield "half of the right answer", (want / 2).astype(dtype)
    for name, values in inputs.items():
        if name == argument.name or values.shape != argument.shape:
            continue
        if not (is_float(argument.dtype) and is_float(dtype_name(values.dtype))):
            continue
        for what, answer in (("a copy of", values), ("the negation of", -values)):
            converted = answer.astype(dtype)
            if not np.array_equal(converted, want.astype(dtype)):
                yield f"{what} {name}", converted
