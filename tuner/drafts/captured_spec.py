"""A draft spec for a captured kernel: its binary as baseline, captured shapes, data and launches.

Everything that is not recorded fact is marked as a guess, with its reason and how sure it is.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.csource.kernels import Signature, signatures
from tuner.csource.mangling import base_name, source_name
from tuner.drafts.captured import CapturedKernel, CapturedShape, Memory
from tuner.drafts.draft_text import expression_text, marks, scalar_text
from tuner.drafts.fitting import fit_launch, fit_size
from tuner.drafts.guesses import Guess
from tuner.drafts.symbols import comment_text, free_name, quoted
from tuner.experiment.model import ITEM_BYTES, ShapeBinding
from tuner.experiment.source_build import SourceBuild
from tuner.files import plain_name
from tuner.trial import Value

MOST_TUNED, MOST_HELD_OUT = 6, 4
"""Captured shapes that are searched, the most frequent first, and confirmed."""

_LARGEST_SIZE = 1 << 40
_VECTOR_BYTES = 16
"""Bytes of the largest vector access: its address must be a multiple of them."""

_DIVISOR = 16
"""Powers of two beyond need not be promised."""

_UNKNOWN = "uint8"
"""Stands for an element type that nothing tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """An array file: the first ``elements`` behind a pointer on one shape, before the launch.

    Those from ``after`` it are results to compare with, which the spec does not name. ``shape``
    counts the shapes of the :class:`CapturedKernel`.
    """

    name: str
    shape: int
    parameter: int
    dtype: str
    elements: int
    after: bool = False


