"""Follows pointers through PTX: which registers may hold an address, what is read, written, lost.

Through selections, loops, shared and local memory and called functions. The text may be hostile: no
pattern scans past the start of its next match, so time is linear.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

FUNCTION = re.compile(
    r"\.(entry|func)\s*+(?:\(([^()]*)\)\s*+)?+([\w$]++)\s*+(?:\(([^()]*)\))?+"
    r"[^{};.]*+(?:\.(?!entry|func)[^{};.]*+)*+\{"
)
_NAME = re.compile(r"%?[A-Za-z_$][\w$.]*")
_STATEMENT = re.compile(r"([^;{}]*+)([;{}]|\Z)")
_LEAD = re.compile(r"\s*+(?:[\w$%]++\s*+:(?!:)\s*+)*+(?:@\s*+!?\s*+%?[\w$]++\s++)?+")
"""Labels and a predicate."""
_OPERATION = re.compile(r"[a-z][a-z0-9_]*(?:\s*[.:]+\w+)*")
_OPERAND = re.compile(r"\[[^\[\]]*\]|[^,\[\]]+")
_CALL = re.compile(r"call[\w.]*\s+(?:\(([^()]*)\)\s*,\s*)?([\w$]+)(?:\s*,\s*\(([^()]*)\))?")
_NUMBERS = frozenset("setp set rem mul div mul24 popc clz bfe bra ret".split())
_FLOATS = frozenset("f16 f16x2 bf16 bf16x2 f32 f32x2 f64".split())
_COPIES = frozenset("mov selp slct".split())
_SUMS = frozenset("mov cvta add sub or".split())
"""What makes of a pointer and numbers a pointer; ``or`` adds to one that is aligned."""
_MEMORY = frozenset("ld ldu st red atom multimem".split())
_LOADS = frozenset("cp createpolicy fence ldmatrix prefetch prefetchu suld tex tld4".split())
"""What also has addresses, and writes nowhere but to shared memory or registers."""
_SPACE = re.compile("global|shared")
"""The first of a bulk copy's is where it writes."""
_SMALL = 1 << 20
_HALF = "32"
_VECTOR = re.compile(r"\{([^{};]*)\}")

Key = tuple[str, str]
"""A function, and a name in it."""
CONSTANT: Key = ("", "constant")
"""Stands for every address in constant memory or in parameters, in doubtful use."""


@dataclass(frozen=True, slots=True)
class _Move:
    """``target`` holds a pointer wherever a source does; less those of ``minus``."""

    target: Key
    sources: tuple[Key, ...]
    minus: Key | None = None


@dataclass(slots=True)
class Function:
    """What is known of one function: ``reads`` are non-coherent, ``escapes`` of doubtful use."""

    name: str
    formals: list[str]
    moves: list[_Move] = field(default_factory=list)
    reads: list[Key] = field(default_factory=list)
    writes: list[Key] = field(default_factory=list)
    escapes: list[Key] = field(default_factory=list)
    calls: list[tuple[str, tuple[Key, ...], tuple[Key, ...]]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)


def joined(text: str) -> str:
    """The text with the registers of each vector as one operand."""
    return _VECTOR.sub(lambda vector: vector[1].replace(",", " "), text)


def origins(held: Mapping[Key, frozenset[int]], keys: Iterable[Key]) -> set[int]:
    """The parameters or variables that these may point to."""
    return set().union(*(held.get(key, frozenset()) for key in keys))


