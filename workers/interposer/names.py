"""Kernel names as people write them."""

import difflib
from collections.abc import Iterable

from tuner.csource.mangling import ANONYMOUS, demangled


def readable_name(name: str) -> str:
    """The qualified name in a mangled C++ name, without arguments; the name itself if not mangled.

    ``_ZN2at6native4copyIfEEvPT_`` is ``at::native::copy``.
    """
    return demangled(name).qualified


def mangled_part(name: str) -> str:
    """What a mangled name contains for a qualified name: ``at::copy`` is ``2at4copy``."""
    parts = name.split("::")
    if len(parts) == 1 or not all(parts):
        return name
    named = ("_GLOBAL__N_1" if part == ANONYMOUS else part for part in parts)
    return "".join(f"{len(part)}{part}" for part in named)


def nearest_names(wanted: str, names: Iterable[str], count: int = 3) -> list[str]:
    """The names most like ``wanted``, the likeliest first; by their last part."""
    plain = {readable_name(name): name for name in sorted(names)}
    short = {full.rpartition("::")[2]: full for full in plain}
    close = difflib.get_close_matches(wanted.strip("*"), short, n=count, cutoff=0.4)
    return [short[name] for name in close]
