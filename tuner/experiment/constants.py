"""What a spec gives one value: which of it test cases change, and on which shapes.

A kernel that contains such a value is right wherever the value is the same, and nowhere else.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from tuner.experiment.arguments import ResolvedArgument, ResolvedField, resolve_arguments
from tuner.experiment.contents import FromFile, FromPython, follows
from tuner.experiment.model import Argument, Experiment, ShapeBinding


@dataclass(frozen=True, slots=True)
class OtherSign:
    """The sign of one scalar without a range, or of one field of a struct (``p.eps``), by name.

    Each for itself: where one is undefined below zero, others may still be.
    """

    name: str


Constants = (
    Literal["scalars", "contents", "some flags", "other flags", "ends", "other ends"] | OtherSign
)
"""What is changed together: a kernel that is undefined for other contents is still checked with
other scalars. Flags are changed with the contents, and again every other flag (``some``) and those
between, since a kernel may have a path for two together. At the ``ends`` every other
scalar is 0, or what its range has nearest to that, and those between are what they are at the
``other ends``: far from 0, below it where the range allows."""

CHANGED_WITH: dict[Constants, Constants] = {
    "ends": "scalars",
    "other ends": "scalars",
    "some flags": "contents",
    "other flags": "contents",
}
"""Of which kind what is changed is, if not of its own."""
HALVES: tuple[Constants, ...] = ("some flags", "other flags")


def constant_scalars(experiment: Experiment) -> tuple[Argument, ...]:
    """The scalars whose values do not follow from the shape."""
    return tuple(
        argument
        for argument in experiment.arguments
        if argument.kind == "scalar" and not follows(argument.value)
    )


def constant_names(experiment: Experiment) -> frozenset[str]:
    """Names of these scalars, and of the fields of structs (``p.eps``) that do not either."""
    fields = (
        f"{argument.name}.{field.name}"
        for argument in experiment.arguments
        for field in argument.fields
        if not any(map(follows, field.value))
    )
    return frozenset({*(scalar.name for scalar in constant_scalars(experiment)), *fields})


def changed_fields(
    argument: ResolvedArgument, constant: Set[str], what: Constants
) -> tuple[ResolvedField, ...]:
    """The fields of a struct that test cases change: floats with the scalars, flags with contents.

    Other integers may be sizes or strides, and there is no range to say which others are defined.
    """
    flags = CHANGED_WITH.get(what, what) == "contents"
    names = constant & {what.name} if isinstance(what, OtherSign) else constant
    return tuple(
        field
        for field in argument.fields
        if f"{argument.name}.{field.name}" in names
        and not argument.fixed
        and _is_floating(field.dtype) != flags
        and (not flags or set(field.values) <= {0, 1})
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
    floating = _is_floating(argument.dtype)
    if argument.kind == "scalar":
        if floating or argument.range is not None:
            return "scalars"
        return "contents" if argument.value in (0, 1) else None
    if not argument.is_input:
        return None
    if isinstance(argument.fill, FromFile | FromPython):
        return "contents" if floating else None
    if argument.fill == "zeros" and (floating or argument.kind != "inout"):
        return "contents"
    return None


def chosen_paths(experiment: Experiment) -> tuple[Constants, ...]:
    """With what the scalars are changed that may choose a path of the kernel, if there are any.

    Flags among scalars and in structs, integer scalars that have a ``range``, and floats that are 0
    or 1: kernels leave out what these have no effect on.
    """
    constant = constant_names(experiment)
    arguments = resolve_arguments(experiment, experiment.shapes.tune[0].symbols)
    scalars = [a for a in arguments if a.kind == "scalar" and a.name in constant]
    choosing = [a for a in scalars if not _is_floating(a.dtype) or a.value in (0, 1)]
    kinds = [changed_with(a) for a in choosing]
    kinds += ["contents" for a in arguments for _ in changed_fields(a, constant, "contents")]
    several = HALVES if kinds.count("contents") > 1 else ()
    order: tuple[Constants, ...] = ("scalars", "contents")
    return (*(kind for kind in order if kind in kinds), *several)


def changed_shapes(experiment: Experiment) -> tuple[tuple[ShapeBinding, Constants], ...]:
    """Each tune shape for each kind of constants that there is, and what is changed on it.

    On all of them, since kernels for some sizes often are others. Half of the flags, and scalars
    at their ends and with other signs, are changed on the first alone; a single scalar without a
    range has no other end.
    """
    tune = [ShapeBinding(shape.symbols) for shape in experiment.shapes.tune]
    constant = constant_names(experiment)
    arguments = resolve_arguments(experiment, tune[0].symbols)
    found = {changed_with(a) for a in arguments if a.kind != "scalar" or a.name in constant}
    kinds: tuple[Constants, ...] = ("scalars", "contents")
    for kind in kinds:
        if any(changed_fields(argument, constant, kind) for argument in arguments):
            found.add(kind)
    ends: tuple[Constants, ...] = ("ends", "other ends") if "scalars" in found else ()
    scalars = [a for a in arguments if a.name in constant and changed_with(a) == "scalars"]
    fields = [(a, field) for a in arguments for field in changed_fields(a, constant, "scalars")]
    if len(scalars) + len(fields) == 1 and all(scalar.range is None for scalar in scalars):
        ends = ends[:1]
    halves = [half for half in HALVES if half in chosen_paths(experiment)]
    signed = [a.name for a in scalars if a.range is None and a.value]
    signed += [f"{a.name}.{field.name}" for a, field in fields if any(field.values)]
    return (
        *((shape, kind) for kind in kinds if kind in found for shape in tune),
        *((tune[0], what) for what in (*halves, *ends)),
        *((tune[0], OtherSign(name)) for name in signed),
    )


def _is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))
