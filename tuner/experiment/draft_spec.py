"""A first spec for a kernel: written from its signature, with every guess marked as one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.backends.registry import backends, traits_of
from tuner.csource.indices import MAX_AXES, Axis, Indices
from tuner.csource.kernels import KernelSource, Parameter, kernels, unsupported_parameters
from tuner.csource.structs import StructMember, struct_members
from tuner.errors import SpecError
from tuner.experiment.fields import read_text
from tuner.experiment.model import ITEM_BYTES
from tuner.expressions import RESERVED, nearest

_AMBIGUOUS = frozenset({"on", "off", "yes", "no", "true", "false", "null"})
_SIZES = {1: (65536, 1024), 2: (512, 32), 3: (64, 16)}
"""For so many dimensions, a size to tune for and a small one, which the checkers get through; both
multiples of any block that is guessed."""
_DIM = "n"
_INDEX_TYPES = frozenset({"int32", "int64", "uint32", "uint64", "int16", "uint16"})
_GUESS = re.compile(r"#\s*guess\b")


def draft_spec(kernel: Path, entry: str | None = None) -> str:
    """The text of a commented spec for the kernel in the file ``kernel``.

    It is meant to lie beside that file, and validates unless the signature holds what no spec can
    express, which a comment then says.

    Args:
        kernel: A ``.cl`` or ``.cu`` file.
        entry: Which of its kernels; needed only where there are several.

    Raises:
        SpecError: The file cannot be read, or it is unclear which kernel is meant.
    """
    traits = next((one for one in backends() if kernel.suffix in one.suffixes), None)
    if traits is None:
        suffixes = ", ".join(sorted(suffix for one in backends() for suffix in one.suffixes))
        raise SpecError(f"{kernel}: a kernel file ends in {suffixes}")
    try:
        source = read_text(kernel)
    except ValueError as error:
        raise SpecError(str(error)) from None
    found: dict[str, KernelSource] = {}
    for each in kernels(source, traits.name):
        if each.block or each.name not in found:
            found[each.name] = each
    if not found:
        mark = traits.kernel_qualifiers[0]
        raise SpecError(f"{kernel}: no kernel found; one begins with {mark}")
    if entry is None and len(found) > 1:
        raise SpecError(
            f"{kernel} holds several kernels; choose one with --entry: {', '.join(found)}"
        )
    name = entry or next(iter(found))
    if name not in found:
        hint = nearest(name, found) or f"; there are: {', '.join(found)}"
        raise SpecError(f"{kernel}: no kernel '{name}'{hint}")
    for of, parameter, what in unsupported_parameters(source, traits.name):
        if of == name:
            raise SpecError(
                f"{kernel}: parameter '{parameter}' of {name} is {what}, which is not supported"
            )
    draft = _Draft(found[name], Indices(found[name]))
    return "\n".join(_lines(draft, kernel.name)) + "\n"


def unread_guesses(text: str) -> tuple[int, ...]:
    """The lines of a spec, from 1, on which a guess is still marked as one."""
    return tuple(at for at, line in enumerate(text.splitlines(), 1) if _GUESS.search(line))


@dataclass(frozen=True, slots=True)
class _Draft:
    """The guesses about one kernel."""

    kernel: KernelSource
    indices: Indices

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.kernel.signature.parameters

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name or f"arg{i}" for i, p in enumerate(self.parameters))

    @property
    def types(self) -> tuple[str, ...]:
        """The type parameters of a C++ template, which become type symbols."""
        kinds = self.kernel.signature.template
        return tuple(name for name, kind in kinds if kind in ("typename", "class"))

    @property
    def entry(self) -> str:
        signature = self.kernel.signature
        name = f"{signature.namespace}{signature.name}"
        if not signature.template:
            return _quoted(name)
        values = [f"{{{n}}}" if n in self.types else "1" for n, _ in signature.template]
        return f'"{name}<{", ".join(values)}>"'

    def align(self, dtype: str, lanes: int) -> int:
        """The alignment of a vector type, in bytes."""
        return traits_of(self.kernel.language).vector_align(ITEM_BYTES[dtype], lanes)

    def symbol(self, name: str) -> str:
        return f"{name}_" if name in RESERVED or name == "weight" or name in self.types else name

    @property
    def sizes(self) -> tuple[str, ...]:
        """The symbols that sizes are guessed from: the integers that the kernel is given."""
        pairs = zip(self.names, self.parameters, strict=True)
        given = tuple(self.symbol(name) for name, p in pairs if _is_integer(p))
        return given or (_DIM,)

    @property
    def launch(self) -> tuple[str, str]:
        """Grid and block: one dimension over all elements, or as many as the source asks for.

        Blocks are one thread wide where the source reads no thread's index.
        """
        axes = self.indices.axes
        block = self.indices.required_block or self._block(axes)
        unseen = Axis(thread=True, block=True, bound=None)
        axes = (*axes, *[unseen] * (len(block) - len(axes)))
        block = (*block, *[1] * (len(axes) - len(block)))
        bounds = [self._size(axis.bound) for axis in axes]
        left = [size for size in reversed(self.shape) if size not in bounds]
        if len(axes) == 1:
            left = [" * ".join(self.shape)]
        grid = []
        for axis, bound, threads in zip(axes, bounds, block, strict=True):
            size = bound or (left.pop(0) if left and (axis.thread or axis.block) else "1")
            grid.append(_quoted(size) if threads == 1 else f'"ceil_div({size}, {threads})"')
        return ", ".join(grid), ", ".join(map(str, block))

    def _block(self, axes: tuple[Axis, ...]) -> tuple[int, ...]:
        threaded = [axis for axis in axes if axis.thread]
        widths = iter(((), (256,), (16, 16), (8, 8, 4))[len(threaded)])
        return tuple(next(widths) if axis.thread else 1 for axis in axes)

    @property
    def shape(self) -> tuple[str, ...]:
        return self.sizes[:MAX_AXES]

    @property
    def dimensions(self) -> int:
        """How many the largest array has."""
        shapes = [self.shape, *map(self.extents, self.names)]
        return min(MAX_AXES, max(map(len, shapes)))

    def extents(self, array: str) -> tuple[str, ...]:
        """An array's shape; of a matrix, what a row is multiplied by in its index is the last."""
        if length := self._size(self.indices.length(array)):
            return (length,)
        found = list(map(self._size, self.indices.factors(array)))
        named = [size for size in found if size in self.shape]
        multiplied = named or [size for size in found if size]
        rest = tuple(size for size in self.shape if size not in multiplied)
        return (*rest, *multiplied) if len(multiplied) == len(rest) == 1 else self.shape

    def _size(self, word: str | None) -> str | None:
        """A word of the source as a size: a number, or an integer that the kernel is given."""
        if word is None or word.isdecimal():
            return word
        return self.symbol(word) if self.symbol(word) in self.sizes else None


