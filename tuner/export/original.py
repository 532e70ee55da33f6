"""The launch of the original kernel in an application, and the shape that follows from it.

A symbol follows from a scalar argument, the grid, the block or the shared memory whose expression
has one solution for it. The C that is written from this checks all of these afterwards.
"""

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from tuner.errors import SpecError
from tuner.experiment.arguments import kernel_arguments, passed_numbers, type_name
from tuner.experiment.contents import Number
from tuner.experiment.model import Argument, Experiment, Launch
from tuner.expressions import Expression
from tuner.expressions.inverse import solve
from tuner.plan import Shape

GRID, BLOCK, SHARED, STREAM = "kw_grid", "kw_block", "kw_shared", "kw_stream"
CONFIGURATION = f"dim3 {GRID}, dim3 {BLOCK}, size_t {SHARED}, cudaStream_t {STREAM}"
"""The parameters of a C++ function that stand for a launch's configuration."""

PLACEHOLDER = re.compile(r"\{(\w+)\}")
"""A symbol in an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalLaunch:
    """The one launch of the original.

    Attributes:
        launch: its grid, block and shared memory.
        entry: the kernel, with symbols in braces.
        arguments: what it passes, in order.
        numbers: each number that is passed by value: C type, value in the spec, and C for it.
        entry_symbols: the symbols in ``entry``.
        values: C for each symbol that follows from a launch, in order of dependence. It reads
            arguments as :func:`c_name` has them, the variables above, and symbols as ``s->NAME``.
        missing: the other symbols, whose values a launch does not tell.
    """

    launch: Launch
    entry: str
    arguments: tuple[Argument, ...]
    numbers: tuple[tuple[str, Number, str], ...]
    entry_symbols: tuple[str, ...]
    values: dict[str, str]
    missing: tuple[str, ...]

    def equations(self) -> Iterator[tuple[Expression, str]]:
        """Integer expressions over the symbols, and C for the value that a launch has for each."""
        for _, value, given in self.numbers:
            if isinstance(value, Expression):
                yield value, f"(long long){given}"
        for variable, extents in ((GRID, self.launch.grid), (BLOCK, self.launch.block)):
            for axis, extent in zip("xyz", extents, strict=False):
                yield extent, f"(long long){variable}.{axis}"
        yield self.launch.shared_bytes, f"(long long){SHARED}"


def _numbers(argument: Argument, symbols: Shape) -> Iterator[tuple[str, Number, str]]:
    for dtype, offset, value in passed_numbers(argument, symbols):
        type_, given = type_name(dtype, "cuda"), c_name(argument.name)
        struct = argument.kind == "struct"
        yield type_, value, f"number_at<{type_}>({given}, {offset})" if struct else given


def c_name(name: str) -> str:
    """The C variable of an argument or a work buffer; a struct's is a pointer to it."""
    return f"{name}_"


def original_launch(experiment: Experiment) -> OriginalLaunch:
    """The launch that an application makes.

    Raises:
        SpecError: the original has several steps or constants, or not one list of arguments.
    """
    for argument in experiment.arguments:
        if argument.kind == "constant":
            raise SpecError(
                f"the kernel reads the constant {argument.symbol or argument.name}, which the "
                "application fills: each tuned kernel would have an unfilled one of its own. Pass "
                "the values in a buffer and run again, or use the sources of `kernelwright export`"
            )
        dtypes = [argument.dtype, *(field.dtype for field in argument.fields)]
        if not argument.is_pointer and set(dtypes) & experiment.shapes.tune[0].symbols.keys():
            raise SpecError(
                f"the type of the value {argument.name} depends on the shape: use the sources of "
                "`kernelwright export`"
            )
    steps = experiment.kernel.steps
    if len(steps) != 1 or not isinstance(steps[0], Launch):
        raise SpecError(
            f"the run tuned {len(steps)} launches and memsets as one, and `apply` replaces single "
            "launches: use the sources of `kernelwright export`"
        )
    launch, own = steps[0], kernel_arguments(experiment)
    passed = launch.arguments or own
    if unpassed := [name for name in own if name not in passed]:
        raise SpecError(
            f"the original launch does not pass {unpassed[0]}, which tuned kernels may need: use "
            "the sources of `kernelwright export`"
        )
    by_name = {argument.name: argument for argument in experiment.arguments}
    entry = launch.entry or experiment.kernel.entry
    arguments = tuple(by_name[name] for name in passed)
    symbols = experiment.shapes.tune[0].symbols
    found = OriginalLaunch(
        launch=launch,
        entry=entry,
        arguments=arguments,
        numbers=tuple(number for one in arguments for number in _numbers(one, symbols)),
        entry_symbols=tuple(dict.fromkeys(PLACEHOLDER.findall(entry))),
        values={},
        missing=(),
    )
    values = dict.fromkeys(_only_types(experiment) - set(found.entry_symbols), "0")
    values |= _determined(list(found.equations()), {*found.entry_symbols, *values})
    missing = tuple(n for n in symbols if n not in values and n not in found.entry_symbols)
    return replace(found, values=values, missing=missing)


def _only_types(experiment: Experiment) -> set[str]:
    """The symbols of a type that is the same in all shapes: its constant in C is 0."""
    shapes = (*experiment.shapes.tune, *experiment.shapes.held_out)
    return {
        name
        for name, value in shapes[0].symbols.items()
        if isinstance(value, str) and {one.symbols[name] for one in shapes} == {value}
    }


def kernel_name(experiment: Experiment) -> str:
    """The original kernel without namespaces and template arguments; raises as above."""
    return original_launch(experiment).entry.partition("<")[0].rpartition("::")[2].strip()


def _determined(equations: list[tuple[Expression, str]], given: Set[str]) -> dict[str, str]:
    """C for each symbol that the equations determine, in order of dependence."""
    found: dict[str, str] = {}
    while True:
        known = found.keys() | given
        solved = next(filter(None, (solve(*one, known) for one in equations)), None)
        if solved is None:
            return found
        found[solved[0]] = solved[1]
