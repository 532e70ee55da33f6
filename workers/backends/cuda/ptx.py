"""What PTX tells of a module: features that its source can hide, bounds, sizes, buffer accesses.

A non-coherent load (``ld.global.nc``, from ``__ldg`` or ``const __restrict__``) of memory that the
same kernel writes is undefined. Follows pointers from the kernel's parameters through registers,
selections, loops, shared and local memory and called functions. A pointer that it loses is left
out: it names only buffers that are certain.

The text may be hostile: no pattern scans past the start of its next match, so time is linear.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_REACHES = {
    "griddepcontrol": re.compile(r"griddepcontrol\."),
    "a clock": re.compile(r"%(?:clock|globaltimer|pm\d)"),
    "printf": re.compile(r"vprintf\b(?<!\wvprintf)"),
    "the launch of another kernel": re.compile(r"cuda(?:LaunchDevice|GraphLaunch|GetParameter)"),
    "the device's heap, which outlasts a launch": re.compile(
        r"\.extern\s+\.func[^;{]*?\b(?:malloc|free)\b"
    ),
    "the number of its launch": re.compile(r"%gridid"),
    "the graph that it runs in, as when it is timed": re.compile(r"%current_graph_exec"),
    "a variable that inline assembly declares": re.compile(
        r"\.global(?<!\w\.global)\b(?!\s+(?:\.attribute\([^()]*\)\s+)?(?:\.align\s+\d+\s+)?\.[a-z]+\d{1,9}\s+"
        r"[\w$]+(?:\[\d{0,18}\])?\s*[=;])"
    ),
}
"""Each begins with a literal, which is searched for ten times as fast as a boundary of words.

A declaration of ``.global`` memory that is spelt as no compiler spells it is read no further."""
_PERSISTS = ("createpolicy", "applypriority", "L2::evict_last", "L2::cache_hint")
_BOUND = re.compile(
    r"\.entry\s+([\w$]++)[^{.]*+(?:\.(?!entry|maxntid)[^{.]*+)*+"
    r"\.maxntid\s+(\d{1,9})(?:,\s*(\d{1,9}))?(?:,\s*(\d{1,9}))?"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)
_VECTOR = re.compile(r"\{([^{};]*)\}")
_FUNCTION = re.compile(
    r"\.(entry|func)\s*+(?:\(([^()]*)\)\s*+)?+([\w$]++)\s*+(?:\(([^()]*)\))?+"
    r"[^{};.]*+(?:\.(?!entry|func)[^{};.]*+)*+\{"
)
_SIZED = r"\.(?:param|const|global)\s+(?:\.align\s+\d+\s+)?\.[a-z]+(?P<bits>\d{1,9})\b"
_PARAMETER = re.compile(_SIZED + r"[^\[]*+(?:\[(?P<count>\d{1,18})\])?")
_VARIABLE = re.compile(_SIZED + r"\s+(?P<name>[\w$]+)(?:\[(?P<count>\d{1,18})\])?\s*[=;]")
_GLOBAL = re.compile(
    r"\.global\s+(?:\.attribute\([^()]*\)\s+)?(?:\.align\s+\d+\s+)?\.[a-z]+(?P<bits>\d{1,9})\s+"
    r"(?P<name>[\w$]+)(?:\[(?P<count>\d{1,18})\])?\s*(?P<end>[=;])"
)
_INITIAL = re.compile(r"=([^;]*);")
_WORD = re.compile(r"[\w$]+")
_NAME = re.compile(r"%?[A-Za-z_$][\w$.]*")
_STATEMENT = re.compile(r"([^;{}]*+)([;{}]|\Z)")
_LEAD = re.compile(r"\s*+(?:[\w$]++:(?!:)\s*+)*+(?:@!?%?[\w$]++\s++)?+")
"""Labels and a predicate."""
_OPERATION = re.compile(r"[a-z][a-z0-9_]*(?:[.:]+[\w]+)*")
_OPERAND = re.compile(r"\[[^\[\]]*\]|[^,\[\]]+")
_CALL = re.compile(r"call[\w.]*\s+(?:\(([^()]*)\)\s*,\s*)?([\w$]+)(?:\s*,\s*\(([^()]*)\))?")
_NUMBERS = frozenset("setp set rem mul div mul24 popc clz bfe bra ret".split())
_FLOATS = frozenset("f16 f16x2 bf16 bf16x2 f32 f32x2 f64".split())
_COPIES = frozenset("mov selp slct".split())
_SUMS = frozenset("mov cvta add sub or".split())
"""What makes of a pointer and numbers a pointer; ``or`` adds to one that is aligned."""
_MEMORY = frozenset("ld ldu st red atom multimem".split())
_SPACE = re.compile("global|shared")
"""The first of a bulk copy's is where it writes."""
_SMALL = 1 << 20
_HALF = "32"

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Of one kernel: indices of the pointer parameters that it reads non-coherently, and writes."""

    noncoherent: tuple[int, ...] = ()
    written: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Move:
    """``target`` holds a pointer wherever a source does; less those of ``minus``."""

    target: _Key
    sources: tuple[_Key, ...]
    minus: _Key | None = None


@dataclass(slots=True)
class _Function:
    name: str
    formals: list[str]
    moves: list[_Move] = field(default_factory=list)
    reads: list[_Key] = field(default_factory=list)
    writes: list[_Key] = field(default_factory=list)
    escapes: list[_Key] = field(default_factory=list)
    calls: list[tuple[str, tuple[_Key, ...], tuple[_Key, ...]]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)


def reaches(ptx: str) -> tuple[str, ...]:
    """What the code uses that reaches outside a kernel, in words, whatever the source says."""
    return tuple(what for what, pattern in _REACHES.items() if pattern.search(ptx))


def uncommented(ptx: str) -> str:
    """The text with a space in place of each comment."""
    return _COMMENT.sub(" ", ptx)


def parameter_bytes(ptx: str) -> Mapping[str, tuple[int, ...]]:
    """The size of each parameter in bytes, by kernel."""
    return {
        found[3]: tuple(
            _bytes(declared)
            for part in (found[4] or "").split(",")
            if (declared := _PARAMETER.search(part))
        )
        for found in _FUNCTION.finditer(uncommented(ptx))
        if found[1] == "entry"
    }


def variable_bytes(ptx: str) -> Mapping[str, int]:
    """The sizes of the module's variables in bytes, by their names in the binary."""
    return {found["name"]: _bytes(found) for found in _VARIABLE.finditer(ptx)}


