"""Parameters of vector types: the alignment and the elements that their arguments must have."""

import math
from collections.abc import Iterator, Mapping

from tuner.backends.registry import traits_of
from tuner.csource.kernels import Parameter, Signature
from tuner.errors import SpecError
from tuner.experiment.arguments import item_bytes, passed_bytes
from tuner.experiment.model import Argument, Experiment, ScratchArgument
from tuner.expressions import ExpressionError


def vector_problems(
    signature: Signature,
    passed: tuple[str, ...],
    arguments: Mapping[str, Argument | ScratchArgument],
    experiment: Experiment,
) -> Iterator[str]:
    """Vectors whose arguments promise less alignment than these need, or hold too few elements."""
    traits = traits_of(experiment.kernel.language)
    for parameter, name in zip(signature.parameters, passed, strict=True):
        argument = arguments[name]
        kind = argument.kind if isinstance(argument, Argument) else "scratch"
        if kind == "null" or not parameter.dtype or parameter.lanes == 1:
            continue
        item, elements = item_bytes(parameter.dtype), traits.vector_elements(parameter.lanes)
        place = f"parameter '{parameter.name}' of {signature.name}"
        takes = f"{parameter.type}, which takes {elements} elements in memory"
        needed = traits.vector_align(item, parameter.lanes)
        if (
            parameter.pointer
            and elements != parameter.lanes
            and _is_short(parameter, argument, experiment, elements)
        ):
            yield f"{place} points to {takes}, the last unused: give '{name}' so many for each"
        elif parameter.pointer and (argument.align or item) < needed:
            yield (
                f"{place} points to {parameter.type}: give '{name}' align: {needed}, if your"
                " application's pointers have it"
            )
        elif (
            elements != parameter.lanes
            and isinstance(argument, Argument)
            and kind == "struct"
            and _bytes(argument, experiment) == item * parameter.lanes
        ):
            yield f"{place} is a {takes}, the last unused: give the struct '{name}' {elements}"


def _is_short(
    parameter: Parameter,
    argument: Argument | ScratchArgument,
    experiment: Experiment,
    elements: int,
) -> bool:
    """Whether an array holds no whole number of padded vectors, or says that they have three."""
    if not isinstance(argument, Argument) or not argument.shape:
        return False
    if argument.shape[-1].text.startswith(f"{parameter.lanes} *"):
        return True
    try:
        counts = [
            math.prod(int(extent.evaluate(binding.symbols)) for extent in argument.shape)
            for binding in experiment.shapes.tune
        ]
    except ExpressionError:
        return False  # told elsewhere
    return any(count % elements for count in counts)


def _bytes(argument: Argument, experiment: Experiment) -> int:
    try:
        return passed_bytes(argument, experiment.shapes.tune[0].symbols)
    except (SpecError, ExpressionError):
        return 0  # told elsewhere
