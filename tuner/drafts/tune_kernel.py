"""What a call of Kernel Tuner's ``tune_kernel`` says of parameters and launch, in a spec's words.

Texts are parsed, never executed. A division ``/`` has no counterpart: sizes are whole numbers.
"""

import ast
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from tuner.errors import SpecError
from tuner.expressions import Expression, ExpressionError
from tuner.expressions.tree import MAX_LENGTH
from tuner.trial import Value

BLOCK_NAMES = ("block_size_x", "block_size_y", "block_size_z")
"""The parameters that are a block's extents, unless others are named."""

_DEFAULT_BLOCK = ("256", "1", "1")
"""Extents of a block where no parameter is one."""


class Launch(TypedDict):
    """Arguments of ``kernelwright.write_spec``."""

    grid: list[str]
    block: list[str]
    parameters: dict[str, list[Value]]
    constraints: list[str]


def from_tune_kernel(
    problem_size: int | str | Sequence[int | str],
    tune_params: Mapping[str, Sequence[object]],
    *,
    grid_div_x: Sequence[int | str] | None = None,
    grid_div_y: Sequence[int | str] | None = None,
    grid_div_z: Sequence[int | str] | None = None,
    restrictions: Sequence[str] = (),
    block_size_names: Sequence[str] = BLOCK_NAMES,
) -> Launch:
    """Grid, block, parameters and constraints of a ``tune_kernel`` call, for ``write_spec``.

    Args:
        problem_size: as there; text names integer scalars, so that the launch follows the shape.
        tune_params: as there: whole numbers, bools and names.
        grid_div_x: as there: expressions that divide the problem size; by default the block's
            extent.
        grid_div_y: the same for the second axis.
        grid_div_z: the same for the third axis.
        restrictions: conditions as text, in Python.
        block_size_names: as there.

    Raises:
        SpecError: something has no counterpart in a spec; the message says what to write.
    """
    sizes = [problem_size] if isinstance(problem_size, int | str) else list(problem_size)
    if not 1 <= len(sizes) <= len(BLOCK_NAMES):
        raise SpecError(f"problem_size has {len(sizes)} axes: one to three are possible")
    parameters = {
        name: [parameter_value(one, f"tune_params['{name}']") for one in values]
        for name, values in tune_params.items()
    }
    names = [*block_size_names, *BLOCK_NAMES[len(block_size_names) :]]
    block = [
        name if name in parameters else default
        for name, default in zip(names, _DEFAULT_BLOCK, strict=False)
    ]
    while len(block) > 1 and block[-1] == "1":
        block.pop()
    grid = []
    for axis, size in enumerate(sizes):
        divisors = (grid_div_x, grid_div_y, grid_div_z)[axis]
        if divisors is None:
            divisors = [names[axis]] if names[axis] in parameters else []
        where = f"grid_div_{'xyz'[axis]}"
        product = " * ".join(f"({converted(one, where)})" for one in divisors)
        text = converted(size, "problem_size")
        grid.append(f"ceil_div({text}, {product})" if product else text)
    return Launch(
        grid=grid,
        block=block,
        parameters=parameters,
        constraints=[converted(one, "restrictions") for one in restrictions],
    )


def parameter_value(given: object, where: str) -> Value:
    """A value of a parameter: a bool, a whole number, or a name.

    Raises:
        SpecError: it is none of these.
    """
    item = getattr(given, "item", None)
    found = item() if item is not None else given
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if not isinstance(found, bool | int | str):
        raise SpecError(f"{where}: {given!r} is neither a bool, a whole number nor a name")
    return found


def converted(given: object, where: str) -> str:
    """An expression of Kernel Tuner in the grammar of specs.

    ``p["name"]`` and ``"name"`` in text become the name; lists after ``in`` stay.

    Raises:
        SpecError: it has no counterpart.
    """
    if isinstance(given, bool) or not isinstance(given, str):
        found = parameter_value(given, where)
        if isinstance(found, str):
            return found
        return str(found)
    if len(given) > MAX_LENGTH:
        raise SpecError(f"{where}: an expression of {len(given)} characters; at most {MAX_LENGTH}")
    try:
        tree = ast.parse(" ".join(given.split()), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(f"{where}: {given!r} is no expression") from None
    try:
        text = ast.unparse(_Plain().visit(tree))
        Expression.parse(text)
    except (ExpressionError, RecursionError) as problem:
        raise SpecError(f"{where}: {given!r}: {problem}{_hint(tree)}") from None
    return text


def _hint(tree: ast.AST) -> str:
    kinds = {type(node) for node in ast.walk(tree)}
    if ast.Div in kinds:
        return "; write // for a whole quotient, or multiply both sides"
    if ast.Lambda in kinds:
        return "; write the condition as text over the parameters"
    return ""


class _Plain(ast.NodeTransformer):
    """``p["name"]`` as ``name``."""

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        key = node.slice
        if (
            isinstance(key, ast.Constant)
            and isinstance(key.value, str)
            and key.value.isidentifier()
        ):
            return ast.Name(key.value)
        return self.generic_visit(node)
