"""The instruction mix of a kernel: how many instructions of each kind its PTX has.

Static: a loop's body counts once.
"""

import re
from collections import Counter
from collections.abc import Mapping

_ENTRY = re.compile(r"\.(entry|func)\s+(?:\([^()]*\)\s*)?([\w$]+)")
_INSTRUCTION = re.compile(
    r"(?:[;{}]|(?<!:):(?!:))\s*+(?:@!?%?[\w$]++\s++)?([a-z]\w*+(?:(?:\.|::)\w++)*+)(?=[\s;])"
)
_WIDTH = re.compile(r"^[busf](8|16|32|64|128)x?2?$")
_SPACES = ("global", "shared", "local", "const")
_SPECIAL = frozenset("cos div ex2 lg2 rcp rsqrt sin sqrt tanh".split())
_TENSOR = frozenset("ldmatrix mma wgmma wmma".split())
_PLACES = frozenset("cvta mov".split())


def mixes(ptx: str) -> Mapping[str, tuple[tuple[str, int], ...]]:
    """For each kernel and function of a program: its kinds of instructions, most frequent first."""
    starts = [*_ENTRY.finditer(ptx)]
    ends = [*(found.start() for found in starts), len(ptx)][1:]
    return {
        start[2]: _counted(ptx[start.end() : end]) for start, end in zip(starts, ends, strict=True)
    }


def _counted(body: str) -> tuple[tuple[str, int], ...]:
    body = body.partition("{")[2]
    found = Counter(
        kind for one in _INSTRUCTION.finditer("{" + body) if (kind := _kind(one[1])) is not None
    )
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _kind(instruction: str) -> str | None:
    """The kind of an instruction; ``None`` for those that cost next to nothing."""
    name, *more = instruction.split(".")
    if name in ("ld", "ldu", "st") or (name == "cp" and "async" in more):
        space = next((one for one in more if one in _SPACES), None)
        if "param" in more:
            return None
        way = {"st": "store", "cp": "asynchronous copy"}.get(name, "load")
        return f"{space or 'generic'} {way}{_bytes(more)}"
    if name in ("atom", "red"):
        return "atomic"
    if name in ("bar", "barrier", "membar", "fence", "mbarrier"):
        return "barrier or fence"
    if name in ("shfl", "vote", "match", "redux", "activemask"):
        return "warp exchange"
    if name in ("bra", "brx", "call"):
        return "branch or call"
    if name in _TENSOR:
        return "tensor core"
    if name in _PLACES or name in ("ret", "exit", "nop"):
        return None
    if name == "cvt":
        return "conversion"
    kind = more[-1] if more else ""
    if name in _SPECIAL and kind.startswith("f"):
        return f"special function {kind}"
    if kind.startswith(("f16", "bf16", "f32", "f64")):
        return f"arithmetic {kind}"
    return "integer or predicate" if kind else None


def _bytes(modifiers: list[str]) -> str:
    """How many bytes one thread moves at once, as text."""
    times = next((int(m[1:]) for m in modifiers if m in ("v2", "v4", "v8")), 1)
    width = next((found for m in modifiers if (found := _WIDTH.match(m))), None)
    return f" of {times * int(width[1]) // 8} B" if width else ""