def _is_integer(parameter: Parameter) -> bool:
    integers = ("int", "uint")
    return not parameter.pointer and (parameter.dtype or "").startswith(integers)


def _lines(draft: _Draft, file: str) -> Iterator[str]:
    name = draft.kernel.name
    yield f"# Written from the signature of {name} in {file}. Every guess needs your eye:"
    yield "# correct it, and delete its mark. 'kernelwright validate' on this file says what is"
    yield "# wrong or missing, and which guesses are left."
    yield "version: 1"
    yield f"name: {_quoted(name)}"
    yield ""
    yield "kernel:"
    yield f"  language: {draft.kernel.language}"
    yield f"  source: {_quoted(file)}    # relative to this file"
    yield f"  entry: {draft.entry}" + ("    # guess: which instance" if draft.types else "")
    yield "  # options: []         # what the application compiles it with"
    yield "  # include_dirs: []    # folders of the headers that it includes"
    yield "  launch:               # guess: write here how the application launches it"
    grid, block = draft.launch
    yield f"    grid: [{grid}]    # blocks (work-groups)"
    yield f"    block: [{block}]        # threads (work-items) of each"
    yield ""
    yield "arguments:              # in the kernel's order"
    for argument, parameter in zip(draft.names, draft.parameters, strict=True):
        yield _argument(draft, argument, parameter)
    yield ""
    yield "shapes:"
    yield f'  # domain: ["1 <= {draft.sizes[-1]}"]    # where the kernel promises to work'
    size, small = _SIZES[draft.dimensions]
    yield "  tune:                 # guess: the sizes that matter to you"
    yield f"    - {_bound(draft, size)}"
    yield "  held_out:             # guess: sizes that only judge, one of them small for checkers"
    yield f"    - {_bound(draft, small)}"
    yield ""
    yield f"# reference: reference.py:{name}    # NumPy, float64: from inputs, inouts and scalars,"
    yield "                        # by name, to a dictionary of what outs and inouts become"
    yield "# cost: {bytes: 0, flops: 0}      # moved and done per launch, over the symbols"
    yield "# template: template.yaml         # the parameterised kernel to search"
    yield ""
    yield "search: {trials: 100, seconds: 300}"