def held_by(
    reached: Mapping[str, Function], origins: Mapping[Key, frozenset[int]]
) -> Mapping[Key, frozenset[int]]:
    """Which parameters or variables each register may point to, given what some do."""
    held = dict(origins)
    moves = [move for function in reached.values() for move in function.moves]
    for function in reached.values():
        for name, given, taken in function.calls:
            if name in reached:
                formals, results = reached[name].formals, reached[name].results
                moves += [_Move((name, f), (g,)) for f, g in zip(formals, given, strict=False)]
                moves += [_Move(t, ((name, r),)) for t, r in zip(taken, results, strict=False)]
    following: dict[Key, list[_Move]] = {}
    for move in moves:
        for source in move.sources:
            following.setdefault(source, []).append(move)
    nothing: frozenset[int] = frozenset()
    changed = deque(held)
    while changed:
        for move in following.get(changed.popleft(), ()):
            found = nothing.union(*(held.get(source, nothing) for source in move.sources))
            if move.minus is not None:
                found -= held.get(move.minus, nothing)
            before = held.get(move.target, nothing)
            if not found <= before:
                held[move.target] = before | found
                changed.append(move.target)
    return held


def functions(text: str, *, doubtful: bool = False) -> Iterator[tuple[str, Function]]:
    """The functions with their kinds; see :class:`_Body`."""
    heads = [*FUNCTION.finditer(text)]
    ends = [*(head.start() for head in heads), len(text)][1:]
    for head, end in zip(heads, ends, strict=True):
        function = Function(head[3], _formals(head[4] or ""), results=_formals(head[2] or ""))
        _Body(function, doubtful=doubtful).read(text, head.end(), end)
        yield head[1], function


def _formals(text: str) -> list[str]:
    """The names of declared parameters."""
    parts = (part.partition("[")[0].split() for part in text.split(",") if ".param" in part)
    return [words[-1] for words in parts if words]


