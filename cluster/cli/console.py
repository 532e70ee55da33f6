"""What commands say on stderr while they work: messages, and the live line of how far a run is.

The line is Rich's where stderr is a terminal, else a plain one when something worth it happened.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

import typer

from tuner.engine.progress import RunProgress, round_text
from tuner.printable import printable_line

LINE_SECONDS = 10.0
"""Without a terminal, a line at least this often while trials come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a command is busy with; in a run with agents, between the searches of a round."""

    words: str
    round: int = 0
    suffix: str = ""

    def __str__(self) -> str:
        where = round_text(self.round, self.suffix)
        return f"{where}: {self.words}" if self.round else self.words


Update = RunProgress | Activity

Show = Callable[[Update | str], None]
"""Brings the live line up to date."""


def say(message: str) -> None:
    """Print a message for the user on stderr."""
    typer.echo(f"kernelwright: {message}", err=True)


@contextmanager
def display(stream: TextIO | None = None) -> Iterator[Show]:
    """What fits the stream, stderr by default: a live line on a terminal, else plain lines."""
    terminal = stream or sys.__stderr__  # sys.stderr would escape what moves the cursor
    if terminal is None or not terminal.isatty():
        yield _Lines(stream or sys.stderr).show
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(file=terminal).status("starting") as status:
        yield lambda update: status.update(escape(printable_line(str(update))))


class _Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: Update | str | None = None
        self._said: set[str] = set()
        self._printed = float("-inf")

    def show(self, update: Update | str) -> None:
        """Print a line for a new phase, a new leader, or after a while; none of them twice."""
        now, last = time.monotonic(), self._last
        news = last is None or _subject(update) != _subject(last)
        text = str(update)
        if text not in self._said and (news or now - self._printed >= LINE_SECONDS):
            self._stream.write(f"kernelwright: {text}\n")
            self._stream.flush()
            self._said.add(text)
            self._last, self._printed = update, now


def _subject(shown: Update | str) -> object:
    """What is worth a line of its own when it changes."""
    if not isinstance(shown, RunProgress):
        return shown
    return (
        shown.round,
        shown.suffix,
        shown.phase,
        shown.leader,
        bool(shown.again),
        bool(shown.lost),
        shown.missing,
        shown.waiting,
        shown.waits,
    )
