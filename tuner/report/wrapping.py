"""Text in lines that fit a terminal. Imports nothing of ours, like all that prints errors."""

import textwrap
from shutil import get_terminal_size
from typing import TextIO

WIDTH = 80
"""Columns that are filled by default, and at least."""

MOST_PROSE = 110
"""Columns that wrapped text fills at most: longer lines are hard to read."""


def terminal_width() -> int:
    """Columns of the terminal, at least :data:`WIDTH`, and so many where there is none."""
    return max(get_terminal_size((WIDTH, 24)).columns, WIDTH)


def fitting(text: str, stream: TextIO) -> str:
    """Text for a stream: wrapped where it is a terminal, and otherwise as it is."""
    return hanging(text, min(terminal_width(), MOST_PROSE)) if stream.isatty() else text


def hanging(text: str, width: int, deeper: int = 2) -> str:
    """Text wrapped to ``width`` columns, with each line's own indent, in the next lines deeper."""
    lines = []
    for line in text.splitlines():
        if len(line) <= width:  # also keeps columns of code where they are
            lines.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()))
        lines.append(wrapped(line.lstrip(), width, indent, indent + " " * deeper))
    return "\n".join(lines)


def wrapped(text: str, width: int, first: str, rest: str) -> str:
    """A paragraph whose first line begins with ``first``, and each other one with ``rest``."""
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