def lasting_variables(ptx: str) -> Mapping[str, int]:
    """The sizes in bytes of variables that keep what a launch writes to them, by name.

    One with an initial value is a table where its address is only added to and read from. Beside a
    variable that is none, tables count too: a write behind its end reaches them.
    """
    text = _VECTOR.sub(_joined, uncommented(ptx))
    declared = {found["name"]: found for found in _GLOBAL.finditer(text)}
    if not declared:
        return {}
    functions = {function.name: function for _, function in _functions(text, doubtful=True)}
    held = _held(
        functions,
        {
            (function, name): frozenset({number})
            for number, name in enumerate(declared)
            for function in functions
        },
    )
    changed = _origins(
        held, (key for one in functions.values() for key in (*one.writes, *one.escapes))
    )
    often = Counter(_WORD.findall(text))
    used = [name for name in declared if often[name] > 1]
    pointed_to = set(_WORD.findall(" ".join(_INITIAL.findall(text))))
    tables = {
        name
        for number, name in enumerate(declared)
        if number not in changed and declared[name]["end"] == "=" and name not in pointed_to
    }
    return {} if tables.issuperset(used) else {name: _bytes(declared[name]) for name in used}


def _bytes(declared: re.Match[str]) -> int:
    """The size of a parameter or variable: of an array, or of one number."""
    return int(declared["bits"]) // 8 * int(declared["count"] or 1)


def persists(ptx: str) -> bool:
    """Whether the code can make the last-level cache keep lines beyond a launch."""
    return any(word in ptx for word in _PERSISTS)


def bounds(ptx: str) -> Mapping[str, int]:
    """The most threads of a block by kernel, for the kernels with launch bounds."""
    return {
        found[1]: int(found[2]) * int(found[3] or 1) * int(found[4] or 1)
        for found in _BOUND.finditer(ptx)
    }


def accesses(ptx: str) -> Mapping[str, Access]:
    """Access by kernel, for the kernels with a non-coherent load that could be followed."""
    if not re.search(r"\.nc\b|\bldu\.", ptx):
        return {}
    functions: dict[str, _Function] = {}
    entries = []
    for kind, function in _functions(_VECTOR.sub(_joined, uncommented(ptx))):
        functions[function.name] = function
        if kind == "entry":
            entries.append(function)
    return {entry.name: _followed(entry, functions) for entry in entries}


