"""Guesses about a kernel from the place where the host launches it.

Sizes are the integers that the kernel is given, under its own names, and whatever else the
launch depends on. What the application fixes becomes the shape to tune.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from tuner.csource.accesses import Access, Launched, accesses
from tuner.csource.arithmetic import Polynomial, quotients
from tuner.csource.host_facts import allocated, asserted_divisions, float_constant, without_casts
from tuner.csource.host_launches import HostLaunch
from tuner.csource.host_program import HostProgram
from tuner.csource.host_types import resolved_type
from tuner.csource.host_values import Scope
from tuner.csource.index_bounds import ONE
from tuner.csource.indices import Indices
from tuner.csource.kernels import KernelSource, Parameter, reachable_code
from tuner.drafts.array_guesses import ArrayGuess, array_guess
from tuner.drafts.guesses import ArgumentGuess, Guess, SpecGuesses
from tuner.drafts.symbols import END, PER_SEGMENT, free_name, quoted, usual_size
from tuner.drafts.template_guesses import TemplateGuesses
from tuner.drafts.value_guesses import (
    aligned,
    cast_align,
    index_contents,
    struct_guess,
    unknown_value,
    vector_align,
)
from tuner.experiment.model import ITEM_BYTES
from tuner.expressions import Expression, ExpressionError

_NAME = re.compile(r"[A-Za-z_][\w.]*")
_FACTOR = re.compile(r"\*\s*(\w+)")
_CONSTANT = re.compile(r"__constant__\s+(?:const\s+)?([\w:]+)\s+(\w+)\s*((?:\[[^\]]*\]\s*)*);")
_MOST_ELEMENTS = 1 << 28
"""Of one array, at sizes that nothing in the application says."""

_LEAST_SIZE = 32
"""A literal argument below this is a mode or a small dimension, which is no size to vary."""

_THREADS = 256
_TILE = 16
"""Threads along an axis of a block whose size the application leaves open: of one, of several."""


class LaunchGuesses:
    """Reads one launch of a kernel."""

    def __init__(self, kernel: KernelSource, site: HostLaunch, program: HostProgram) -> None:
        self._kernel, self._site, self._program = kernel, site, program
        self._template = TemplateGuesses(kernel, site, program)
        self._indices = Indices(kernel)
        _, *others = program.code.values()
        self._cast_align = cast_align(kernel, reachable_code(kernel, others))
        self._parameters = kernel.signature.parameters
        names = (parameter.name for parameter in self._parameters)
        self._passed = dict(zip(names, site.arguments, strict=False))
        self._tune: dict[str, int] = {}
        self._values: dict[str, Polynomial] = {}
        self._free: set[str] = set()
        self._unknown: frozenset[str] = frozenset()
        self._scope = self._bind_sizes(replace(site.scope, types=self._template.types))
        self._grid, self._block = self._bind_launch()

    @property
    def understood(self) -> bool:
        """Whether the launch's grid and block are known."""
        return bool(self._grid and self._block)

    def guesses(self) -> SpecGuesses:
        """The whole spec."""
        arrays = self._arrays()
        while self._free and _elements(arrays, self._tune) > _MOST_ELEMENTS:
            largest = max(self._free, key=lambda name: self._tune[name])
            self._tune[largest] //= 2
        conditions = self._conditions(arrays)
        tune = self._shape(conditions, 1)
        if not tune:  # what cannot be met is misunderstood
            tune = dict(self._tune)
            conditions = [text for text in conditions if _holds(text, tune)]
        smaller = (self._shape(conditions, part) for part in (16, 8, 4, 2))
        held_out = next((shape for shape in smaller if shape and shape != tune), None)
        where = f"launched so in {self._site.file}:{self._site.line}"
        types = self._template.symbols
        fixed = not self._free
        return SpecGuesses(
            entry=Guess(self._template.entry, where, "medium" if types else "high"),
            grid=self._launched(_axes(self._grid), self._asked(self._site.grid)),
            block=self._launched(_axes(self._block), self._asked(self._site.block)),
            shared=self._shared(),
            arguments=(
                *(self._argument(parameter, arrays) for parameter in self._parameters),
                *self._constants(),
            ),
            domain=Guess(
                f"[{', '.join(map(quoted, conditions))}]",
                "positive sizes, and what divisions and assertions need",
                "low",
            ),
            tune={**_texts(tune), **types},
            held_out={**_texts(held_out), **types} if held_out else {},
            sizes_why="the application's constants" if fixed else "sizes that matter to you",
            sizes_confidence="medium" if fixed else "low",
        )

    def _bind_sizes(self, scope: Scope) -> Scope:
        """Name the sizes after the kernel's integers; add what those are computed from."""
        known = dict(scope.known)
        integers = [parameter.name for parameter in self._parameters if parameter.is_integer]
        for name in integers:
            plain = without_casts(self._passed.get(name, ""))
            if re.fullmatch(r"\d+", plain) and int(plain) < _LEAST_SIZE:
                self._values[name] = Polynomial.number(int(plain))
            elif plain in known and known[plain].constant is None:
                self._values[name] = known[plain]
            elif not plain or _NAME.fullmatch(plain) or plain.isdigit():
                symbol = free_name(name, self._template.symbols)
                self._values[name] = known[plain] = Polynomial.atom(symbol)
                self._add(symbol, plain)
        scope = replace(scope, known=known)
        for name in integers:
            if name not in self._values:
                value = scope.value(without_casts(self._passed[name]))
                if value is None or value.names - self._tune.keys():
                    value = Polynomial.atom(free_name(name, self._template.symbols))
                self._values[name] = value
                for symbol in sorted(value.names - self._tune.keys()):
                    self._add(symbol, self._passed[name])
        return scope

    def _bind_launch(self) -> tuple[tuple[Polynomial, ...], tuple[Polynomial, ...]]:
        """Grid and block; a block's size that the application leaves open is chosen here."""
        block = self._scope.axes(self._site.block) or ()
        known = dict(self._scope.known)
        for name in sorted({name for axis in block for name in axis.names} - self._tune.keys()):
            number = self._site.scope.number(name)
            if number is None:
                self._unknown |= {name}
            width = _THREADS if len(block) == 1 else _TILE
            known[name] = Polynomial.number(width if number is None else number)
        self._scope = replace(self._scope, known=known)
        grid = self._scope.axes(self._site.grid) or ()
        block = self._scope.axes(self._site.block) or ()
        shared = self._scope.axes(self._site.shared) or ()
        for value in (*grid, *block, *shared):
            self._add_names(value)
        if not self._tune:
            self._tune["n"] = 1  # the application has one size only
        return grid, block

    def _add_names(self, value: Polynomial) -> None:
        for name in sorted(value.names - self._tune.keys()):
            self._add(name, name)

    def _add(self, symbol: str, text: str) -> None:
        number = self._site.scope.number(text) if text else None
        fixed = number is not None and number > 0
        if not fixed:
            self._free.add(symbol)
        self._tune[symbol] = number if number and fixed else usual_size(symbol)

    def _launched(self, text: str, values: Sequence[Polynomial]) -> Guess:
        """A part of the launch; ``values`` are what the host asks for, with its own names."""
        why = f"launched so in {self._site.file}:{self._site.line}"
        unknown = sorted(self._unknown & {name for value in values for name in value.names})
        if unknown:
            return Guess(text, f"{why}, but the value of {', '.join(unknown)} is unknown", "low")
        return Guess(text, why, "medium")

    def _asked(self, text: str) -> tuple[Polynomial, ...]:
        """What the host asks for, before sizes of a block that it leaves open were chosen."""
        return self._site.scope.axes(text) or ()

    def _shared(self) -> Guess | None:
        values = self._scope.axes(self._site.shared) or ()
        if len(values) != 1 or values[0] == Polynomial():
            return None
        return self._launched(quoted(str(values[0])), self._asked(self._site.shared))

    def _element(self, parameter: Parameter) -> tuple[str, str | None, int]:
        """Dtype as a spec writes it, the dtype to tune for, and lanes, of a parameter's type."""
        types = self._template.types
        if parameter.type in self._template.symbols:
            return parameter.type, types[parameter.type], 1
        dtype, lanes = parameter.dtype, parameter.lanes
        if dtype is None:
            dtype, lanes = resolved_type(self._program, parameter.type, types)
        return dtype or "uint8", dtype, lanes

    def _arrays(self) -> dict[str, ArrayGuess]:
        pointers = [parameter for parameter in self._parameters if parameter.pointer]
        elements = {parameter.name: self._element(parameter) for parameter in pointers}
        sizes = {name: ITEM_BYTES.get(dtype or "", 1) for name, (_, dtype, _) in elements.items()}
        threads = Polynomial.number(1)
        for axis in (*self._grid, *self._block):
            threads = threads * axis
        indices = {f"{name}[]": Polynomial.atom(self._last) for name in self._index_arrays}
        if self._indices.offsets and END not in self._tune:
            self._tune[END] = PER_SEGMENT * self._tune.get(self._last, _LEAST_SIZE)
            self._free.add(END)
        indices |= {f"{name}[]": Polynomial.atom(END) + ONE for name in self._indices.offsets}
        launched = Launched(
            grid=self._grid,
            block=self._block,
            known={**self._template.constants, **self._values},
            types=self._template.types,
            elements=indices,
            lanes={name: lanes for name, (_, _, lanes) in elements.items()},
        )
        body = self._kernel.code(self._kernel.body)
        found: dict[str, list[Access]] = defaultdict(list)
        for access in accesses(self._program, body, sizes, launched):
            found[access.array].append(access)
        strides = set(_FACTOR.findall(self._code))
        order = sorted(self._tune, key=lambda name: name in strides)
        return {
            name: array_guess(
                parameter,
                found[name],
                allocated(self._scope, without_casts(self._passed.get(name, "")), sizes[name]),
                self._tune,
                threads,
                order,
            )
            for parameter in pointers
            if (name := parameter.name)
        }

    def _conditions(self, arrays: Mapping[str, ArrayGuess]) -> list[str]:
        """What the sizes must meet: positive, and divisible where nothing is rounded up."""
        pairs = [pair for array in arrays.values() for pair in array.exact]
        for value in self._grid:
            pairs += [(q.numerator, q.denominator) for q in quotients(value) if not q.up]
        pairs += asserted_divisions(self._scope)
        divisions = [
            f"{_operand(numerator)} % {_operand(denominator)} == 0"
            for numerator, denominator in pairs
            if numerator.names and numerator.names | denominator.names <= self._tune.keys()
        ]
        return list(dict.fromkeys([*(f"1 <= {name}" for name in self._tune), *divisions]))

    def _shape(self, conditions: Sequence[str], part: int) -> dict[str, int]:
        """The sizes divided by ``part``, rounded up to what the conditions need; or nothing."""
        shape = {n: max(1, size // part) if size >= 64 else size for n, size in self._tune.items()}
        for _ in range(4):
            broken = [text for text in conditions if not _holds(text, shape)]
            if not broken:
                return shape
            for text in broken:
                match = re.fullmatch(r"(.*) % (\d+) == 0", text)
                names = [n for n in re.findall(r"\w+", match[1]) if n in shape] if match else []
                if match and names:
                    step = int(match[2])
                    shape[names[-1]] = -(-shape[names[-1]] // step) * step
        return {}

    def _argument(self, parameter: Parameter, arrays: Mapping[str, ArrayGuess]) -> ArgumentGuess:
        name, text = parameter.name, self._passed.get(parameter.name)
        dtype, known, lanes = self._element(parameter)
        if parameter.pointer and text in (None, "nullptr", "NULL", "0"):
            fields, why = {"kind": '"null"'}, "the launch passes none"
            return ArgumentGuess(name=name, fields=fields, why=why, confidence="high")
        if parameter.pointer:
            return self._array(parameter, arrays[name], dtype, lanes)
        if lanes > 1 or known is None:
            return struct_guess(self._kernel, name, parameter, self._tune)
        if value := self._values.get(name):
            fields = {"kind": "scalar", "dtype": dtype, "value": quoted(str(value))}
            why = "as the launch passes it"
            return ArgumentGuess(name=name, fields=fields, why=why, confidence="high")
        number = float_constant(self._site.scope, text or "")
        usual, why = unknown_value(name, dtype)
        if number:
            why = "a constant of the application"
        fields = {"kind": "scalar", "dtype": dtype, "value": number or usual}
        return ArgumentGuess(
            name=name, fields=fields, why=why, confidence="high" if number else "low"
        )

    def _constants(self) -> Iterator[ArgumentGuess]:
        """The module's constants that the kernel reads and the host fills."""
        for text in self._program.code.values():
            for type_, name, listed in _CONSTANT.findall(text):
                dtype, lanes = resolved_type(self._program, type_, self._template.types)
                sizes = [self._scope.value(one) for one in re.findall(r"\[([^\]]*)\]", listed)]
                if not re.search(rf"\b{name}\b", self._code) or dtype is None:
                    continue
                extents = ["1" if size is None else str(size) for size in sizes] or ["1"]
                if lanes > 1:
                    extents.append(str(lanes))
                yield ArgumentGuess(
                    name=name,
                    fields={
                        "kind": "constant",
                        "dtype": dtype,
                        "shape": f"[{', '.join(map(quoted, extents))}]",
                        "symbol": name,
                    },
                    why="a constant of the module, which the host fills",
                    confidence="medium",
                )

    @cached_property
    def _code(self) -> str:
        return reachable_code(self._kernel)

    @cached_property
    def _index_arrays(self) -> dict[str, str]:
        """Arrays whose elements index others, or move pointers into them, each with such a use."""
        found = dict(self._indices.used_as_index)
        for held, array in re.findall(r"\b(\w+)\s*=\s*(\w+)\s*\[", self._code):
            moved = re.search(rf"=\s*(&?\w+\s*\+[^;]*\b{held}\b\s*\*[^;]*);", self._code)
            if moved:
                found.setdefault(array, moved[1])
        return found

    @cached_property
    def _last(self) -> str:
        """The size that indices stay below, where nothing else is known."""
        *_, last = self._tune
        return last

    def _array(
        self, parameter: Parameter, guess: ArrayGuess, dtype: str, lanes: int
    ) -> ArgumentGuess:
        fields, why = {"kind": guess.kind, "dtype": dtype, "shape": f"[{guess.shape}]"}, guess.why
        own = vector_align(self._kernel, dtype, lanes) if lanes > 1 else 1
        why += aligned(fields, own, self._cast_align)
        offset = self._indices.offsets.get(parameter.name)
        used = self._index_arrays.get(parameter.name)
        why += index_contents(fields, parameter.name, offset, used, self._last)
        return ArgumentGuess(
            name=parameter.name, fields=fields, why=why, confidence=guess.confidence
        )


def _axes(axes: Sequence[Polynomial]) -> str:
    texts = (str(axis) for axis in axes)
    listed = ", ".join(text if text.isdigit() else quoted(text) for text in texts)
    return f"[{listed}]"


def _elements(arrays: Mapping[str, ArrayGuess], tune: Mapping[str, int]) -> int:
    """How many the longest array has."""
    return max((array.elements(tune) for array in arrays.values()), default=0)


def _texts(shape: Mapping[str, int]) -> dict[str, str]:
    return {name: str(size) for name, size in shape.items()}


def _operand(value: Polynomial) -> str:
    return str(value) if re.fullmatch(r"\w+", str(value)) else f"({value})"


def _holds(condition: str, shape: Mapping[str, int]) -> bool:
    try:
        return bool(Expression.parse(condition).evaluate(shape))
    except ExpressionError:
        return False
