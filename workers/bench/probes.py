"""Trivial answers that no honest experiment accepts: if one passes, the checks prove nothing.

Owns the probes: nothing done, zeros, the mean, a copy of an input, its negation. They are asked of
the comparer alone, without a device.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.spec.resolve import ResolvedArgument
from tuner.trial import Code, Rejected, Stage
from workers.bench.judge import Question
from workers.elements import is_float, numpy_dtype
from workers.verify import Expected, compare

_FEW = 4096


def trivial_answer(
    question: Question,
    arguments: Sequence[ResolvedArgument],
    inputs: Mapping[str, NDArray[Any]],
) -> Rejected | None:
    """The experiment's refusal if a trivial answer passes for one of its outputs.

    Copy and negation are let pass where the oracle equals them exactly: then the operation is one.

    Args:
        question: inputs and oracle.
        arguments: of the question's shape.
        inputs: dense contents of ``in`` and ``inout`` arguments.
    """
    for argument in arguments:
        if not argument.is_output:
            continue
        want, expected = question.wants[argument.name], question.expected[argument.name]
        for what, answer in _answers(argument, want, inputs):
            if _passes(answer, want, expected):
                return Rejected(
                    stage=Stage.VERIFY,
                    code=Code.WRONG_RESULT,
                    detail=f"the check proves nothing: {what} passes for {argument.name}; "
                    "tighten its tolerance, or give inputs under which it differs",
                    shape=question.shape,
                )
    return None


def _passes(answer: NDArray[Any], want: NDArray[Any], expected: Expected) -> bool:
    """Whether every element is right; most answers are wrong among the first few."""
    few = slice(_FEW)
    if (
        expected.mode != "unordered"
        and compare(answer.reshape(-1)[few], want.reshape(-1)[few], expected).failures
    ):
        return False
    return compare(answer, want, expected).failures == 0


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
    for name, values in inputs.items():
        if name == argument.name or values.shape != argument.shape:
            continue
        if not (is_float(argument.dtype) and is_float(str(values.dtype))):
            continue
        for what, answer in (("a copy of", values), ("the negation of", -values)):
            converted = answer.astype(dtype)
            if not np.array_equal(converted, want.astype(dtype)):
                yield f"{what} {name}", converted