def _bound(draft: _Draft, size: int) -> str:
    symbols = [f"{_quoted(symbol)}: {size}" for symbol in draft.sizes]
    symbols += [f"{name}: float16" for name in draft.types]
    return f"{{{', '.join(symbols)}}}"


def _argument(draft: _Draft, name: str, parameter: Parameter) -> str:
    known = parameter.type in draft.types
    dtype = parameter.type if known else (parameter.dtype or "uint8")
    doubt = (
        "" if known or parameter.dtype else f"guess: the type '{parameter.type}' is not understood"
    )
    head = f"  - {{name: {_quoted(name)}, "
    if parameter.local:
        return f"  # {name}: local memory cannot be passed; declare it inside the kernel"
    if parameter.pointer:
        kind, why = "out", "not const, so written; 'inout' if also read"
        if parameter.const:
            kind, why = "in", "const, so read"
        elif name in draft.indices.updated:
            kind, why = "inout", "updated in place, so read and written"
        *outer, last = draft.extents(name)
        if parameter.lanes > 1:
            last = f"{parameter.lanes} * {last}"
        shape = ", ".join(map(_quoted, (*outer, last)))
        text = f"{head}kind: {kind}, dtype: {dtype}, shape: [{shape}]"
        if parameter.lanes > 1:
            text += f", align: {draft.align(dtype, parameter.lanes)}"
            why += f"; in elements of {dtype}, {parameter.lanes} to a {parameter.type}"
        if kind != "out" and dtype in _INDEX_TYPES and name in draft.indices.used_as_index:
            key = "values" if kind == "in" else "initial"
            text += f', {key}: {{integers: [0, "{draft.shape[0]} - 1"]}}'
            why += f"; an index: {draft.indices.used_as_index[name]}"
        return f"{text}}}    # guess: {why}" + (f"; {doubt}" if doubt else "")
    if parameter.lanes > 1:
        return _vector(draft, head, parameter)
    if not parameter.dtype:
        return _struct(draft, head, parameter)
    value = draft.symbol(name) if _is_integer(parameter) else "1"
    note = "    # a symbol, bound by each shape" if _is_integer(parameter) else "    # guess"
    return f"{head}kind: scalar, dtype: {dtype}, value: {_quoted(value)}}}{note}"


def _vector(draft: _Draft, head: str, parameter: Parameter) -> str:
    """A vector that is passed by value."""
    assert parameter.dtype is not None
    member = StructMember("value", parameter.dtype, parameter.lanes, parameter.lanes)
    return f"{head}kind: struct, fields: [{_member(draft, member)}]}}    # guess: its value"


def _struct(draft: _Draft, head: str, parameter: Parameter) -> str:
    """A struct by value: its fields where the source defines it, or else one byte."""
    found = struct_members(draft.kernel.tree, parameter.type)
    if found is None:
        said = f"guess: the bytes of '{parameter.type}', which is not understood"
        return f'{head}kind: struct, bytes: "00"}}    # {said}'
    lines = [f"      {_member(draft, member)}," for member in found]
    return "\n".join([f"{head}kind: struct, fields: [    # guess: the values", *lines, "    ]}"])


def _member(draft: _Draft, member: StructMember) -> str:
    values = ", ".join("0" * member.count)
    align = f", align: {draft.align(member.dtype, member.lanes)}" if member.lanes > 1 else ""
    value = f"[{values}]" if member.count > 1 else values
    return f"{{name: {_quoted(member.name)}, dtype: {member.dtype}, value: {value}{align}}}"


def _quoted(text: str) -> str:
    plain = text.replace("_", "").replace(".", "").isalnum() and text.lower() not in _AMBIGUOUS
    return text if (plain and not text[0].isdigit()) or text == "1" else f'"{text}"'
