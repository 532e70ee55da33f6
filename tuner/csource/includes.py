"""Which files an ``#include`` means: by name among recorded headers, never by a path on a disk.

A recorded header's name is its path relative to the source's folder, or to the include folder in
which it was found. A name that climbs above that folder has ``__parent__`` for each ``..``, so no
name leaves the folders that were recorded.
"""

import posixpath
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from tuner.csource.tree import without_comments

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:"[^"\n]*"|<[^>\n]*>)', re.MULTILINE)
_PARENT = "__parent__"


@dataclass(frozen=True, slots=True)
class Include:
    """One directive: the name, whether it is in quotes, and where name and delimiters lie."""

    name: str
    quoted: bool
    span: tuple[int, int]


def includes(text: str) -> Iterator[Include]:
    """The ``#include`` directives that name a file, in every branch of every condition."""
    for found in _INCLUDE.finditer(without_comments(text)):
        last = text[found.end() - 1]
        start = text.index('"' if last == '"' else "<", found.start())
        yield Include(text[start + 1 : found.end() - 1], last == '"', (start, found.end()))


def candidates(file: str, include: Include) -> tuple[str, ...]:
    """The recorded names that an include in ``file`` may mean, best first."""
    spelled = _recorded(include.name)
    if not include.quoted:
        return (spelled,)
    beside = posixpath.join(posixpath.dirname(file.replace(_PARENT, "..")), include.name)
    return tuple(dict.fromkeys((_recorded(beside), spelled)))


def resolved(file: str, include: Include, names: Container[str]) -> str | None:
    """The recorded header that an include in ``file`` means; ``None`` if there is none."""
    return next((name for name in candidates(file, include) if name in names), None)


def with_recorded_names(file: str, text: str, headers: Mapping[str, str]) -> str:
    """The text with each include of a recorded header spelled by that header's name."""
    parts, end = [], 0
    for include in includes(text):
        name = resolved(file, include, headers)
        if name is not None and name != include.name:
            parts += [text[end : include.span[0]], f'"{name}"']
            end = include.span[1]
    return "".join((*parts, text[end:]))


def reached(file: str, text: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """The recorded headers that a source includes, directly or not, in the order of first use."""
    found: dict[str, None] = {}
    waiting = [(file, text)]
    while waiting:
        file, text = waiting.pop()
        new = (resolved(file, include, headers) for include in includes(text))
        for name in dict.fromkeys(new):
            if name is not None and name not in found:
                found[name] = None
                waiting.append((name, headers[name]))
    return tuple(found)


def _recorded(path: str) -> str:
    return posixpath.normpath(path).replace("..", _PARENT)