def _followed(entry: _Function, functions: Mapping[str, _Function]) -> Access:
    reached, waiting = {entry.name: entry}, [entry]
    while waiting:
        for name, _, _ in waiting.pop().calls:
            if name in functions and name not in reached:
                reached[name] = functions[name]
                waiting.append(functions[name])
    held = _held(
        reached,
        {(entry.name, name): frozenset({index}) for index, name in enumerate(entry.formals)},
    )
    read = _origins(held, (key for function in reached.values() for key in function.reads))
    written = _origins(held, (key for function in reached.values() for key in function.writes))
    return Access(noncoherent=tuple(sorted(read)), written=tuple(sorted(written)))


def _origins(held: Mapping[_Key, frozenset[int]], keys: Iterable[_Key]) -> set[int]:
    """The parameters or variables that these may point to."""
    return set().union(*(held.get(key, frozenset()) for key in keys))


def _held(
    reached: Mapping[str, _Function], origins: Mapping[_Key, frozenset[int]]
) -> Mapping[_Key, frozenset[int]]:
    """Which parameters or variables each register may point to, given what some do."""
    held = dict(origins)
    moves = [move for function in reached.values() for move in function.moves]
    for function in reached.values():
        for name, given, taken in function.calls:
            if name in reached:
                formals, results = reached[name].formals, reached[name].results
                moves += [_Move((name, f), (g,)) for f, g in zip(formals, given, strict=False)]
                moves += [_Move(t, ((name, r),)) for t, r in zip(taken, results, strict=False)]
    following: dict[_Key, list[_Move]] = {}
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


def _functions(text: str, *, doubtful: bool = False) -> Iterator[tuple[str, _Function]]:
    """The functions with their kinds; see :class:`_Body`."""
    heads = [*_FUNCTION.finditer(text)]
    ends = [*(head.start() for head in heads), len(text)][1:]
    for head, end in zip(heads, ends, strict=True):
        function = _Function(head[3], _formals(head[4] or ""), results=_formals(head[2] or ""))
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

    def __init__(self, function: _Function, *, doubtful: bool) -> None:
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

    def _key(self, name: str) -> _Key:
        return self._function.name, self._renamed.get(name, name)

    def _keys(self, text: str) -> tuple[_Key, ...]:
        return tuple(self._key(name) for name in _NAME.findall(text))

    def _call(self, call: re.Match[str]) -> None:
        given, taken = self._keys(call[3] or ""), self._keys(call[1] or "")
        self._function.calls.append((call[2], given, taken))

    def _instruction(self, operation: str, rest: str) -> None:
        kind, *modifiers = operation.split(".")
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
            self._doubt(kind, values)
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
        if "bulk" in modifiers and next(filter(_SPACE.match, modifiers), "") != "global":
            return
        stored = tuple(key for value in values for key in self._keys(value))
        if space == "param":
            self._function.moves.extend(_Move(key, stored) for key in address)
        elif space in ("shared", "local") and kind == "st":
            self._function.moves.extend(_Move(key, stored) for key in self._memory(space))
        elif not space:
            self._function.writes.extend(address)
            self._function.escapes.extend(stored)

    def _doubt(self, kind: str, values: list[str]) -> None:
        """A pointer remains one where it is moved, chosen or added to; elsewhere it escapes."""
        kept, lost = [], values
        if kind in _SUMS:
            kept, lost = values[1:], []
        elif kind in ("mad", "selp", "slct"):
            pointers = slice(3, 4) if kind == "mad" else slice(1, 3)
            kept, lost = values[pointers], [*values[1 : pointers.start], *values[pointers.stop :]]
        sources = tuple(key for value in kept for key in self._keys(value))
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

    def _memory(self, space: str) -> tuple[_Key, ...]:
        """Everything kept in shared or in a function's local memory, as one variable."""
        shared, local = ("", "shared"), (self._function.name, "local")
        return {"shared": (shared,), "local": (local,)}.get(space, (shared, local))


def _only_numbers(kind: str, modifiers: list[str]) -> bool:
    """Whether what an instruction makes is a number, whatever it is made of."""
    of_floats = not _FLOATS.isdisjoint(modifiers[-1:])
    return kind in _NUMBERS or (of_floats and kind not in _COPIES)


def _joined(vector: re.Match[str]) -> str:
    """The registers of a vector as one operand."""
    return vector[1].replace(",", " ")


def _operands(text: str) -> Iterator[str]:
    """The parts between commas; an address in brackets is one."""
    return (found for found in _OPERAND.findall(text) if found.strip())
