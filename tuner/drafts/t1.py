"""A tuning problem in the T1 format, which Kernel Tuner and KTT read, becomes a spec folder.

Reads the schema 1.0.0 and Kernel Tuner's additions (``Default``, ``ProblemSize``, ``GridDivX``,
``MemType``, ``Output``). Texts are parsed, never executed.
"""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.drafts.tune_kernel import BLOCK_NAMES, converted, from_tune_kernel, parameter_value
from tuner.drafts.written_spec import parameterised_spec, write_folder
from tuner.errors import SpecError
from tuner.experiment.fields import read_text
from tuner.expressions import Expression, ExpressionError
from tuner.trial import Value

_MARK = "# Written by `kernelwright import`, which replaces it.\n"
_LANGUAGES = {"CUDA": "cuda", "OpenCL": "opencl"}
_TYPES = {"half": "float16", "float": "float32", "double": "float64"}
_TYPE = re.compile(r"(half|float|double)(2|4|8|16)?")
_KINDS = {"ReadOnly": "in", "WriteOnly": "out", "ReadWrite": "inout"}
_PROBLEM_SIZES = ("problem_size_x", "problem_size_y", "problem_size_z")
_MAX_VALUES = 10_000


def import_t1(path: Path, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Write the spec folder of a T1 file.

    Returns:
        The spec, and what had to be guessed; the spec says it too.

    Raises:
        SpecError: the file is invalid, or has what no spec can say; the message names the key.
        EnvironmentProblem: the folder has other files, or cannot be written.
    """
    try:
        data = json.loads(read_text(path))
    except (ValueError, RecursionError) as problem:
        raise SpecError(f"{path}: {problem}") from None
    try:
        texts, guesses = _Problem(_Key(data, ""), path.parent).texts()
    except (SpecError, ExpressionError) as problem:
        raise SpecError(f"{path}: {problem}") from None
    comments = "".join(f"# guess: {guess}\n" for guess in guesses)
    texts["spec.yaml"] = _MARK + comments + texts["spec.yaml"]
    try:
        write_folder(folder, _MARK, texts, {})
    except SpecError as problem:
        raise SpecError(f"{path}: {problem}") from None
    return folder / "spec.yaml", guesses


@dataclass(frozen=True, slots=True)
class _Key:
    """A value of the document and the keys that lead to it."""

    value: Any
    place: str

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The value of a key, of this type; ``default`` if it is missing.

        Raises:
            SpecError: it is of another type, or missing without a default.
        """
        place = f"{self.place}.{key}" if self.place else key
        if not isinstance(self.value, dict):
            raise SpecError(f"{self.place or 'the file'} is no object: is it a T1 file?")
        found = self.value.get(key)
        if found is None:
            if default is None:
                raise SpecError(f"{place} is missing: is it a T1 file?")
            return default
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
            raise SpecError(f"{place} has an unexpected type, {type(found).__name__}")
        return found

    def key(self, key: str) -> "_Key":
        """The object of a key."""
        return _Key(self.get(key, dict), f"{self.place}.{key}" if self.place else key)

    def items(self, key: str) -> list["_Key"]:
        """The objects in the list of a key; none if it is missing."""
        found = self.get(key, list, [])
        return [_Key(one, f"{self.place}.{key}[{place}]") for place, one in enumerate(found)]


class _Problem:
    def __init__(self, data: _Key, folder: Path) -> None:
        self.space = data.key("ConfigurationSpace")
        self.kernel = data.key("KernelSpecification")
        self.folder = folder
        self.guesses: list[str] = []
        self.parameters = dict(map(_parameter, self.space.items("TuningParameters")))
        given = {
            one.get("Name", str): one.value["Default"]
            for one in self.space.items("TuningParameters")
            if one.value.get("Default") is not None
        }
        self.baseline = {
            name: parameter_value(given.get(name, values[0]), f"Default of {name}")
            for name, values in self.parameters.items()
        }
        sizes = self.kernel.get("ProblemSize", list, [])
        self.sizes: dict[str, Value] = {
            name: parameter_value(size, "KernelSpecification.ProblemSize")
            for name, size in zip(_PROBLEM_SIZES, sizes, strict=False)
        }

    def texts(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The files by name, and what was guessed."""
        spoken = self.kernel.get("Language", str)
        language = _LANGUAGES.get(spoken)
        if language is None:
            raise SpecError(f"KernelSpecification.Language: {spoken} is not supported")
        arguments = [
            argument for one in self.kernel.items("Arguments") if (argument := self.argument(one))
        ]
        if not arguments:
            raise SpecError("KernelSpecification.Arguments is missing: a spec needs them")
        for one in arguments:
            if one["kind"] == "scalar" and isinstance(one["value"], int) and not self.sizes:
                self.sizes[str(one["name"])] = one["value"]
                one["value"] = one["name"]
        if not self.sizes:
            self.sizes["problem"] = 1
            self.guesses.append("the problem has no sizes: name them in shapes and arguments")
        file = self.folder / self.kernel.get("KernelFile", str)
        try:
            source = read_text(file)
        except ValueError as problem:
            raise SpecError(f"KernelSpecification.KernelFile: {problem}") from None
        if re.search(r"\bkernel_tuner\b", source):
            source = f"#define kernel_tuner 1\n{source}"
        grid, block = self.launch()
        conditions = self.space.items("Conditions")
        texts = parameterised_spec(
            language=language,
            source=source,
            entry=self.kernel.get("KernelName", str),
            arguments=arguments,
            sizes=self.sizes,
            grid=grid,
            block=block,
            parameters=self.parameters,
            constraints=[
                converted(one.get("Expression", str), f"{one.place}.Expression")
                for one in conditions
            ],
            baseline=self.baseline,
            options=self.kernel.get("CompilerOptions", list, []),
        )
        return texts, tuple(self.guesses)

    def launch(self) -> tuple[list[str], list[str]]:
        """Grid in blocks, and block."""
        block = self.axes("LocalSize")
        divisors = {
            f"grid_div_{axis.lower()}": self.kernel.get(f"GridDiv{axis}", list)
            for axis in "XYZ"
            if self.kernel.value.get(f"GridDiv{axis}") is not None
        }
        if _PROBLEM_SIZES[0] in self.sizes:
            named = zip(block, BLOCK_NAMES, strict=False)
            names = [extent if extent.isidentifier() else name for extent, name in named]
            found = from_tune_kernel(
                list(self.sizes), self.parameters, block_size_names=names, **divisors
            )
            return found["grid"], block
        grid = self.axes("GlobalSize")
        spoken = self.kernel.get("GlobalSizeType", str, self.kernel.get("Language", str))
        if spoken == "OpenCL":  # counts threads
            paired = zip(grid, [*block, "1", "1"], strict=False)
            grid = [f"ceil_div({size}, {extent})" for size, extent in paired]
        return grid, block

    def axes(self, key: str) -> list[str]:
        """The expressions of one to three axes; axes of 1 at the end are left out."""
        sizes = self.kernel.key(key)
        found = [
            self.sized(sizes.get(axis, (str, int), "1"), f"{sizes.place}.{axis}") for axis in "XYZ"
        ]
        while len(found) > 1 and found[-1] == "1":
            found.pop()
        return found

    def sized(self, given: object, where: str) -> str:
        """An expression with ``ProblemSize[0]`` and the extremes of a parameter filled in."""
        text = re.sub(r"\bProblemSize\[([0-2])\]", lambda m: _PROBLEM_SIZES[int(m[1])], str(given))
        for name, values in self.parameters.items():
            numbers = [value for value in values if not isinstance(value, str)]
            for extreme in (min, max):
                word = rf"\b{extreme.__name__}\(\s*{re.escape(name)}\s*\)"
                if numbers:
                    text = re.sub(word, str(int(extreme(numbers))), text)
        return converted(text, where)

    def argument(self, given: _Key) -> dict[str, object] | None:
        """The spec's entry of an argument.

        Raises:
            SpecError: its type or memory has no counterpart.
        """
        memory = given.get("MemoryType", str)
        name = given.get("Name", str)
        dtype, lanes = _element(given.get("Type", str), given.place)
        if memory == "Scalar":
            number = float if dtype.startswith("float") else int
            value = given.get("FillValue", (int, float))
            try:
                return {"name": name, "kind": "scalar", "dtype": dtype, "value": number(value)}
            except (OverflowError, ValueError):  # infinity, NaN
                raise SpecError(f"{given.place}.FillValue: {value} is no {dtype}") from None
        if memory not in ("Vector", "Symbol"):
            raise SpecError(f"{given.place}.MemoryType: {memory} cannot be an argument of a spec")
        size = self.sized(given.get("Size", (int, str)), f"{given.place}.Size")
        try:
            count = int(Expression.parse(size).evaluate({**self.sizes, **self.baseline}))
        except ExpressionError as problem:
            raise SpecError(f"{given.place}.Size: {problem}") from None
        entry: dict[str, object] = {"name": name, "kind": "in", "dtype": dtype}
        entry["shape"] = [count * lanes]
        if memory == "Symbol" or given.value.get("MemType") == "Constant":
            return {**entry, "kind": "constant", "symbol": name}
        access = given.get("AccessType", str, "")
        if access not in _KINDS:
            self.guesses.append(f"{name} is read and written, since its AccessType is not given")
        entry["kind"] = kind = _KINDS.get(access, "inout")
        fill = given.get("FillType", str, "Random")
        if fill == "Constant" and kind != "out":
            if given.value.get("FillValue"):
                self.guesses.append(f"{name} holds random numbers, not its FillValue everywhere")
            else:
                entry["initial" if kind == "inout" else "values"] = "zeros"
        elif fill not in ("Constant", "Random"):
            self.guesses.append(f"what {name} holds: the file's own data are not read")
        return entry


def _parameter(given: _Key) -> tuple[str, list[Value]]:
    name = given.get("Name", str)
    where = f"{given.place}.Values"
    values = [parameter_value(one, where) for one in _values(given.get("Values", str), where)]
    if given.get("Type", str) == "bool":
        values = [bool(one) for one in values]
    if not values:
        raise SpecError(f"{where} is empty")
    return name, values


def _values(text: str, where: str) -> Sequence[object]:
    """The values of a list literal, a ``range``, or a comprehension over one."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        return _listed(node)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise SpecError(
            f"{where}: {text[:80]!r} is no list of values: write [1, 2, 4], list(range(1, 9)) or "
            "[2**i for i in range(5)]"
        ) from None


def _listed(node: ast.expr) -> Sequence[object]:
    match node:
        case ast.List() | ast.Tuple():
            found = ast.literal_eval(node)
            assert isinstance(found, list | tuple)
            return found
        case ast.Call(func=ast.Name("list" | "tuple"), args=[inner], keywords=[]):
            return _listed(inner)
        case ast.Call(func=ast.Name("range"), args=arguments, keywords=[]):
            counted = range(*map(ast.literal_eval, arguments))
            if len(counted) > _MAX_VALUES:
                raise ValueError
            return counted
        case ast.ListComp(elt, [ast.comprehension(ast.Name(name), source, [], 0)]):
            expression = Expression.parse(ast.unparse(elt))
            return [expression.evaluate({name: parameter_value(n, "")}) for n in _listed(source)]
    raise ValueError


def _element(given: str, place: str) -> tuple[str, int]:
    """The element type, and how many of them a vector type has."""
    if match := _TYPE.fullmatch(given):
        return _TYPES[match[1]], int(match[2] or 1)
    if given == "custom":
        raise SpecError(f"{place}.Type: custom types are not supported: write the spec by hand")
    return given, 1
