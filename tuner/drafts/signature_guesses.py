"""Guesses about a kernel whose launch is not found: from its signature and its indices."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.backends.registry import traits_of
from tuner.csource.accesses import Access, Launched, accesses
from tuner.csource.arithmetic import Polynomial
from tuner.csource.host_program import HostProgram
from tuner.csource.index_bounds import ONE
from tuner.csource.indices import MAX_AXES, Axis, Indices
from tuner.csource.kernels import KernelSource, Parameter, called_code, reachable_code
from tuner.csource.tree import without_qualifiers
from tuner.drafts.array_guesses import extents, size_of, use
from tuner.drafts.guesses import ArgumentGuess, Guess, SpecGuesses, least
from tuner.drafts.symbols import END, PER_SEGMENT, free_name, quoted
from tuner.drafts.value_guesses import (
    aligned,
    cast_align,
    index_contents,
    struct_guess,
    unknown_value,
    vector_align,
)

_SIZES = {1: (65536, 1024), 2: (512, 32), 3: (64, 16)}
"""For so many dimensions, a size to tune for and a small one, which the checkers get through; both
multiples of any block that is guessed."""
_THREADS = 256
"""Of a block with one axis."""
_DIM = "n"
_COLUMNS = re.compile(r"(?:^|[^a-z]|n|num)col(?:s|umns?)?(?![a-z])", re.IGNORECASE)
_ROWS = re.compile(r"row", re.IGNORECASE)


@dataclass(frozen=True)
class SignatureGuesses:
    """The guesses about one kernel."""

    kernel: KernelSource
    indices: Indices

    def guesses(self) -> SpecGuesses:
        """The whole spec."""
        grid, block = self._launch
        size, small = _SIZES[self._dimensions]
        types = dict.fromkeys(self._types, "float16")
        ends = (END,) if self.indices.offsets else ()
        return SpecGuesses(
            entry=Guess(self._entry, "which instance", "low"),
            grid=Guess(f"[{grid}]", "no launch was found", "low"),
            block=Guess(f"[{block}]", "the kernel's reqd_work_group_size", "high")
            if self.indices.required_block
            else Guess(f"[{block}]", "no launch was found", "low"),
            shared=None,
            arguments=tuple(
                self._argument(name, parameter)
                for name, parameter in zip(self._names, self._parameters, strict=True)
            ),
            domain=Guess(
                f"[{', '.join(quoted(f'1 <= {name}') for name in self._symbols)}]",
                "every positive size",
                "low",
            ),
            tune={
                **dict.fromkeys(self._symbols, str(size)),
                **dict.fromkeys(ends, str(PER_SEGMENT * size)),
                **types,
            },
            held_out={
                **dict.fromkeys(self._symbols, str(small)),
                **dict.fromkeys(ends, str(PER_SEGMENT * small)),
                **types,
            },
            sizes_why="sizes that matter to you",
            sizes_confidence="low",
        )

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        return self.kernel.signature.parameters

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(p.name or f"arg{i}" for i, p in enumerate(self._parameters))

    @property
    def _types(self) -> tuple[str, ...]:
        """The type parameters of a C++ template, which become type symbols."""
        kinds = self.kernel.signature.template
        return tuple(name for name, kind in kinds if kind in ("typename", "class"))

    @property
    def _entry(self) -> str:
        signature = self.kernel.signature
        name = f"{signature.namespace}{signature.name}"
        if not signature.template:
            return quoted(name)
        values = [f"{{{n}}}" if n in self._types else "1" for n, _ in signature.template]
        return f'"{name}<{", ".join(values)}>"'

    @cached_property
    def _sizes(self) -> tuple[str, ...]:
        """The symbols that sizes are guessed from: the integers that the kernel is given."""
        pairs = zip(self._names, self._parameters, strict=True)
        return tuple(free_name(name, self._types) for name, p in pairs if p.is_integer) or (_DIM,)

    @cached_property
    def _rows(self) -> str | None:
        """The number of blocks, if each has a segment, or a row whose length is the only size.

        A symbol of its own where the kernel is not given it.
        """
        if segments := self.indices.block_segments:
            counts = self._unused - {END}
            unused = (n for n in self._sizes if n in counts and not _COLUMNS.search(n))
            given = self._size(segments.bound) or next(unused, None)
            return given or self._own_symbol(segments.index)
        rows = self.indices.block_rows
        alone = rows and (self._size(rows.length),) == self._sizes
        return self._own_symbol(rows.variable) if rows and alone else None

    def _own_symbol(self, index: str) -> str:
        """A symbol for how many numbers a variable, or an expression, has."""
        name = f"{index}s" if index.isidentifier() else "segments"
        return free_name(name, (*self._types, *self._names))

    @cached_property
    def _lengths(self) -> tuple[str, ...]:
        """The sizes, and before them the number of rows, if that is none of them."""
        if self._rows is None or self._rows in self._sizes:
            return self._sizes
        return (self._rows, *self._sizes)

    @cached_property
    def _symbols(self) -> tuple[str, ...]:
        """The lengths, and where the last segment ends unless that is one of them."""
        known = self._lengths
        return tuple(dict.fromkeys((*known, END))) if self.indices.offsets else known

    @property
    def _launch(self) -> tuple[str, str]:
        """Grid and block: one dimension over all elements, or as many as the source asks for.

        Blocks are one thread wide where the source reads no thread's index.
        """
        axes = self.indices.axes
        block = self.indices.required_block or self._block(axes)
        unseen = Axis(thread=True, block=True, bound=None)
        axes = (*axes, *[unseen] * (len(block) - len(axes)))
        block = (*block, *[1] * (len(axes) - len(block)))
        bounds = [self._size(axis.bound) for axis in axes]
        left = [size for size in reversed(self._shape) if size not in bounds]
        if len(axes) == 1:
            left = [" * ".join(self._used)]
        covered = block  # elements of each axis that a block covers
        if self._rows:
            bounds[0], covered, left = self._rows, (1, *block[1:]), []
        grid = []
        for axis, bound, threads in zip(axes, bounds, covered, strict=True):
            size = bound or (left.pop(0) if left and (axis.thread or axis.block) else "1")
            grid.append(quoted(size) if threads == 1 else f'"ceil_div({size}, {threads})"')
        return ", ".join(grid), ", ".join(map(str, block))

    @cached_property
    def _cast_align(self) -> int:
        return cast_align(self.kernel, reachable_code(self.kernel))

    def _block(self, axes: tuple[Axis, ...]) -> tuple[int, ...]:
        threaded = [axis for axis in axes if axis.thread]
        width = min(_THREADS, self.indices.thread_elements or _THREADS)
        widths = iter(((), (width,), (16, 16), (8, 8, 4))[len(threaded)])
        return tuple(next(widths) if axis.thread else 1 for axis in axes)

    @property
    def _shape(self) -> tuple[str, ...]:
        return self._sizes[:MAX_AXES]

    @property
    def _dimensions(self) -> int:
        """How many the largest array has, or a launch over all sizes that the code uses."""
        pairs = zip(self._names, self._parameters, strict=True)
        arrays = (self._extents(name) for name, p in pairs if p.pointer or p.local)
        return min(MAX_AXES, max(map(len, (self._used, *arrays))))

    @cached_property
    def _unused(self) -> frozenset[str]:
        """The sizes that the code does not use."""
        if not self.kernel.block:
            return frozenset()
        code = f"{self.kernel.code(self.kernel.body)}\n{called_code(self.kernel)}"
        words = {free_name(word, self._types) for word in re.findall(r"[A-Za-z_]\w*", code)}
        return frozenset(self._sizes) - words

    def _held(self, array: str) -> str:
        """The size that an array of indices holds numbers below: columns that nothing else uses."""
        unused = (size for size in self._sizes if size in self._unused and _COLUMNS.search(size))
        column = None if _ROWS.search(array) else next(unused, None)
        return column or next((size for size in self._shape if size != END), END)

    def _indexed(self, array: str, used: str | None) -> str:
        """The size that elements of an array stay below, where ``used`` is such an index."""
        target = used.partition("[")[0] if used else ""
        length = self._extents(target) if target in self._accesses else ()
        return length[0] if len(length) == 1 and length[0] in self._sizes else self._held(array)

    @property
    def _used(self) -> tuple[str, ...]:
        """The extents of a launch over all elements: sizes that the code uses, all if none is."""
        ends = {END} if self.indices.offsets else set()
        used = tuple(size for size in self._shape if size not in self._unused | ends)
        return used or ((self._rows,) if self._rows else self._shape)

    def _extents(self, array: str) -> tuple[str, ...]:
        """An array's shape: where its indices surely need another length, that length."""
        matrices = self.indices.block_rows
        if self._rows and matrices and array in matrices.arrays:
            row_length = self._size(matrices.length)
            return (self._rows, row_length) if row_length else self._shape
        shape = self._multiplied(array)
        reached = [access.extent for access in self._accesses[array]]
        if array in self.indices.offsets or None in reached:
            return shape
        # Unlike sizes, so that products of different ones differ.
        sizes = {name: 4096 + 9 * place for place, name in enumerate(self._lengths)}
        sizes[END] = PER_SEGMENT * 4096
        elements = [size_of(one, sizes) or 0 for one in reached if one is not None]
        guessed = size_of(_product(shape), sizes) or 0
        longest = max(elements, default=0)
        too_long = self.indices.certain(array) and 2 * longest <= guessed
        if not longest or (guessed >= longest and not too_long):
            return shape
        if len(shape) == 2 and self.indices.borders(shape[0]):
            over = longest - guessed  # a row that only a neighbour within the border would reach
            if 0 < over <= (size_of(_product(shape[1:]), sizes) or 0):
                return shape
        length = reached[elements.index(longest)]
        places = {name: place for place, name in enumerate(self.indices.factors(array))}
        order = sorted(self._symbols, key=lambda name: places.get(name, -1))
        return extents(length, order) if length else shape

    @cached_property
    def _accesses(self) -> Mapping[str, Sequence[Access]]:
        """The accesses to each array whose pointer is one to numbers."""
        kernel = self.kernel
        pairs = zip(self._names, self._parameters, strict=True)
        unknown = (Polynomial.atom("(unknown)"),) * MAX_AXES
        launched = Launched(
            grid=(Polynomial.atom(self._rows), *unknown[1:]) if self._rows else unknown,
            block=unknown,
            known={
                name: Polynomial.atom(free_name(name, self._types))
                for name, p in pairs
                if p.is_integer
            },
            elements={
                f"{name}[]": Polynomial.atom(END) + ONE
                if name in self.indices.offsets
                else Polynomial.atom(self._held(name))
                for name in self.indices.used_as_index
            },
        )
        source, body = (
            without_qualifiers(text, kernel.language)
            for text in (kernel.source, kernel.code(kernel.body))
        )
        arrays = {p.name: 1 for p in self._parameters if p.pointer}
        found: dict[str, list[Access]] = defaultdict(list)
        for access in accesses(HostProgram({"": source}), body, arrays, launched):
            found[access.array].append(access)
        return found

    def _multiplied(self, array: str) -> tuple[str, ...]:
        """Of a matrix, what a row is multiplied by in its index is the last extent."""
        segments = self.indices.block_segments
        by_block = segments and array in segments.arrays
        if length := self._rows if by_block else self._size(self.indices.length(array)):
            return (f"{length} + 1",) if array in self.indices.offsets else (length,)
        found = list(map(self._size, self.indices.factors(array)))
        named = [size for size in found if size in self._shape]
        multiplied = named or [size for size in found if size]
        rest = tuple(size for size in self._shape if size not in multiplied)
        return (*rest, *multiplied) if len(multiplied) == len(rest) == 1 else self._shape

    def _size(self, word: str | None) -> str | None:
        """A word of the source as a size: a number, or an integer that the kernel is given."""
        if word is None or word.isdecimal():
            return word
        symbol = free_name(word, self._types)
        return symbol if symbol in self._sizes else None

    def _argument(self, name: str, parameter: Parameter) -> ArgumentGuess:
        known = parameter.type in self._types
        if parameter.pointer or parameter.local:
            return self._array(name, parameter, known=known)
        if parameter.lanes > 1 or not (parameter.dtype or known):
            return struct_guess(self.kernel, name, parameter, self._sizes)
        dtype = parameter.type if known else parameter.dtype or ""
        if parameter.is_integer:
            size = free_name(name, self._types)
            value, why = quoted(size), "a size"
            if size in self._unused:
                why += ", which the code does not use"
        else:
            value, why = unknown_value(name, dtype)
        fields = {"kind": "scalar", "dtype": dtype, "value": value}
        return ArgumentGuess(name=name, fields=fields, why=why, confidence="low")

    def _array(self, name: str, parameter: Parameter, *, known: bool) -> ArgumentGuess:
        kind, why, sure = use(parameter, self._accesses[name])
        dtype = parameter.type if known else (parameter.dtype or "uint8")
        if not (known or parameter.dtype):
            why += f"; the type '{parameter.type}' is not understood"
        *outer, last = self._extents(name)
        if parameter.lanes > 1:
            elements = traits_of(self.kernel.language).vector_elements(parameter.lanes)
            vectors = last if re.fullmatch(r"\w+", last) else f"({last})"
            last = f"{elements} * {vectors}"
            why += f"; in elements of {dtype}, {elements} to a {parameter.type}"
        shape = ", ".join(map(quoted, (*outer, last)))
        fields = {"kind": kind, "dtype": dtype, "shape": f"[{shape}]"}
        own = vector_align(self.kernel, dtype, parameter.lanes) if parameter.lanes > 1 else 1
        why += aligned(fields, own, self._cast_align)
        offset, used = self.indices.offsets.get(name), self.indices.used_as_index.get(name)
        why += index_contents(fields, name, offset, used, self._indexed(name, used))
        return ArgumentGuess(name=name, fields=fields, why=why, confidence=least(sure, "medium"))


def _product(shape: Sequence[str]) -> Polynomial:
    """The number of elements of a shape of names, or of one length."""
    length = Polynomial.number(1)
    for extent in shape:
        one = Polynomial.number(int(extent)) if extent.isdigit() else Polynomial.atom(extent)
        length = length * one
    return length
