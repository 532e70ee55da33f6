"""The live line on stderr that shows how far a run is.

Rich where stderr is a terminal, else one plain line when something worth a line happened.
"""

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from tuner.engine.progress import RunProgress, round_text
from tuner.printable import printable_line

if TYPE_CHECKING:
    from rich.status import Status

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


class Display(Protocol):
    """Shows progress while a run goes on; a context manager."""

    def __enter__(self) -> "Display": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, update: Update) -> None:
        """Bring the display up to date."""
        ...


def display(stream: TextIO | None = None) -> Display:
    """What fits the stream, stderr by default: a live line on a terminal, else plain lines."""
    terminal = stream or sys.__stderr__  # sys.stderr would escape what moves the cursor
    if terminal is not None and terminal.isatty():
        return _Live(terminal)
    return _Lines(stream or sys.stderr)


class _Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: Update | None = None
        self._said: set[str] = set()
        self._printed = float("-inf")

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def show(self, update: Update) -> None:
        """Print a line for a new phase, a new leader, or after a while; none of them twice."""
        now, last = time.monotonic(), self._last
        news = last is None or _subject(update) != _subject(last)
        text = str(update)
        if text not in self._said and (news or now - self._printed >= LINE_SECONDS):
            self._stream.write(f"kernelwright: {text}\n")
            self._stream.flush()
            self._said.add(text)
            self._last, self._printed = update, now


class _Live:
    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._status: Status = Console(file=stream).status("starting")

    def __enter__(self) -> "_Live":
        self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.stop()

    def show(self, update: Update) -> None:
        """Replace the live line."""
        from rich.markup import escape

        self._status.update(escape(printable_line(str(update))))


def _subject(shown: Update) -> tuple[object, ...]:
    """What is worth a line of its own when it changes."""
    if isinstance(shown, Activity):
        return (shown.round, shown.suffix, shown.words)
    return (
        shown.round,
        shown.suffix,
        shown.phase,
        shown.leader,
        bool(shown.again),
        bool(shown.lost),
        shown.missing,
        shown.waiting,
    )
