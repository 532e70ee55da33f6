"""Checks what a launch left: memory damage, overwritten inputs, unwritten and wrong outputs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.experiment.arguments import ResolvedArgument
from tuner.trial import Code, Rejected, Stage
from workers.comparison import ArrayComparison, Expected, compare
from workers.devices.port import Damage, DeviceFailure, Inspection
from workers.elements import GAP, Array, from_storage, gaps_changed, is_float
from workers.groups import groups

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
"""After several launches in a row, one element in so many may exceed its bound."""

_EARLY = (
    "a dependent launch reads or writes memory before griddepcontrol.wait, while the kernel ahead "
    "of it still writes"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationCase:
    """Inputs of one shape and their expected outputs.

    ``label`` says what is special about the inputs. ``wants`` holds the oracle of each output,
    dense, ``bounds`` each element's own bound where bounds differ. With ``keep_outputs`` the launch
    finds outputs of a launch on the shape's first inputs.
    Of several ``launches`` in a row, each works on the outputs of the one before.
    """

    shape: int
    label: str
    contents: Contents
    expected: Mapping[str, Expected]
    wants: Mapping[str, NDArray[Any]]
    bounds: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    keep_outputs: bool = False
    launches: int = 1


def agreeing(
    like: VerificationCase, seen: Inspection, arguments: Mapping[str, ResolvedArgument]
) -> VerificationCase:
    """A case on inputs that follow from another's; expected are outputs that a launch left.

    Of large outputs ``arguments`` has the part that was inspected. Tolerances are doubled, since
    that launch may be off by as much, and are the same for all elements: those with bounds of
    their own are other ones here.
    """
    return replace(
        like,
        label="inputs of its own",
        expected={
            name: replace(
                one,
                path="",
                bounds=None,
                dtype=arguments[name].dtype,
                rtol=2 * one.rtol,
                atol=2 * one.atol,
                ulp=2 * one.ulp,
            )
            for name, one in like.expected.items()
        },
        wants={name: from_storage(seen.outputs[name], arguments[name]) for name in like.expected},
        bounds={},
    )


def check(
    case: VerificationCase,
    inspection: Inspection,
    arguments: Mapping[str, ResolvedArgument],
    poison: int | None,
) -> None:
    """Check one launch, or the last of several in a row.

    Small differences may grow in a row, so a share of wrong elements is accepted there.

    Raises:
        DeviceFailure: with the first of: memory damaged, inputs overwritten, outputs not written,
            outputs wrong.
    """
    check_memory(case, inspection)
    for name in case.expected:
        argument = arguments[name]
        found = inspection.comparisons.get(name)
        if found is None:
            found = _compare(argument, inspection, case, arguments, poison)
        if found.failures > (argument.elements // _GROWN if case.launches > 1 else 0):
            raise _wrong(argument, found, case)


@contextmanager
def naming_early_starts(*, late: bool) -> Iterator[None]:
    """Say of a failure under a late write what it means."""
    try:
        yield
    except DeviceFailure as failure:
        if late:
            failure.detail = f"{_EARLY}: {failure.detail}"
        raise


def check_memory(case: VerificationCase, inspection: Inspection) -> None:
    """Check that launches changed no memory that they must not.

    Raises:
        DeviceFailure: they did.
    """
    if inspection.damage is not None:
        raise damaged(inspection.damage, case.label)


def rejected(failure: DeviceFailure, shape: int | None) -> Rejected:
    """A device failure as a candidate's outcome."""
    stage = _STAGES.get(failure.code, Stage.LAUNCH)
    return Rejected(stage=stage, code=failure.code, detail=failure.detail, shape=shape)


def _compare(
    argument: ResolvedArgument,
    inspection: Inspection,
    case: VerificationCase,
    arguments: Mapping[str, ResolvedArgument],
    poison: int | None,
) -> ArrayComparison:
    expected = case.expected[argument.name]
    storage = inspection.outputs.get(argument.name)
    if storage is None or len(storage) != argument.size:
        raise DeviceFailure(
            Code.CRASH, f"the bench child did not return {argument.name}", sticky=True
        )
    fresh = argument.kind == "out"
    between = poison if fresh else GAP
    if between is not None and gaps_changed(storage, argument, between):
        raise DeviceFailure(
            Code.OUT_OF_BOUNDS, f"writes between the elements of {argument.name} (its strides)"
        )
    got = from_storage(storage, argument)
    want = partial(_wanted, case, arguments)

    def after(name: str) -> Array:
        if not arguments[name].is_output:
            return want(name)
        return from_storage(inspection.outputs[name], arguments[name])

    return compare(
        got,
        case.wants[argument.name],
        expected,
        poison if fresh else None,
        groups(argument, after, want),
        case.bounds.get(argument.name),
    )


def _wanted(case: VerificationCase, arguments: Mapping[str, ResolvedArgument], name: str) -> Array:
    """What an argument should hold after the launch."""
    if name in case.wants:
        return case.wants[name]
    return from_storage(Path(case.contents[name]).read_bytes(), arguments[name])


def damaged(damage: Damage, inputs: str = "") -> DeviceFailure:
    """The failure for damaged memory, with the label of the inputs if there is one."""
    on = f"; {inputs}" if inputs else ""
    if damage.where == "input":
        detail = f"overwrites its input {damage.argument} (byte {damage.offset})"
        return DeviceFailure(Code.INPUT_OVERWRITTEN, f"{detail}{on}")
    if damage.where == "idle":
        detail = f"writes {damage.argument} of a launch that has not begun"
        return DeviceFailure(Code.OUT_OF_BOUNDS, f"{detail}{on}")
    side = "before" if damage.where == "front" else "behind the end of"
    far = "a byte" if damage.offset == 1 else f"{damage.offset} bytes"
    detail = f"writes {far} {side} {damage.argument}"
    return DeviceFailure(Code.OUT_OF_BOUNDS, f"{detail}{on}")


def _wrong(
    argument: ResolvedArgument, found: ArrayComparison, case: VerificationCase
) -> DeviceFailure:
    place = element_name(argument, found.index)
    count = f"{found.failures} of {argument.elements} elements"
    if found.unwritten == found.failures:
        detail = f"{count} of {argument.name} not written, such as {place}; {case.label}"
        return DeviceFailure(Code.NOT_WRITTEN, detail)
    digits = 6 if is_float(argument.dtype) else 15
    detail = f"{place} is {found.got:.{digits}g} instead of {found.want:.{digits}g}"
    if np.isfinite(found.error):
        detail += f", {found.error:.3g} times the bound"
    count += f" wrong{first_element(argument, found)}"
    return DeviceFailure(Code.WRONG_RESULT, f"{detail}; {count}; {case.label}")


def first_element(argument: ResolvedArgument, found: ArrayComparison) -> str:
    """``, the first out[3, 17]`` where the first failing element is not the worst, or nothing.

    The worst may be anywhere; the first tells where a kernel begins to go wrong.
    """
    if found.first == found.index:
        return ""
    return f", the first {element_name(argument, found.first)}"


def element_name(argument: ResolvedArgument, index: int) -> str:
    """An element by its indices, as ``out[3, 17]``."""
    indices = np.unravel_index(index, argument.shape) if argument.shape else ()
    return f"{argument.name}[{', '.join(str(int(i)) for i in indices)}]"
