"""One memory or race checker: its command, and how to read its report.

A report is text from a process in which candidate code ran. It decides only whether there is a
finding, and is shown to people.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.plan import Binary, Step

MAX_PRINTED = 100
"""Errors that a tool prints, at most."""


def lacks_nothing(binary: Binary, steps: Sequence[Step]) -> str:  # noqa: ARG001 (one signature)
    """Any launch has what the tool checks."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A command to put before the launcher's, and how to read its log.

    ``read`` returns what was found, or ``None`` where the log does not say that it ended.
    ``together``: it misses nothing where one process launches several candidates. ``most_bytes``
    is the largest shape that it gets through in time. ``lacks`` returns what launches of a build
    certainly lack of what it checks, empty where they may have it.
    """

    name: str
    command: tuple[str, ...]
    log: Path
    most_bytes: int
    read: Callable[[str], tuple[str, ...] | None]
    together: bool = False
    lacks: Callable[[Binary, Sequence[Step]], str] = lacks_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiler:
    """A tool that reads hardware counters; ``counters`` parses its log.

    Where there are none, it returns the tool's reason, empty if it gives none.
    """

    tool: Tool
    counters: Callable[[str], tuple[tuple[str, float], ...] | str]


def described(kind: str, count: int, place: str) -> str:
    """A kind of error with its first place and the number of times it occurred."""
    return f"{kind}{f' {place}' if place else ''}{f' ({count} times)' if count > 1 else ''}"
