"""What a spec gives one value: which of it test cases change, and on which shapes.

A kernel that contains such a value is right wherever the value is the same, and nowhere else.
"""

from typing import Literal

from tuner.experiment.arguments import ResolvedArgument, resolve_arguments
from tuner.experiment.contents import FromFile, FromPython, follows
from tuner.experiment.model import Argument, Experiment, ShapeBinding

Constants = Literal["scalars", "contents"]
"""What is changed together: a kernel that is undefined for other contents is still checked with
other scalars. Flags are changed with the contents."""


def constant_scalars(experiment: Experiment) -> tuple[Argument, ...]:
    """The scalars whose values do not follow from the shape."""
    return tuple(
        argument
        for argument in experiment.arguments
        if argument.kind == "scalar" and not follows(argument.value)
    )


def fixed_scalars(experiment: Experiment) -> tuple[Argument, ...]:
    """The constant scalars that no test case changes: their values are all that was tested."""
    symbols = experiment.shapes.tune[0].symbols
    resolved = {a.name: a for a in resolve_arguments(experiment, symbols)}
    scalars = constant_scalars(experiment)
    return tuple(a for a in scalars if changed_with(resolved[a.name]) is None)


def changed_with(argument: ResolvedArgument) -> Constants | None:
    """With what test cases change an argument that has one value, ``None`` if they do not.

    An integer that is neither 0 nor 1 may be a size or a stride, so only its ``range`` says which
    other values are defined. Integers that a kernel adds to may be counters that must begin at 0.
    """
    if argument.fixed:
        return None
    floating = argument.dtype.startswith(("float", "bfloat"))
    if argument.kind == "scalar":
        if floating or argument.range is not None:
            return "scalars"
        return "contents" if argument.value in (0, 1) else None
    if argument.kind not in ("in", "constant", "inout"):
        return None
    if isinstance(argument.fill, FromFile | FromPython):
        return "contents" if floating else None
    if argument.fill == "zeros" and (floating or argument.kind != "inout"):
        return "contents"
    return None


def changed_shapes(experiment: Experiment) -> tuple[tuple[ShapeBinding, Constants], ...]:
    """A tune shape for each kind of constants that there is, and what is changed on it."""
    symbols = min(
        (shape.symbols for shape in experiment.shapes.tune),
        key=lambda symbols: sum(
            a.size for a in resolve_arguments(experiment, symbols) if a.is_buffer
        ),
    )
    constant = {argument.name for argument in constant_scalars(experiment)}
    found = {
        changed_with(argument)
        for argument in resolve_arguments(experiment, symbols)
        if argument.kind != "scalar" or argument.name in constant
    }
    kinds: tuple[Constants, ...] = ("scalars", "contents")
    return tuple((ShapeBinding(symbols), kind) for kind in kinds if kind in found)