class _Body:
    """One function's statements; parameters of calls get names of their own in each call.

    A pointer is followed where it certainly remains one. In ``doubtful`` use it escapes where it is
    stored, compared or computed with otherwise than by adding to it, and where it is passed to a
    function that is not known.
    """

    def __init__(self, function: Function, *, doubtful: bool) -> None:
        self._function = function
        self._doubtful = doubtful
        self._renamed: dict[str, str] = {}
        self._count = 0

    def read(self, text: str, start: int, end: int) -> None:
        depth = 1
        for found in _STATEMENT.finditer(text, start, end):
            self._statement(found[1].strip())
            depth += {"{": 1, "}": -1}.get(found[2], 0)
            if not depth:
                return

    def _statement(self, text: str) -> None:
        text = _LEAD.sub("", text, count=1)
        if text.startswith(".param"):
            for name in _formals(text):
                self._count += 1
                self._renamed[name] = f"{name} {self._count}"
        elif text.startswith("call") and (call := _CALL.match(text)):
            self._call(call)
        elif text and not text.startswith("."):
            operation = _OPERATION.match(text)
            if operation:
                self._instruction(operation[0], text[operation.end() :])

    def _key(self, name: str) -> Key:
        return self._function.name, self._renamed.get(name, name)

    def _keys(self, text: str) -> tuple[Key, ...]:
        return tuple(self._key(name) for name in _NAME.findall(text))

    def _call(self, call: re.Match[str]) -> None:
        given, taken = self._keys(call[3] or ""), self._keys(call[1] or "")
        self._function.calls.append((call[2], given, taken))

    def _instruction(self, operation: str, rest: str) -> None:
        kind, *modifiers = "".join(operation.split()).split(".")
        memory = kind in _MEMORY or "bulk" in modifiers
        if not memory and not self._doubtful and _only_numbers(kind, modifiers):
            return
        operands = [operand.strip() for operand in _operands(rest)]
        places = [operand for operand in operands if operand.startswith("[")]
        values = [operand for operand in operands if not operand.startswith("[")]
        space = next((s for s in modifiers if s in ("param", "shared", "local", "const")), "")
        if self._doubtful and space != "param":
            space = ""
        if kind in ("ld", "ldu"):
            self._load(kind, modifiers, space, values, places)
        elif memory:
            self._store(kind, modifiers, space, values, places)
        elif self._doubtful:
            if kind not in _LOADS and "load" not in modifiers:
                self._function.escapes.extend(self._keys(" ".join(places)))
            self._doubt(kind, modifiers, values)
        elif len(values) > 1:
            self._compute(kind, modifiers, values)

    def _load(
        self, kind: str, modifiers: list[str], space: str, values: list[str], places: list[str]
    ) -> None:
        address = self._keys(places[0]) if places else ()
        if kind == "ldu" or "nc" in modifiers:
            self._function.reads.extend(address)
        elif space == "param":
            for value in values:
                self._function.moves.extend(_Move(key, address) for key in self._keys(value))
        elif space in ("shared", "local", ""):
            memory = self._memory(space)
            for value in values:
                self._function.moves.extend(_Move(key, memory) for key in self._keys(value))

    def _store(
        self, kind: str, modifiers: list[str], space: str, values: list[str], places: list[str]
    ) -> None:
        address = self._keys(places[0]) if places else ()
        if "bulk" in modifiers and next(filter(_SPACE.match, modifiers), "global") != "global":
            return
        stored = tuple(key for value in values for key in self._keys(value))
        if space == "param":
            self._function.moves.extend(_Move(key, stored) for key in address)
        elif space in ("shared", "local") and kind == "st":
            self._function.moves.extend(_Move(key, stored) for key in self._memory(space))
        elif not space:
            self._function.writes.extend(address)
            self._function.escapes.extend(stored)

    def _doubt(self, kind: str, modifiers: list[str], values: list[str]) -> None:
        """A pointer remains one where it is moved, chosen or added to; elsewhere it escapes."""
        kept, lost = [], values
        if kind in _SUMS:
            kept, lost = values[1:], []
        elif kind in ("mad", "selp", "slct"):
            pointers = slice(3, 4) if kind == "mad" else slice(1, 3)
            kept, lost = values[pointers], [*values[1 : pointers.start], *values[pointers.stop :]]
        sources = tuple(key for value in kept for key in self._keys(value))
        if kind == "cvta" and modifiers[:1] in (["const"], ["param"]):
            sources = (*sources, CONSTANT)
        self._function.escapes.extend(key for value in lost for key in self._keys(value))
        for value in values[:1]:
            self._function.moves.extend(_Move(target, sources) for target in self._keys(value))

    def _compute(self, kind: str, modifiers: list[str], values: list[str]) -> None:
        """What an instruction makes of pointers: sums keep them, numbers got from them do not."""
        targets, sources = self._keys(values[0]), values[1:]
        minus = None
        if kind == "cvt" and modifiers[-1:] in (["u64"], ["s64"]) and "64" not in modifiers[-2]:
            return
        if kind == "and" and any(s.isdecimal() and int(s) < _SMALL for s in sources):
            return
        if kind in ("shl", "shr") and sources[-1] != _HALF:
            return
        if kind in ("mad", "fma", "mad24"):
            sources = sources[-1:]
        elif kind == "sub" and len(sources) == 2:
            minus = next(iter(self._keys(sources[1])), None)
            sources = sources[:1]
        elif kind in ("selp", "slct"):
            sources = sources[:2]
        keys = tuple(key for source in sources for key in self._keys(source))
        if keys:
            self._function.moves.extend(_Move(target, keys, minus) for target in targets)

    def _memory(self, space: str) -> tuple[Key, ...]:
        """Everything kept in shared or in a function's local memory, as one variable."""
        shared, local = ("", "shared"), (self._function.name, "local")
        return {"shared": (shared,), "local": (local,)}.get(space, (shared, local))


def _only_numbers(kind: str, modifiers: list[str]) -> bool:
    """Whether what an instruction makes is a number, whatever it is made of."""
    of_floats = not _FLOATS.isdisjoint(modifiers[-1:])
    return kind in _NUMBERS or (of_floats and kind not in _COPIES)


def _operands(text: str) -> Iterator[str]:
    """The parts between commas; an address in brackets is one."""
    return (found for found in _OPERAND.findall(text) if found.strip())
