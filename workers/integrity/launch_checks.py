"""From what a launch left behind to a verdict: the reason, in the order of what it says.

Owns the order of checks and the words of a rejection. Knows nothing of processes and devices.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import ResolvedArgument
from tuner.trial import Code, Rejected, Stage
from workers.comparison import Comparison, Expected, compare
from workers.devices.port import Damage, DeviceFailure, Inspection
from workers.elements import from_storage, gaps_changed

_STAGES = {
    Code.WRONG_RESULT: Stage.VERIFY,
    Code.NOT_WRITTEN: Stage.VERIFY,
    Code.INPUT_OVERWRITTEN: Stage.VERIFY,
    Code.OUT_OF_BOUNDS: Stage.VERIFY,
    Code.IMPOSSIBLE_TIME: Stage.TIME,
    Code.SLOWER_AGAIN: Stage.TIME,
}


Contents = Mapping[str, str]
"""Paths of raw bytes by argument."""

_GROWN = 4
"""After launches in a row, up to one element in so many may have drifted out of its bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Inputs of one shape and their right answer.

    ``label`` says what is special about the inputs; ``wants`` holds the oracle of each output,
    dense. If inputs hardly differ from the shape's first ones, outputs are left ``standing`` as a
    launch on those left them. Of several ``launches`` in a row, each finds what the last one left.
    """

    shape: int
    label: str
    contents: Contents
    expected: Mapping[str, Expected]
    wants: Mapping[str, NDArray[Any]]
    standing: bool = False
    launches: int = 1


def agreeing(
    like: Question,
    contents: Contents,
    seen: Inspection,
    arguments: Mapping[str, ResolvedArgument],
) -> Question:
    """A question like another one on other contents, whose right answer is what a launch left.

    The launch itself may have erred as much as an answer may.
    """
    return replace(
        like,
        label="inputs drawn anew",
        contents=contents,
        expected={
            name: replace(
                one,
                path="",
                dtype=arguments[name].dtype,
                rtol=2 * one.rtol,
                atol=2 * one.atol,
                ulp=2 * one.ulp,
            )
            for name, one in like.expected.items()
        },
        wants={name: from_storage(seen.outputs[name], arguments[name]) for name in like.expected},
    )


def check(
    question: Question,
    inspection: Inspection,
    arguments: Mapping[str, ResolvedArgument],
    poison: int | None,
) -> None:
    """Judge one launch, or the last of several in a row.

    In a row small differences may grow, so there all are let pass but what is wrong throughout.

    Raises:
        DeviceFailure: with the first reason there is: memory damaged, inputs overwritten, outputs
            not written, outputs wrong.
    """
    if inspection.damage is not None:
        raise damaged(inspection.damage, question.label)
    for name, expected in question.expected.items():
        argument = arguments[name]
        found = inspection.comparisons.get(name)
        if found is None:
            found = _compare(argument, inspection, question, expected, poison)
        if found.failures > (argument.elements // _GROWN if question.launches > 1 else 0):
            raise _wrong(argument, found, question)


def check_bystander(
    question: Question,
    inspection: Inspection,
    arguments: Mapping[str, ResolvedArgument],
    poison: int,
) -> None:
    """Judge a set that was readied but not launched: its outputs must be as they were.

    Raises:
        DeviceFailure: a launch on other sets wrote to this one.
    """
    if inspection.damage is not None:
        raise damaged(inspection.damage, question.label)
    for name in question.expected:
        found = inspection.comparisons.get(name)
        if arguments[name].kind != "out":
            before = Path(question.contents[name]).read_bytes()
            touched = found is None and inspection.outputs.get(name) != before
        elif found is not None:
            touched = found.poisoned != arguments[name].elements
        else:
            touched = inspection.outputs.get(name) != bytes([poison]) * arguments[name].size
        if touched:
            detail = f"writes {name} of a launch that has not begun; {question.label}"
            raise DeviceFailure(Code.OUT_OF_BOUNDS, detail)


def rejected(failure: DeviceFailure, shape: int | None) -> Rejected:
    """A device failure as a candidate's outcome."""
    stage = _STAGES.get(failure.code, Stage.LAUNCH)
    return Rejected(stage=stage, code=failure.code, detail=failure.detail, shape=shape)


def _compare(
    argument: ResolvedArgument,
    inspection: Inspection,
    question: Question,
    expected: Expected,
    poison: int | None,
) -> Comparison:
    storage = inspection.outputs.get(argument.name)
    if storage is None or len(storage) != argument.size:
        raise DeviceFailure(
            Code.CRASH, f"the bench child did not return {argument.name}", sticky=True
        )
    fresh = argument.kind == "out"
    if fresh and poison is not None and gaps_changed(storage, argument, poison):
        raise DeviceFailure(
            Code.OUT_OF_BOUNDS, f"writes between the elements of {argument.name} (its strides)"
        )
    got = from_storage(storage, argument)
    return compare(got, question.wants[argument.name], expected, poison if fresh else None)


def damaged(damage: Damage, label: str) -> DeviceFailure:
    """What a launch did to memory that was not its own, in words; ``label`` tells its inputs."""
    if damage.where == "input":
        detail = f"overwrites its input {damage.argument} (byte {damage.offset})"
        return DeviceFailure(Code.INPUT_OVERWRITTEN, f"{detail}; {label}")
    side = "before" if damage.where == "front" else "behind the end of"
    far = "a byte" if damage.offset == 1 else f"{damage.offset} bytes"
    detail = f"writes {far} {side} {damage.argument}"
    return DeviceFailure(Code.OUT_OF_BOUNDS, f"{detail}; {label}")


def _wrong(argument: ResolvedArgument, found: Comparison, question: Question) -> DeviceFailure:
    place = element_name(argument, found.index)
    count = f"{found.failures} of {argument.elements} elements"
    if found.unwritten == found.failures:
        detail = f"{count} of {argument.name} not written, such as {place}; {question.label}"
        return DeviceFailure(Code.NOT_WRITTEN, detail)
    return DeviceFailure(
        Code.WRONG_RESULT,
        f"{place} is {found.got:.6g} instead of {found.want:.6g}, "
        f"{found.error:.3g} times the bound; {count} wrong; {question.label}",
    )


def element_name(argument: ResolvedArgument, index: int) -> str:
    """An element by its indices, as ``out[3, 17]``."""
    indices = np.unravel_index(index, argument.shape) if argument.shape else ()
    return f"{argument.name}[{', '.join(str(int(i)) for i in indices)}]"