def result_file(argument: str, symbols: Mapping[str, Value]) -> str:
    """The name of the file in the folder ``after`` that has an output's captured result."""
    return f"{argument}-{ShapeBinding(dict(symbols))}.npy"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedDraft:
    """The text of a spec, and the files that it needs beside the binary."""

    text: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What lies around the spec, as paths relative to it.

    ``binary`` is ``None`` if the application's module was not seen. ``data`` is the folder for
    arrays. ``source`` has the text of the file that defines the kernel, if that is known.
    """

    binary: str | None
    data: str
    source: SourceBuild | None = None


def captured_spec(kernel: CapturedKernel, around: Surroundings) -> CapturedDraft:
    """Draft a spec for a kernel of a capture.

    It validates once ``source`` names a file that exists, unless a comment says what cannot be
    expressed.
    """
    draft = _Draft(kernel, around)
    return CapturedDraft(text="\n".join(draft.lines()) + "\n", files=tuple(draft.files))


class _Draft:
    """The guesses about one kernel."""

    def __init__(self, kernel: CapturedKernel, around: Surroundings) -> None:
        self._kernel, self._around = kernel, around
        self.files: list[DataFile] = []
        self._used = self._alike()
        self._shapes = [kernel.shapes[index] for index in self._used]
        self._signature = self._declared()
        self._names = self._parameter_names()
        self._symbols: dict[str, list[int]] = {}
        self._values: dict[int, str] = {}
        self._add_symbols()
        self._extents = {index: self._extent(index) for index in sorted(kernel.pointers)}
        unit = math.prod(self._shapes[0].block)
        self._grid, self._block = self._axes("grid", unit), self._axes("block", unit)
        shared = [shape.shared_bytes for shape in self._shapes]
        self._shared = self._launched("shared", shared, unit) if any(shared) else None

    def lines(self) -> Iterator[str]:
        """The spec's lines."""
        kernel, base = self._kernel, base_name(self._kernel.symbol)
        named = comment_text(base)
        launches = sum(shape.count for shape in kernel.shapes)
        yield f"# Drafted from a capture of {named} ({launches} launches in all)."
        yield f"# Its shapes: {len(kernel.shapes)}. {self._replays()}"
        yield "# Each guess has its reason and how sure it is: check it, and delete its mark."
        yield "# 'kernelwright validate' on this file says what is wrong or missing."
        for problem in kernel.unsupported:
            yield f"# NOT EXPRESSED: {comment_text(problem)}"
        yield "version: 1"
        yield f"name: {quoted(plain_name(base))}"
        yield ""
        yield from self._kernel_lines()
        yield ""
        yield "arguments:"
        yield from (self._argument(index) for index in range(len(kernel.sizes)))
        yield ""
        yield from self._shape_lines()
        yield ""
        yield f"# reference: reference.py:{named}    # a NumPy function; 'complete' writes one"
        yield "search: {trials: 300, seconds: 600}"

    def _replays(self) -> str:
        outcomes = [shape.replay for shape in self._shapes]
        if set(outcomes) == {"exact"}:
            return "Every replay gave the application's results bit for bit."
        if set(outcomes) == {"none"}:
            return "Nothing was replayed on a device, so more is guessed."
        others = ", ".join(sorted({one for one in outcomes if one != "exact"}))
        exact = outcomes.count("exact")
        return comment_text(f"Exact replays: {exact} of {len(outcomes)}; others: {others}.")

    def _alike(self) -> list[int]:
        """The captured shapes whose blocks and pointers can be told by one spec."""
        shapes = self._kernel.shapes
        captured = [index for index, shape in enumerate(shapes) if shape.memory]
        # A kernel of scalars alone has no memory on any shape.
        captured = captured or list(range(len(shapes)))
        kinds = Counter({self._form(index): 0 for index in captured})
        for index in captured:
            kinds[self._form(index)] += shapes[index].count
        ((form, _),) = kinds.most_common(1)
        same = [index for index in captured if self._form(index) == form]
        return same[: MOST_TUNED + MOST_HELD_OUT]

    def _form(self, index: int) -> tuple[object, ...]:
        shape = self._kernel.shapes[index]
        return (shape.cooperative, shape.cluster, *sorted(shape.memory))

    def _declared(self) -> Signature | None:
        """The kernel's declaration in the source, if its parameters are as many."""
        if self._around.source is None:
            return None
        base = base_name(self._kernel.symbol)
        found = signatures(self._around.source.text, "cuda")
        count = len(self._kernel.sizes)
        return next((s for s in found if s.name == base and len(s.parameters) == count), None)

    def _parameter_names(self) -> list[str]:
        declared = self._signature.parameters if self._signature else ()
        names: list[str] = []
        for index in range(len(self._kernel.sizes)):
            name = declared[index].name if declared else ""
            names.append(free_name(name if name.isidentifier() else f"p{index}", names))
        return names

    def _add_symbols(self) -> None:
        """Symbols for integer scalars that vary, or that are no mere flags."""
        for index in self._shapes[0].scalars:
            dtype = self._dtype(index)
            if dtype is None or not dtype.startswith(("int", "uint")):
                continue
            signed = dtype.startswith("int")
            values = [
                int.from_bytes(shape.scalars[index], "little", signed=signed)
                for shape in self._shapes
            ]
            if min(values) >= 1 and max(values) <= _LARGEST_SIZE and max(values) > 1:
                self._symbols[self._names[index]] = values
                self._values[index] = self._names[index]

    def _dtype(self, index: int) -> str | None:
        guess = self._kernel.types.get(index)
        return guess.text if guess else None

    def _kernel_lines(self) -> Iterator[str]:
        symbol, source = self._kernel.symbol, self._around.source
        entry = source_name(symbol)
        yield "kernel:"
        yield "  language: cuda"
        if source is None:
            yield "  source: SOURCE.cu    # guess: give the file that defines the kernel (low)"
        else:
            yield f"  source: {quoted(source.path)}"
            if source.include_dirs:
                folders = ", ".join(map(quoted, source.include_dirs))
                yield f"  include_dirs: [{folders}]"
            if source.options:
                yield f"  options: [{', '.join(map(quoted, source.options))}]"
            if macros := [one.partition("=")[::2] for one in source.defines]:
                listed = ", ".join(f"{name}: {json.dumps(text or '1')}" for name, text in macros)
                yield f"  defines: {{{listed}}}"
        yield f"  entry: {quoted(entry)}"
        if self._around.binary is not None:
            named = f", symbols: {{{quoted(entry)}: {quoted(symbol)}}}" if entry != symbol else ""
            yield f"  binary: {{file: {quoted(self._around.binary)}{named}}}"

        yield "  launch:"
        for key, fits in (("grid", self._grid), ("block", self._block)):
            texts = ", ".join(expression_text(one.text) for one in fits)
            yield f"    {key}: [{texts}]{marks(fits)}"
        if self._shared:
            yield f"    shared_bytes: {expression_text(self._shared.text)}{marks([self._shared])}"
        if self._shapes[0].cooperative:
            yield "    cooperative: true"
        if cluster := self._shapes[0].cluster:
            yield f"    cluster: {list(cluster)}"

    def _axes(self, key: str, unit: int) -> list[Guess]:
        axes = list(zip(*(getattr(shape, key) for shape in self._shapes), strict=True))
        while len(axes) > 1 and set(axes[-1]) == {1}:
            axes.pop()
        return [self._launched(f"{key}{place}", axis, unit) for place, axis in enumerate(axes)]

    def _launched(self, key: str, values: Sequence[int], unit: int) -> Guess:
        fitted = fit_launch(values, self._symbols, unit)
        return fitted or self._own_symbol(key, values)

    def _own_symbol(self, name: str, values: Sequence[int]) -> Guess:
        """A symbol that each shape binds, for numbers that nothing explains."""
        self._symbols[name] = [max(1, value) for value in values]
        return Guess(name, "no expression of the scalars fits: a symbol of its own", "low")

    def _extent(self, index: int) -> Guess:
        """The elements that are read or written behind a pointer."""
        counts = self._counts(index)
        if not counts:
            return Guess("1", "null", "high")
        return fit_size(counts, self._symbols) or self._own_symbol(
            f"{self._names[index]}_items", counts
        )

    def _counts(self, index: int) -> list[int]:
        item = ITEM_BYTES[self._dtype(index) or _UNKNOWN]
        return [max(1, -(-memory.bytes // item)) for memory in self._memories(index)]

    def _memories(self, index: int) -> list[Memory]:
        return [shape.memory[index] for shape in self._shapes if index in shape.memory]

    def _argument(self, index: int) -> str:
        name, dtype = self._names[index], self._dtype(index)
        if index in self._kernel.pointers:
            return self._pointer(index)
        raw = self._shapes[0].scalars[index]
        if dtype is None:
            text = f"  - {{name: {name}, kind: struct, bytes: {json.dumps(raw.hex())}}}"
            return f"{text}    # its bytes as captured"
        head = f"  - {{name: {name}, kind: scalar, dtype: {dtype}, value: "
        if index in self._values:
            return f"{head}{self._values[index]}}}{marks(self._type(index))}"
        varies = len({shape.scalars[index] for shape in self._shapes}) > 1
        value = [Guess("", "of the first shape; it varies", "low")] if varies else []
        return f"{head}{scalar_text(raw, dtype)}}}{marks([*self._type(index), *value])}"

    def _pointer(self, index: int) -> str:
        name, memories = self._names[index], self._memories(index)
        if not memories:
            return f"  - {{name: {name}, kind: null}}"
        dtype = self._dtype(index) or _UNKNOWN
        kind, why = self._kind(index, memories)
        extent = self._extents[index]
        aligned = min(_VECTOR_BYTES, *(memory.address & -memory.address for memory in memories))
        keys = [f"kind: {kind}", f"dtype: {dtype}", f"shape: [{expression_text(extent.text)}]"]
        if aligned > ITEM_BYTES[dtype]:
            keys.append(f"align: {aligned}")
        if kind in ("out", "inout"):
            self._add_results(index, dtype)
        if kind in ("in", "inout"):
            key = "values" if kind == "in" else "initial"
            keys.append(f"{key}: {{file: {quoted(self._data(index, dtype))}}}")
        size = Guess("", f"extent {extent.why}", extent.confidence)
        return f"  - {{name: {name}, {', '.join(keys)}}}{marks([why, *self._type(index), size])}"

    def _kind(self, index: int, memories: Sequence[Memory]) -> tuple[str, Guess]:
        kinds = {memory.kind for memory in memories}
        replayed = all(memory.replayed for memory in memories)
        shared = [
            self._names[other]
            for other, memory in self._shapes[0].memory.items()
            if other != index and memory.address == memories[0].address
        ]
        if shared:
            reason = f"the same memory as {', '.join(shared)}, which a spec passes as two copies"
            return _used_kind(kinds), Guess("", reason, "low")
        if kinds == {"unused"}:
            return "in", Guess("", "no byte of it mattered", "low")
        reason = "by replay" if replayed else "by what changed; not replayed"
        if any(memory.written and not memory.dense for memory in memories):
            reason += "; written in part"
        if any(memory.fault for memory in memories):
            reason += "; other contents crash the kernel: indices or sizes"
        return _used_kind(kinds), Guess("", reason, "high" if replayed else "low")

    def _data(self, index: int, dtype: str) -> str:
        """The name of an argument's array files; adds them to those that are needed."""
        varying = [name for name, values in self._symbols.items() if len(set(values)) > 1]
        stem = "-".join([self._names[index], *(f"{{{name}}}" for name in varying)])
        path = f"{self._around.data}/{stem}.npy"
        for place, elements in enumerate(self._counts(index)):
            bound = {name: values[place] for name, values in self._symbols.items()}
            self.files.append(
                DataFile(
                    name=path.format(**bound),
                    shape=self._used[place],
                    parameter=index,
                    dtype=dtype,
                    elements=elements,
                )
            )
        return path

    def _add_results(self, index: int, dtype: str) -> None:
        for place, elements in enumerate(self._counts(index)):
            bound = {name: values[place] for name, values in self._symbols.items()}
            name = result_file(self._names[index], bound)
            self.files.append(
                DataFile(
                    name=f"{self._around.data}/after/{name}",
                    shape=self._used[place],
                    parameter=index,
                    dtype=dtype,
                    elements=elements,
                    after=True,
                )
            )

    def _type(self, index: int) -> list[Guess]:
        """Why an argument has its type, unless that is sure."""
        guess = self._kernel.types.get(index)
        if guess is None:
            return [Guess("", "type unknown", "low")]
        if guess.confidence == "high":
            return []
        return [Guess("", f"type by {guess.why}", guess.confidence)]

    def _shape_lines(self) -> Iterator[str]:
        yield "shapes:"
        limits = ", ".join(f'"{text}"' for text in self._domain())
        yield f"  domain: [{limits}]    # guess: only what was captured; widen it (low)"
        yield "  tune:    # as captured, weighted by launches"
        for place, shape in enumerate(self._shapes[:MOST_TUNED]):
            yield f"    - {self._bound(place, shape)}"
        if self._shapes[MOST_TUNED:]:
            yield "  held_out:"
            for place, shape in enumerate(self._shapes[MOST_TUNED:], MOST_TUNED):
                yield f"    - {self._bound(place, shape, weighted=False)}"
        left = len(self._kernel.shapes) - len(self._shapes)
        if left:
            yield f"  # {left} other shapes were launched; capture more with --max-shapes"

    def _domain(self) -> Iterator[str]:
        for name, values in self._symbols.items():
            low, high = min(values), max(values)
            if low == high:
                yield f"{name} == {low}"
                continue
            yield f"{low} <= {name}"
            yield f"{name} <= {high}"
            divisor = min(_DIVISOR, math.gcd(*values) & -math.gcd(*values))
            if divisor > 1:
                yield f"{name} % {divisor} == 0"

    def _bound(self, place: int, shape: CapturedShape, *, weighted: bool = True) -> str:
        bound = [f"{name}: {values[place]}" for name, values in self._symbols.items()]
        weight = [f"weight: {shape.count}"] if weighted and shape.count != 1 else []
        return f"{{{', '.join([*bound, *weight])}}}"


def _used_kind(kinds: set[str]) -> str:
    """The kind of an argument that has these on several shapes."""
    used = kinds - {"unused"}
    return used.pop() if len(used) == 1 else "inout" if used else "in"
