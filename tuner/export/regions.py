"""Regions that ``apply`` adds to a source: marked, switched off by a macro, and removable.

::

    #ifndef KERNELWRIGHT_OFF  // kernelwright apply KERNEL: begin 0123abcd
    added lines
    #else
    original lines
    #endif  // kernelwright apply KERNEL: end

Without original lines there is no ``#else``. The number is a digest of the added lines without
white space, so that an edit is seen, but not a formatter's work.
"""

import hashlib
import re
from collections.abc import Sequence

from tuner.errors import SpecError

OFF = "KERNELWRIGHT_OFF"
"""The macro without whose definition the added lines are compiled."""

_BEGIN = re.compile(rf"\s*#\s*ifndef\s+{OFF}\s*//\s*kernelwright apply (\w+): begin (\w+)\s*")
_END = re.compile(r"\s*#\s*endif\s*//\s*kernelwright apply (\w+): end\s*")
_ELSE = re.compile(r"\s*#\s*else\s*")
_NESTED = re.compile(r"\s*#\s*(if|endif)")


def region(kernel: str, added: Sequence[str], original: Sequence[str] = ()) -> list[str]:
    """The lines of a region, without line ends."""
    return [
        f"#ifndef {OFF}  // kernelwright apply {kernel}: begin {digest(added)}",
        *added,
        *(["#else", *original] if original else []),
        f"#endif  // kernelwright apply {kernel}: end",
    ]


def without_regions(text: str, file: str, kernel: str | None = None) -> str:
    """The text without the regions of one kernel, or of all; original lines as they are now.

    Raises:
        SpecError: a region is incomplete, or its added lines were edited.
    """
    kept: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        begin = _BEGIN.fullmatch(lines[at])
        if begin is None or kernel not in (None, begin[1]):
            kept.append(lines[at])
            at += 1
            continue
        middle, end = _bounds(lines, at, begin[1], file)
        if digest(lines[at + 1 : middle]) != begin[2]:
            raise SpecError(
                f"{file}:{at + 1}: the lines that `apply` added here were edited since; keep the "
                f"edit elsewhere, delete the region (lines {at + 1} to {end + 1}, but not the "
                "original lines after #else), and apply again"
            )
        kept += lines[middle + 1 : end]
        at = end + 1
    return "\n".join(kept)


def has_regions(text: str) -> bool:
    """Whether there is a region of any kernel."""
    return any(_BEGIN.fullmatch(line) for line in text.split("\n"))


def digest(lines: Sequence[str]) -> str:
    """Eight hexadecimal digits for lines, whatever their white space."""
    return hashlib.sha256("".join("".join(lines).split()).encode()).hexdigest()[:8]


def _bounds(lines: Sequence[str], begin: int, kernel: str, file: str) -> tuple[int, int]:
    """The numbers of the line ``#else`` (or of the end, without one) and of the end."""
    middle, depth = None, 0
    for at in range(begin + 1, len(lines)):
        end = _END.fullmatch(lines[at])
        if end and end[1] == kernel and depth == 0:
            return at if middle is None else middle, at
        if _ELSE.fullmatch(lines[at]) and depth == 0 and middle is None:
            middle = at
        elif nested := _NESTED.match(lines[at]):
            depth += 1 if nested[1] == "if" else -1
    raise SpecError(
        f"{file}:{begin + 1}: the region that `apply` added here has no end "
        f"(#endif  // kernelwright apply {kernel}: end); restore it, or delete what was added"
    )
