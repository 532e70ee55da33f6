"""Calls a reference function before a run: for its time, or to compare it with recorded results."""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import SpecError
from tuner.experiment.arguments import ResolvedArgument, resolve_arguments
from tuner.experiment.contents import FromPython
from tuner.experiment.fields import PythonFunction
from tuner.experiment.model import Experiment, ShapeBinding
from tuner.trial import Value
from workers.bounds import magnitude, output_bound
from workers.comparison import Expected, compare
from workers.elements import is_float
from workers.groups import groups
from workers.inputs import drawn_with, fill, stream
from workers.integrity.launch_checks import element_name, first_element
from workers.reference import ReferenceProcess, reference_outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCase:
    """Dense inputs and results of one shape, by argument; ``given`` names given tolerances."""

    label: str
    symbols: Mapping[str, Value]
    arguments: tuple[ResolvedArgument, ...]
    inputs: Mapping[str, NDArray[Any]]
    results: Mapping[str, NDArray[Any]]
    given: frozenset[str] = frozenset()


def reference_seconds(experiment: Experiment, binding: ShapeBinding) -> float:
    """How long the reference takes for inputs of one shape.

    Raises:
        SpecError: it fails, or returns other outputs than the kernel has.
    """
    assert experiment.reference is not None
    arguments = resolve_arguments(experiment, binding.symbols)
    with closing(ReferenceProcess()) as process:

        def python(function: FromPython, name: str, seed: int) -> NDArray[Any]:
            call: dict[str, Any] = {"shape": dict(binding.symbols), "argument": name, "seed": seed}
            return process.call(function.python, call)[""]

        inputs = {
            argument.name: fill(
                argument, stream(0, drawn_with(argument, arguments)), "default", python
            )
            for argument in arguments
            if argument.is_input
        }
        reference_outputs(process, experiment.reference, arguments, inputs)  # imports its module
        began = time.monotonic()
        reference_outputs(process, experiment.reference, arguments, inputs)
        return time.monotonic() - began


def reference_problem(
    process: ReferenceProcess, function: PythonFunction, case: RecordedCase
) -> str | None:
    """How the reference fails, or differs from the recorded results; ``None`` if it does not."""
    try:
        wanted = reference_outputs(process, function, case.arguments, case.inputs)
    except SpecError as error:
        return f"{case.label}: {error}"
    found = {**case.inputs, **case.results}
    for argument in case.arguments:
        if argument.name not in case.results:
            continue
        got, want = found[argument.name], wanted[argument.name]
        if argument.compare == "exact":
            want = want.astype(got.dtype)
        bound = _bound(argument, want, given=argument.name in case.given)
        both = groups(argument, found.__getitem__, {**found, **wanted}.__getitem__)
        seen = compare(got, want, bound, groups=both)
        if seen.failures:
            place = element_name(argument, seen.index)
            return (
                f"{case.label}: the kernel made {seen.got:.6g} of {place}, the reference makes "
                f"{seen.want:.6g}; {seen.failures} of {argument.elements} elements differ by more "
                f"than rtol {bound.rtol:g}, atol {bound.atol:.3g}{first_element(argument, seen)}"
            )
    return None


def _bound(argument: ResolvedArgument, want: NDArray[Any], *, given: bool) -> Expected:
    """The bound of an output; a default ``atol`` grows with the result's magnitude."""
    with np.errstate(invalid="ignore"):
        scale = magnitude(want) if is_float(argument.dtype) and not given else 1.0
    return output_bound(argument, scale)
