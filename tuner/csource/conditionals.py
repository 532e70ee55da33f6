"""The ways to read code whose conditionals hold braces that do not match within a branch.

Conditions are not evaluated: a compiler knows names that this program does not. All branches of a
conditional are read, unless braces do not match in one, as in ``#if 0`` before a ``{`` alone. Then
one branch at a time is read, the same wherever the same conditions stand before the next
``#define``. What is compiled is among these readings, and its braces match.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from tuner.csource.expansion import Line, expanded_lines, source_lines

MAX_READINGS = 64


@dataclass(slots=True)
class _Conditional:
    """Its branches, an empty one last if it has no ``#else``; ``after`` so many definitions."""

    after: int
    conditions: list[Line] = field(default_factory=list)
    branches: list["list[Line | _Conditional]"] = field(default_factory=list)

    @property
    def key(self) -> tuple[int, tuple[Line, ...]]:
        """Equal for conditionals that choose alike."""
        return self.after, tuple(self.conditions)


_Section = list[Line | _Conditional]


def balanced_readings(source: str) -> Iterator[Line]:
    """The expanded code of each reading in which braces match; none if there are too many readings.

    Raises:
        SpecError: the code does not end to expand.
    """
    lines = source_lines(source)
    section = _parsed(lines)
    unmatched = _unmatched_macros(lines)
    chosen = {c.key: len(c.branches) for c in _conditionals(section) if _is_split(c, unmatched)}
    if math.prod(chosen.values()) > MAX_READINGS:
        return
    for way in itertools.product(*map(range, chosen.values())):
        choice = dict(zip(chosen, way, strict=True))
        yield from filter(_matches, expanded_lines(list(_read(section, choice))))


def _parsed(lines: Sequence[Line]) -> _Section:
    """The lines, with conditionals in their places; a missing ``#endif`` ends the last one."""
    section: _Section = []
    open_sections = [section]
    inside: list[_Conditional] = []
    defined = 0
    for line in lines:
        directive = line[1] if line[:1] == ("#",) and len(line) > 1 else ""
        if directive in ("if", "ifdef", "ifndef"):
            inside.append(_Conditional(defined, [line], [[]]))
            open_sections[-1].append(inside[-1])
            open_sections.append(inside[-1].branches[-1])
        elif directive.startswith("el") and inside:
            inside[-1].conditions.append(line)
            inside[-1].branches.append([])
            open_sections[-1] = inside[-1].branches[-1]
        elif directive == "endif" and inside:
            ended = inside.pop()
            open_sections.pop()
            if ended.conditions[-1][1] != "else":
                ended.branches.append([])
        else:
            defined += directive in ("define", "undef")
            open_sections[-1].append(line)
    return section


def _unmatched_macros(lines: Sequence[Line]) -> set[str]:
    """Names of the macros in whose bodies braces may not match."""
    bodies: dict[str, list[Line]] = {}
    for line in lines:
        if line[:2] == ("#", "define") and len(line) > 2:
            bodies.setdefault(line[2], []).append(line[3:])
    found: set[str] = set()
    while (
        more := {
            name for name, each in bodies.items() if any(_may_open(body, found) for body in each)
        }
        - found
    ):
        found |= more
    return found


def _conditionals(section: _Section) -> Iterator[_Conditional]:
    for one in section:
        if isinstance(one, _Conditional):
            yield one
            for branch in one.branches:
                yield from _conditionals(branch)


def _is_split(conditional: _Conditional, unmatched: Set[str]) -> bool:
    """Whether braces may not match within a branch."""
    return any(
        any(_is_split(one, unmatched) for one in branch if isinstance(one, _Conditional))
        or _may_open(
            [w for one in branch if isinstance(one, tuple) and one[:1] != ("#",) for w in one],
            unmatched,
        )
        for branch in conditional.branches
    )


def _may_open(words: Sequence[str], unmatched: Set[str]) -> bool:
    """Whether braces may not match once macros are expanded: one may drop what it is given."""
    parentheses = itertools.accumulate((word == "(") - (word == ")") for word in words)
    given = any(
        depth > 0 and word in ("{", "}") for word, depth in zip(words, parentheses, strict=True)
    )
    return given or not unmatched.isdisjoint(words) or not _matches(words)


def _matches(words: Sequence[str]) -> bool:
    """Whether every brace has its other one."""
    depths = list(itertools.accumulate((word == "{") - (word == "}") for word in words))
    return not depths or (depths[-1] == 0 and min(depths) >= 0)


def _read(section: _Section, choice: Mapping[tuple[int, tuple[Line, ...]], int]) -> Iterator[Line]:
    """The lines of the chosen branches, and of all branches of other conditionals."""
    for one in section:
        if isinstance(one, tuple):
            yield one
        elif one.key in choice:
            yield from _read(one.branches[choice[one.key]], choice)
        else:
            for branch in one.branches:
                yield from _read(branch, choice)
