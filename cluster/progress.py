"""How far a run is, as plain data, and the live line that shows it on stderr.

Rich where stderr is a terminal, else one plain line when something worth a line happened. Knows
nothing of how the run is driven.
"""

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from tuner.session.history import History
from tuner.session.session import Session

if TYPE_CHECKING:
    from rich.status import Status

LINE_SECONDS = 10.0
"""Without a terminal, a line at least this often while trials come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A picture of a run, or of one of its rounds, small enough to cross a network for each step.

    Times in seconds; ``speedup`` is the leader's, unconfirmed, over the tune shapes; ``estimate``
    says what the whole run may take, and ``again`` how many trials are measured again, and why.
    """

    phase: str
    proposed: int
    finished: int
    rejected: int
    trials: int
    compiling: int
    benching: int
    searched: float
    seconds: float
    speedup: float | None
    leader: str
    confirmations: int
    processes: int
    estimate: str = ""
    again: str = ""
    round: int = 0

    @classmethod
    def of(cls, session: Session, now: float) -> "Progress":
        """Take the picture."""
        history = session.history
        compiling, benching = session.in_flight
        leader = history.leader()
        return cls(
            phase=str(session.phase),
            proposed=len(history.trials),
            finished=history.outcomes.total() - history.merged,
            rejected=history.rejected,
            trials=session.experiment.search.trials,
            compiling=compiling,
            benching=benching,
            searched=session.searched(now),
            seconds=session.experiment.search.seconds,
            speedup=_speedup(history, leader),
            leader="" if leader is None else str(history.trials[leader].configuration),
            confirmations=len(history.confirmations),
            processes=session.experiment.confirm.processes,
            again=_again(session),
        )

    def __str__(self) -> str:
        return f"round {self.round}: {self._words()}" if self.round else self._words()

    def _words(self) -> str:
        where = "best" if self.phase == "search" else "best of the search"
        best = f"; {where} {self.speedup:.2f}× with {self.leader}" if self.speedup else ""
        again = f"; {self.again}" if self.again else ""
        match self.phase:
            case "baseline":
                return f"baseline: compiling, checking and timing it; then {self.estimate}{again}"
            case "search":
                return (
                    f"search: {self.finished}/{self.trials} trials, {self.rejected} rejected, "
                    f"{self.searched:.0f}/{self.seconds:.0f} s{again}{best}"
                )
            case "confirm":
                checked = "" if self.confirmations < self.processes else ", now under the checkers"
                done = f"{min(self.confirmations, self.processes)}/{self.processes}"
                return f"confirm: {done} processes, {self.rejected} rejected{checked}{best}"
        return f"{self.phase}: {self.finished} trials, {self.rejected} rejected{best}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a run with agents is busy with between searches."""

    round: int
    words: str

    def __str__(self) -> str:
        return f"round {self.round}: {self.words}"


Shown = Progress | Doing


class Display(Protocol):
    """Shows progress while a run goes on; a context manager."""

    def __enter__(self) -> "Display": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, progress: Shown) -> None:
        """Bring the display up to date."""
        ...


def display(stream: TextIO = sys.stderr) -> Display:
    """What fits the stream: a live line on a terminal, else plain lines."""
    return _Live(stream) if stream.isatty() else _Lines(stream)


class _Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: Shown | None = None
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

    def show(self, progress: Shown) -> None:
        """Print a line for a new phase, a new leader, or after a while."""
        now, last = time.monotonic(), self._last
        news = last is None or _subject(progress) != _subject(last)
        if news or (str(progress) != str(last) and now - self._printed >= LINE_SECONDS):
            self._stream.write(f"kernelwright: {progress}\n")
            self._stream.flush()
            self._last, self._printed = progress, now


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

    def show(self, progress: Shown) -> None:
        """Replace the live line."""
        from rich.markup import escape

        self._status.update(escape(str(progress)))


def _subject(shown: Shown) -> tuple[object, ...]:
    """What is worth a line of its own when it changes."""
    if isinstance(shown, Doing):
        return (shown.round, shown.words)
    return (shown.round, shown.phase, shown.leader, bool(shown.again))


def _again(session: Session) -> str:
    again = session.again
    if not again:
        return ""
    why = "those that led them were refused"
    if not all(trial.current for trial in again):
        why = "the device, its driver or a compiler is another now"
    return f"{len(again)} measured again, since {why}"


def _speedup(history: History, leader: int | None) -> float | None:
    loss = None if leader is None else history.loss(leader)
    return 1 / loss if loss else None
