"""What PTX tells of a module: features that its source can hide, bounds, sizes, buffer accesses.

A non-coherent load (``ld.global.nc``, from ``__ldg`` or ``const __restrict__``) of memory that the
same kernel writes is undefined. A pointer that is lost on its way from the kernel's parameters is
left out: only buffers that are certain are named.

All but :func:`code_of` take what that returns. The text may be hostile: no pattern scans past the
start of its next match, so time is linear.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from workers.backends.cuda.ptx_pointers import (
    CONSTANT,
    FUNCTION,
    Function,
    functions,
    held_by,
    joined,
    origins,
)

_REACHES = {
    "griddepcontrol": re.compile("griddepcontrol"),
    "a clock": re.compile(r"%(?:clock|globaltimer|pm\d)"),
    "printf": re.compile(r"vprintf\b(?<!\wvprintf)"),
    "the launch of another kernel": re.compile(r"cuda(?:LaunchDevice|GraphLaunch|GetParameter)"),
    "the device's heap, which outlasts a launch": re.compile(
        r"\.extern\s+\.func[^;{]*?\b(?:malloc|free)\b"
    ),
    "an instruction that discards what was written": re.compile(
        r"discard(?<![\w$]discard)\s*\.\s*(?:global|L2)"
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
_PERSISTS = re.compile(r"createpolicy|applypriority|L2\s*::\s*(?:evict_last|cache_hint)")
_BOUND = re.compile(
    r"\.entry\s+([\w$]++)[^{.]*+(?:\.(?!entry|maxntid)[^{.]*+)*+"
    r"\.maxntid\s+(\d{1,9})(?:,\s*(\d{1,9}))?(?:,\s*(\d{1,9}))?"
)
_NO_CODE = re.compile(r'"[^"]*+"|//[^\n]*+|/\*.*?(?:\*/|\Z)', re.S)
"""A string or a comment. ptxas knows no escapes in strings, and lets them hold line ends."""
_SIZED = r"\.(?:param|const|global)\s+(?:\.align\s+\d+\s+)?\.[a-z]+(?P<bits>\d{1,9})\b"
_PARAMETER = re.compile(_SIZED + r"[^\[]*+(?:\[(?P<count>\d{1,18})\])?")
_VARIABLE = re.compile(_SIZED + r"\s+(?P<name>[\w$]+)(?:\[(?P<count>\d{1,18})\])?\s*[=;]")
_GLOBAL = re.compile(
    r"\.(?P<space>global|const)\s+(?:\.attribute\([^()]*\)\s+)?(?:\.align\s+\d+\s+)?\.[a-z]+(?P<bits>\d{1,9})\s+"
    r"(?P<name>[\w$]+)(?:\[(?P<count>\d{1,18})\])?\s*(?P<end>[=;])"
)
_INITIAL = re.compile(r"=([^;]*);")
_WORD = re.compile(r"[\w$]+")
_CONSTANT_ADDRESS = re.compile(r"cvta\s*\.(?:const|param)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Of one kernel: indices of the pointer parameters that it reads non-coherently, and writes."""

    noncoherent: tuple[int, ...] = ()
    written: tuple[int, ...] = ()


def reaches(ptx: str, filled: Collection[str] = ()) -> tuple[str, ...]:
    """What the code uses that reaches outside a kernel, in words, whatever the source says.

    ``filled`` are the variables, by their names in the binary, that the bench fills.
    """
    found = [what for what, pattern in _REACHES.items() if pattern.search(ptx)]
    if _CONSTANT_ADDRESS.search(ptx) and _writes_constants(ptx):
        found.append("a write to constant memory or to its parameters")
    if filled and not _changed_variables(ptx).isdisjoint(filled):
        found.append("a write to a variable that is filled for it")
    return tuple(found)


def code_of(ptx: str) -> str:
    """The text with a space in place of each comment and each string."""
    return _NO_CODE.sub(" ", ptx)


