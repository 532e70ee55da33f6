"""What a kernel's indices say of its launch and its arrays, for a first spec: guesses, all of them.

Reads text with regular expressions, as people skim it: no preprocessor, no types. ``source`` is
always without comments.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_AXES = 3
_AXES = "012", "xyz"
_THREAD = r"get_(?:global|local)_id\s*\(\s*{0}\s*\)|\bthreadIdx\s*\.\s*{1}\b"
_BLOCK = r"get_(?:global|group)_id\s*\(\s*{0}\s*\)|\bblockIdx\s*\.\s*{1}\b"
_ELEMENT = r"\b(\w+)\s*\[[^;={}]*\]\s*"
_INDEX = re.compile(r"\b(\w+)\s*\[([^\[\];]*)\]")
_ATOMIC = re.compile(r"\batomic\w*\s*\(\s*(?:\([^()]*\)\s*)?&?\s*(\w+)")
_ASSIGNED = re.compile(r"\b(\w+)\s*=(?!=)\s*([^;,]*)")
_COMPARED = re.compile(r"\b(\w+)\s*(?:<|>=)\s*(\w+)\s*(?=[);&|?])")
_INTEGER = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d+)[uUlL]*\)?[ \t]*$", re.M)
_REQUIRED = re.compile(r"\breqd_work_group_size(?:__)?\s*\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a launch: which index of it is read, and below what the two together stay.

    ``bound`` is a name or a number, ``None`` where the source says none.
    """

    thread: bool
    block: bool
    bound: str | None


def axes(source: str) -> tuple[Axis, ...]:
    """The dimensions of its launch that a source asks for; one where it is not seen to ask."""
    bounds = _bounds(source)
    found = [_axis(source, number, bounds) for number in range(MAX_AXES)]
    while found and not (found[-1].thread or found[-1].block):
        found.pop()
    return tuple(found) or (Axis(thread=True, block=True, bound=None),)


def required_block(source: str) -> tuple[int, ...]:
    """The one block that a source says it must be launched with; empty where it says none."""
    macros = _integers(source)
    found = set()
    for extents in _REQUIRED.findall(source):
        words = [macros.get(word.strip(), word.strip()) for word in extents.split(",")]
        if len(words) != MAX_AXES or not all(re.fullmatch(r"[1-9]\d*", word) for word in words):
            return ()
        found.add(tuple(map(int, words)))
    if len(found) != 1:
        return ()
    (block,) = found
    while len(block) > 1 and block[-1] == 1:
        block = block[:-1]
    return block


def updated(source: str) -> frozenset[str]:
    """Names of arrays that are updated where they stand, and nowhere assigned afresh."""
    found = set(re.findall(_ELEMENT + r"(?:[-+*/%&|^]|<<|>>)=", source))
    found |= set(_ATOMIC.findall(source))
    return frozenset(found - set(re.findall(_ELEMENT + r"=(?!=)", source)))


def factors(source: str) -> dict[str, frozenset[str]]:
    """By array, the names and numbers that something is multiplied by in its indices."""
    macros = _integers(source)
    found: dict[str, set[str]] = {}
    for array, index in _INDEX.findall(source):
        words = re.findall(r"\*\s*(\w+)", index) + re.findall(r"\b(\w+)\s*\*", index)
        found.setdefault(array, set()).update(macros.get(word, word) for word in words)
    return {array: frozenset(names) for array, names in found.items()}


def lengths(source: str) -> dict[str, str]:
    """Arrays whose every index is a variable that stays below one bound, with that bound."""
    bounds = _bounds(source)
    found: dict[str, set[str | None]] = {}
    for array, index in _INDEX.findall(source):
        if index.strip():
            found.setdefault(array, set()).add(bounds.get(index.strip()))
    return {array: bound for array, (bound, *more) in found.items() if bound and not more}


def _axis(source: str, number: int, bounds: dict[str, str]) -> Axis:
    names = [of[number] for of in _AXES]
    thread, block = (re.compile(of.format(*names)) for of in (_THREAD, _BLOCK))
    threaded = bool(thread.search(source))

    def below() -> Iterator[str]:
        for variable, value in _ASSIGNED.findall(source):
            spans = block.search(value) and (thread.search(value) or not threaded)
            if spans and variable in bounds:
                yield bounds[variable]

    found = set(below())
    bound = found.pop() if len(found) == 1 else None
    return Axis(thread=threaded, block=bool(block.search(source)), bound=bound)


def _bounds(source: str) -> dict[str, str]:
    """What each variable is compared with, where that is one thing throughout."""
    macros = _integers(source)
    found: dict[str, set[str]] = {}
    for variable, bound in _COMPARED.findall(source):
        found.setdefault(variable, set()).add(macros.get(bound, bound))
    return {variable: bound for variable, (bound, *more) in found.items() if not more}


def _integers(source: str) -> dict[str, str]:
    """The macros that stand for one integer."""
    found: dict[str, set[str]] = {}
    for name, value in _INTEGER.findall(source):
        found.setdefault(name, set()).add(value)
    return {name: value for name, (value, *more) in found.items() if not more}
