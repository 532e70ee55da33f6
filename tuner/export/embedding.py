"""A self-contained source as part of another file: in a namespace of its own.

Headers of the run become part of the text; other ``#include`` lines are taken out, to stand outside
the namespace. C linkage is removed, since it would make equal names of different namespaces one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.csource.tree import without_comments
from tuner.errors import SpecError

MAX_CHARACTERS = 4 << 20
"""Longest text of one source with its headers: longer ones include each other without end."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">][^\n]*', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b[^\n]*", re.MULTILINE)
_GUARDED = re.compile(r"\s*#[ \t]*ifndef[ \t]+(\w+)\s*\n\s*#[ \t]*define[ \t]+\1\b")
_LINKAGE = re.compile(r'\bextern\s*" "\s*(\{)?')
_MACRO = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Embedded:
    """A source's ``#include`` lines, and the rest of its text."""

    includes: tuple[str, ...]
    text: str

    @property
    def macros(self) -> frozenset[str]:
        """Every macro that the text defines."""
        return defined_macros(self.text)


def defined_macros(source: str) -> frozenset[str]:
    """Every macro that a source defines or undefines."""
    return frozenset(_MACRO.findall(without_comments(source)))


def embedded(source: str, headers: Mapping[str, str]) -> Embedded:
    """The source with the headers that it includes, in a form that a namespace can hold.

    Raises:
        SpecError: it is too long with its headers.
    """
    includes: dict[str, None] = {}
    once: set[str] = set()
    length = 0

    def expand(text: str, *around: str) -> str:
        nonlocal length
        length += len(text)
        if length > MAX_CHARACTERS or len(around) > 50:
            raise SpecError("the tuned source includes headers without end, or too many")
        visible = without_comments(text)

        def include(match: re.Match[str]) -> str:
            name = match[2].strip()
            if visible[match.start() : match.end()].lstrip()[:1] != "#":
                return match[0]
            if name not in headers:
                includes[f"#include {match[1]}{name}{'>' if match[1] == '<' else match[1]}"] = None
                return ""
            if name in once or name in around:
                return ""
            header = without_comments(headers[name])
            if _ONCE.search(header) or _GUARDED.match(header):
                once.add(name)
            return expand(headers[name], name, *around).rstrip("\n")

        return _ONCE.sub("", _INCLUDE.sub(include, text))

    whole = expand(source)
    text = re.sub(r"\n(?:[ \t]*\n){2,}", "\n\n", _without_linkage(whole))
    return Embedded(tuple(includes), text.strip("\n"))


def _without_linkage(text: str) -> str:
    """The text with C linkage removed: of a declaration, and of a block, which stays a block."""
    visible = without_comments(text)
    parts, end = [], 0
    for match in _LINKAGE.finditer(visible):
        if '"C"' in text[match.start() : match.end()]:
            parts += [text[end : match.start()], "namespace {" if match[1] else ""]
            end = match.end()
    return "".join([*parts, text[end:]])