def parameter_bytes(ptx: str) -> Mapping[str, tuple[int, ...]]:
    """The size of each parameter in bytes, by kernel."""
    return {
        found[3]: tuple(
            _bytes(declared)
            for part in (found[4] or "").split(",")
            if (declared := _PARAMETER.search(part))
        )
        for found in FUNCTION.finditer(ptx)
        if found[1] == "entry"
    }


def variable_bytes(ptx: str) -> Mapping[str, int]:
    """The sizes of the module's variables in bytes, by their names in the binary."""
    return {found["name"]: _bytes(found) for found in _VARIABLE.finditer(ptx)}


def lasting_variables(ptx: str) -> Mapping[str, int]:
    """The sizes in bytes of variables that keep what a launch writes to them, by name.

    One with an initial value is a table where its address is only added to and read from. Beside a
    variable that is none, tables count too: a write behind its end reaches them. Constant memory
    counts where it is written, by an address that does not say that it is constant.
    """
    declared = {found["name"]: found for found in _GLOBAL.finditer(ptx)}
    if not declared:
        return {}
    changed = _changed_variables(ptx)
    often = Counter(_WORD.findall(ptx))
    used = [
        name
        for name, found in declared.items()
        if often[name] > 1 and (found["space"] == "global" or name in changed)
    ]
    tables = {name for name in used if name not in changed and declared[name]["end"] == "="}
    return {} if tables.issuperset(used) else {name: _bytes(declared[name]) for name in used}


def _changed_variables(ptx: str) -> set[str]:
    """The variables that are written to, or whose addresses are used otherwise than to read."""
    text = joined(ptx)
    declared = [found["name"] for found in _GLOBAL.finditer(text)]
    known = {function.name: function for _, function in functions(text, doubtful=True)}
    held = held_by(
        known,
        {
            (function, name): frozenset({number})
            for number, name in enumerate(declared)
            for function in known
        },
    )
    used = (key for one in known.values() for key in (*one.writes, *one.escapes))
    changed = origins(held, used)
    pointed_to = set(_WORD.findall(" ".join(_INITIAL.findall(text))))
    return {name for n, name in enumerate(declared) if n in changed or name in pointed_to}


def _writes_constants(ptx: str) -> bool:
    """Whether it writes to an address that it made of one in constant memory or in parameters.

    Devices let it, and what was written outlasts the launch.
    """
    text = joined(ptx)
    known = {function.name: function for _, function in functions(text, doubtful=True)}
    held = held_by(known, {CONSTANT: frozenset({0})})
    return bool(origins(held, (key for one in known.values() for key in one.writes)))


def _bytes(declared: re.Match[str]) -> int:
    """The size of a parameter or variable: of an array, or of one number."""
    return int(declared["bits"]) // 8 * int(declared["count"] or 1)


def persists(ptx: str) -> bool:
    """Whether the code can make the last-level cache keep lines beyond a launch."""
    return bool(_PERSISTS.search(ptx))


def shares(ptx: str) -> bool:
    """Whether the code may name shared memory; false is certain."""
    return "shared" in ptx


def synchronises(ptx: str) -> bool:
    """Whether the code may have a barrier or synchronise a warp; false is certain.

    Every such instruction has one of these words in its name.
    """
    return "bar" in ptx or "sync" in ptx


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
    known: dict[str, Function] = {}
    entries = []
    for kind, function in functions(joined(ptx)):
        known[function.name] = function
        if kind == "entry":
            entries.append(function)
    return {entry.name: _followed(entry, known) for entry in entries}


def _followed(entry: Function, known: Mapping[str, Function]) -> Access:
    reached, waiting = {entry.name: entry}, [entry]
    while waiting:
        for name, _, _ in waiting.pop().calls:
            if name in known and name not in reached:
                reached[name] = known[name]
                waiting.append(known[name])
    held = held_by(
        reached,
        {(entry.name, name): frozenset({index}) for index, name in enumerate(entry.formals)},
    )
    read = origins(held, (key for function in reached.values() for key in function.reads))
    written = origins(held, (key for function in reached.values() for key in function.writes))
    return Access(noncoherent=tuple(sorted(read)), written=tuple(sorted(written)))
