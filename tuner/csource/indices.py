"""What a kernel's indices say of its launch and its arrays, for a first spec: all of it guesses.

Reads the code of the kernel and of what it calls with regular expressions: no types, no values.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.csource.host_program import HostProgram, arguments, bound, closing
from tuner.csource.kernels import KernelSource, reachable_code
from tuner.csource.tree import object_macros

MAX_AXES = 3
_AXES = "012", "xyz"
_THREAD = r"get_(?:global|local)_id\s*\(\s*{0}\s*\)|\bthreadIdx\s*\.\s*{1}\b"
_BLOCK = r"get_(?:global|group)_id\s*\(\s*{0}\s*\)|\bblockIdx\s*\.\s*{1}\b"
_CAST = r"(?:\(\s*\w+\s*\)\s*)?"
_FIRST_BLOCK = re.compile(rf"{_CAST}(?:get_group_id\s*\(\s*0\s*\)|blockIdx\s*\.\s*x)\s*")
_OWN_THREAD = re.compile(rf"{_CAST}(?:get_local_id\s*\(\s*0\s*\)|threadIdx\s*\.\s*x)")
_SHARED_ARRAY = re.compile(
    r"\b(?:__shared__|__local|local)\s+(?:\w+\s+)+(\w+)\s*\[\s*(\w+)\s*\]\s*;"
)
_REMAINDER = re.compile(r"(?:\w+|\([^()]*\))\s*%\s*(\w+)")
_INDEX = re.compile(r"\b(\w+)\s*\[([^\[\];]*)\]")
_NESTED = re.compile(r"\b(\w+)\s*\[((?:[^\[\];{}]|\[[^\[\];{}]*\])*)\]")
_ATOMIC = re.compile(
    r"\b(atom\w*\s*\(\s*)(\w+)\s*\+\s*((?:[^(),;\[\]]|\[[^\[\];]*\]|\([^()]*\)){1,400})(?=[,)])"
)
"""An atomic function's place, given as a moved pointer."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_ALONE = re.compile(r"\(\s*(\w+)\s*\)")
_MAX_DEPTH = 4
"""Calls of macros in an index that are expanded."""
_MAX_INDEX = 400
"""Characters of an index or a macro; those of longer ones are not."""
_ASSIGNED = re.compile(r"\b(\w+)\s*=(?!=)\s*([^;,]*)")
_COMPARED = re.compile(
    r"\b(\w+)\s*(?:<(?![^;{}]{0,500}\)\s*\{?\s*(?:return|continue|break)\b)|>=)\s*(?!0\b)(\w+)\s*"
    r"(?:-\s*\w+\s*)?(?=[);&|?])"
)
"""A variable and what it stays below, or leaves from on: the number of elements or of those within
a border. 0 is neither."""
_INTEGER = re.compile(r"\(?(\d+)[uUlL]*\)?")
_REQUIRED = re.compile(r"\breqd_work_group_size(?:__)?\s*\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a launch: which indices are read, and the bound that their sum stays below.

    ``bound`` is a name or a number, ``None`` where the source says none.
    """

    thread: bool
    block: bool
    bound: str | None


@dataclass(frozen=True, slots=True)
class BlockRows:
    """A row for each block: the variable that is its number, its length, and the matrices."""

    variable: str
    length: str
    arrays: frozenset[str]


@dataclass(frozen=True, slots=True)
class BlockSegments:
    """A segment for each block: its number in the code, and what that stays below.

    ``arrays`` have one element for each segment, or one more.
    """

    index: str
    bound: str | None
    arrays: frozenset[str]


class Indices:
    """What the indices in one kernel say."""

    def __init__(self, kernel: KernelSource) -> None:
        self._head = kernel.code(kernel.head)
        self._integer_inputs = {
            parameter.name
            for parameter in kernel.signature.parameters
            if parameter.const and (parameter.dtype or "").startswith(("int", "uint"))
        }
        self._source = kernel.source
        self._code = _ATOMIC.sub(r"\1&\2[\3]", reachable_code(kernel))
        self._integers = {
            name: value[1]
            for name, (body, *others) in object_macros(kernel.source).items()
            if not others and (value := _INTEGER.fullmatch(body))
        }
        self._compared = dict(_COMPARED.findall(self._code))
        self._bounds = _single(
            (variable, self._number(bound)) for variable, bound in _COMPARED.findall(self._code)
        )
        self._values = _single(iter(_ASSIGNED.findall(self._code)))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The dimensions of the launch that the code reads; one where it reads none."""
        found = [self._axis(number) for number in range(MAX_AXES)]
        while found and not (found[-1].thread or found[-1].block):
            found.pop()
        return tuple(found) or (Axis(thread=True, block=True, bound=None),)

    @cached_property
    def block_rows(self) -> BlockRows | None:
        """What a block's index along axis 0 is multiplied by where it moves pointers or indices.

        ``None`` where the index is compared, or not multiplied by one name alone.
        """
        for variable, value in self._values.items():
            if variable in self._compared or not _FIRST_BLOCK.fullmatch(value):
                continue
            moved = re.compile(
                rf"\b(\w+)\s*[+\[]\s*\(?\s*{_CAST}{variable}\s*\*\s*{_CAST}([A-Za-z_]\w*)"
            )
            found = moved.findall(self._code)
            lengths = {length for _, length in found}
            if len(lengths) == 1:
                return BlockRows(variable, lengths.pop(), frozenset(array for array, _ in found))
        return None

    @cached_property
    def block_segments(self) -> BlockSegments | None:
        """Where segments begin and end by a block's index along axis 0; ``None`` if by none."""
        for index in self.offsets.values():
            if _FIRST_BLOCK.fullmatch(self._values.get(index, index)):
                by_it = {name for name, found in self._of_array.items() if {*found} == {index}}
                ends = {name for name, found in self.offsets.items() if found == index}
                return BlockSegments(index, self._bounds.get(index), frozenset(by_it | ends))
        return None

    @property
    def required_block(self) -> tuple[int, ...]:
        """The block that the kernel's attribute requires; empty without one."""
        found = set()
        for extents in _REQUIRED.findall(self._head):
            words = [self._number(word.strip()) for word in extents.split(",")]
            if len(words) != MAX_AXES or not all(re.fullmatch(r"[1-9]\d*", word) for word in words):
                return ()
            found.add(tuple(map(int, words)))
        if len(found) != 1:
            return ()
        (block,) = found
        while len(block) > 1 and block[-1] == 1:
            block = block[:-1]
        return block

    @property
    def thread_elements(self) -> int | None:
        """The fewest elements of an array in shared memory of which each thread has its own.

        Blocks of one axis with more threads access the array out of bounds. ``None`` without one.
        """
        counts = (
            int(count)
            for array, word in _SHARED_ARRAY.findall(self._code)
            if (count := self._number(word)).isdecimal()
            and any(self._is_own(index.strip(), count) for index in self._of_array[array])
        )
        return min(counts, default=None)

    def _is_own(self, index: str, count: str) -> bool:
        """Whether an index is the thread's number, and not kept below an array's length ``count``.

        A loop's variable that begins at the thread's number is not.
        """
        if not _OWN_THREAD.fullmatch(self._values.get(index, index).strip()):
            return False
        name = re.escape(index)
        if re.search(rf"\bfor\s*\([^;]*\b{name}\s*=", self._code):
            return False
        guard = rf"(?:\b{name}|{_OWN_THREAD.pattern})\s*(?:<|>=)\s*(\w+)"
        return all(self._number(bound) != count for bound in re.findall(guard, self._code))

    @cached_property
    def used_as_index(self) -> dict[str, str]:
        """Names of arrays whose elements index another array, each with such an index.

        Follows elements through variables.
        """
        holders: dict[str, set[str]] = defaultdict(set)
        sources = [
            (variable, {name for name, _ in _INDEX.findall(value)}, set(_WORD.findall(value)))
            for variable, value in _ASSIGNED.findall(self._code)
        ]
        grown = True
        while grown:
            grown = False
            for variable, read, words in sources:
                found = read.union(*(holders[word] for word in words & holders.keys()))
                grown |= not found <= holders[variable]
                holders[variable] |= found
        used: dict[str, str] = {}
        for array, index in _NESTED.findall(self._code):
            words = set(_WORD.findall(index)) & holders.keys()
            read = {name for name, _ in _INDEX.findall(index)}
            for name in read.union(*(holders[word] for word in words)):
                used.setdefault(name, f"{array}[{index.strip()}]")
        return used

    @cached_property
    def _of_array(self) -> Mapping[str, Sequence[str]]:
        """The indices of each array."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, index in _INDEX.findall(self._code):
            found[name].append(index)
        return found

    @cached_property
    def offsets(self) -> dict[str, str]:
        """Names of inputs that hold where segments begin, each with an index of theirs.

        Of two elements in a row, one is where a segment begins and one where it ends.
        """
        found = {}
        for array in self._integer_inputs & self.used_as_index.keys():
            indices = {re.sub(r"\s", "", index) for index in self._of_array[array]}
            followed = (index for index in indices if {f"{index}+1", f"1+{index}"} & indices)
            if (index := next(followed, None)) is not None:
                found[array] = index
        return found

    def certain(self, array: str) -> bool:
        """Whether no variable in an array's indices is compared with several bounds."""
        words = {word for index in self._of_array[array] for word in _WORD.findall(index)}
        return not words & self._compared.keys() - self._bounds.keys()

    def factors(self, array: str) -> tuple[str, ...]:
        """The names and numbers that something is multiplied by in an array's indices, in order.

        In ``(i * n + j) * m + k`` these are the inner extents, ``n`` and ``m``. Follows the
        indices' variables through their values, but only to names: a number there is rather a
        block's size than an extent.
        """
        indices = list(map(self._expanded, self._of_array[array]))
        found = [self._number(word) for index in indices for word in _multiplied(index)]
        seen: set[str] = set()
        while words := {word for index in indices for word in _WORD.findall(index)} - seen:
            seen |= words
            values = [self._values[word] for word in sorted(words & self._values.keys())]
            indices = [self._expanded(value) for value in values if len(value) <= _MAX_INDEX]
            named = [self._number(word) for index in indices for word in _multiplied(index)]
            found += [word for word in named if word.isidentifier()]
        return tuple(dict.fromkeys(found))

    @cached_property
    def _macros(self) -> Mapping[str, tuple[Sequence[str], str]]:
        """The parameters and the body of each macro with parameters, if the body is short."""
        return {
            name: (macro.parameters, macro.body)
            for name, macro in HostProgram({"": self._source}).macros.items()
            if macro.parameters and len(macro.body) <= _MAX_INDEX
        }

    def _expanded(self, index: str) -> str:
        """An index with its macros' bodies in place of their calls, words without parentheses."""
        for _ in range(_MAX_DEPTH):
            found = next((w for w in _CALLED.finditer(index) if w[1] in self._macros), None)
            if found is None or len(index) > _MAX_INDEX:
                break
            if (end := closing(index, found.end() - 1)) is None:
                break
            names, body = self._macros[found[1]]
            value = bound(body, names, arguments(index, found.end() - 1))
            index = f"{index[: found.start()]}({value}){index[end + 1 :]}"
        return _ALONE.sub(r" \1 ", index)

    def borders(self, size: str) -> bool:
        """Whether the code compares something with the last number below a size."""
        return bool(re.search(rf"(?:==|!=|<|>=|>)\s*{re.escape(size)}\s*-\s*1\b", self._code))

    def length(self, array: str) -> str | None:
        """The one bound that every index of an array stays below.

        Each index is a variable that is compared with it, or a remainder of division by it.
        """
        segment = self.offsets.get(array)
        indices = {segment or index.strip() for index in self._of_array[array]}
        bounds = {self._remainder(index) or self._bounds.get(index) for index in indices - {""}}
        return bounds.pop() if len(bounds) == 1 else None

    def _remainder(self, index: str) -> str | None:
        """What an index, or the one value of a variable that is one, is divided by."""
        found = _REMAINDER.fullmatch(self._values.get(index, index).strip())
        return self._number(found[1]) if found else None

    def _axis(self, number: int) -> Axis:
        names = [of[number] for of in _AXES]
        thread, block = (re.compile(of.format(*names)) for of in (_THREAD, _BLOCK))
        threaded = bool(thread.search(self._code))

        def below() -> Iterator[str]:
            for variable, value in _ASSIGNED.findall(self._code):
                spans = block.search(value) and (thread.search(value) or not threaded)
                if spans and variable in self._bounds:
                    yield self._bounds[variable]

        found = set(below())
        bound = found.pop() if len(found) == 1 else None
        return Axis(thread=threaded, block=bool(block.search(self._code)), bound=bound)

    def _number(self, word: str) -> str:
        """What a macro stands for if that is one integer, else the word itself."""
        return self._integers.get(word, word)


def _multiplied(index: str) -> Sequence[str]:
    """The names and numbers in an index that something is multiplied by."""
    return re.findall(r"\*\s*(\w+)", index) + re.findall(r"\b(\w+)\s*\*", index)


def _single(pairs: Iterator[tuple[str, str]]) -> dict[str, str]:
    """The values of the keys that have one value throughout."""
    found: dict[str, set[str]] = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return {key: value for key, (value, *others) in found.items() if not others}
