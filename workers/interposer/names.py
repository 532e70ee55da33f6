"""Kernel names as people write them."""

import difflib
import re
from collections.abc import Iterable

_ANONYMOUS = "(anonymous)"
_NAMED = re.compile(r"\d+")


def readable_name(name: str) -> str:
    """The qualified name in a mangled C++ name, without arguments; the name itself if not mangled.

    ``_ZN2at6native4copyIfEEvPT_`` is ``at::native::copy``.
    """
    if not name.startswith("_Z"):
        return name
    rest = name[2:].removeprefix("N").lstrip("rVK")
    parts: list[str] = []
    while rest:
        if rest.startswith("L"):  # internal linkage
            rest = rest[1:]
        match = _NAMED.match(rest)
        if match is None:
            break
        length, start = int(match[0]), match.end()
        part = rest[start : start + length]
        rest = rest[start + length :]
        parts.append(_ANONYMOUS if part.startswith("_GLOBAL__N") else part)
        if not name.startswith("_ZN"):
            break
        if rest.startswith("I"):  # template arguments end the name for people
            break
    return "::".join(parts) or name


def mangled_part(name: str) -> str:
    """What a mangled name contains for a qualified name: ``at::copy`` is ``2at4copy``."""
    parts = name.split("::")
    if len(parts) == 1 or not all(parts):
        return name
    named = ("_GLOBAL__N_1" if part == _ANONYMOUS else part for part in parts)
    return "".join(f"{len(part)}{part}" for part in named)


def nearest_names(wanted: str, names: Iterable[str], count: int = 3) -> list[str]:
    """The names most like ``wanted``, the likeliest first; by their last part."""
    plain = {readable_name(name): name for name in sorted(names)}
    short = {full.rpartition("::")[2]: full for full in plain}
    close = difflib.get_close_matches(wanted.strip("*"), short, n=count, cutoff=0.4)
    return [short[name] for name in close]
