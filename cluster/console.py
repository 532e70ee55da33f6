"""How far a run is, as plain data, and the live line that shows it on stderr.

Rich where stderr is a terminal, else one plain line when something worth a line happened. Knows
nothing of how the run is driven.
"""

import sys
import time
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from tuner.engine.session import Session
from tuner.journal.history import History
from tuner.report.estimate import duration, seconds_left

if TYPE_CHECKING:
    from rich.status import Status

LINE_SECONDS = 10.0
"""Without a terminal, a line at least this often while trials come in."""

ENDLESS = 10**9
"""The trials, and the seconds, of a search that goes on until somebody ends it."""

FEW = 3
"""Trials that must be in before they say how fast a search is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A picture of a run, or of one of its rounds, small enough to cross a network for each step.

    Times in seconds, ``now`` on a clock that never goes back. ``merged`` trials, which an equal one
    spared, are not among those ``finished``. ``speedup`` is the leader's, unconfirmed, over the
    tune shapes. ``estimate`` says what the whole run may take, ``left`` what is left of the phase
    by its pace so far, and ``again`` how many trials are measured again, and why. ``suffix`` names
    one of several searches of a round. ``checkers``: this machine has some for winners.
    """

    phase: str
    now: float
    finished: int
    merged: int
    rejected: int
    trials: int
    searched: float
    seconds: float
    device: float
    device_seconds: float | None
    speedup: float | None
    leader: str
    confirmations: int
    processes: int
    estimate: str = ""
    left: float | None = None
    again: str = ""
    round: int = 0
    suffix: str = ""
    checkers: bool = False

    @classmethod
    def of(cls, session: Session, now: float) -> "Progress":
        """Take the picture."""
        history, search = session.history, session.experiment.search
        leader = history.leader()
        return cls(
            phase=str(session.phase),
            now=now,
            finished=history.outcomes.total() - history.merged,
            merged=history.merged,
            rejected=history.rejected,
            trials=search.trials,
            searched=session.searched(now),
            seconds=search.seconds,
            device=history.device_seconds,
            device_seconds=search.device_seconds,
            speedup=_speedup(history, leader),
            leader="" if leader is None else str(history.trials[leader].configuration),
            confirmations=len(history.confirmations),
            processes=session.experiment.confirm.processes,
            again=_again(session),
        )

    def __str__(self) -> str:
        return f"round {self.round}{self.suffix}: {self._words()}" if self.round else self._words()

    def _words(self) -> str:
        where = "best" if self.phase == "search" else "best of the search"
        best = f"; {where} {self.speedup:.2f}× with {self.leader}" if self.speedup else ""
        again = f"; {self.again}" if self.again else ""
        left = f", about {duration(self.left)} left" if self.left and self.left >= 1 else ""
        match self.phase:
            case "baseline":
                return f"baseline: compiling, checking and timing it; then {self.estimate}{again}"
            case "search":
                most = f"/{self.seconds:.0f}" if self.seconds < ENDLESS else ""
                return (
                    f"search: {self.finished}/{self.trials} trials, {self.rejected} rejected, "
                    f"{self.searched:.0f}{most} s{left}{again}{best}"
                )
            case "confirm":
                examined = self.checkers and self.confirmations >= self.processes
                checked = ", now under the checkers" if examined else ""
                done = f"{min(self.confirmations, self.processes)}/{self.processes}"
                return f"confirm: {done} processes, {self.rejected} rejected{left}{checked}{best}"
        return f"{self.phase}: {self.finished} trials, {self.rejected} rejected{best}"


class Pace:
    """How fast a run goes through a phase, counted from where this process took it up.

    Args:
        space: how many configurations there are.
    """

    def __init__(self, space: int) -> None:
        self._space = space
        self._begun: Progress | None = None
        self._counted: Progress | None = None

    def left(self, now: Progress) -> float | None:
        """Seconds until the phase ends, if that can be told; to be asked of each picture in turn.

        Between two answers nothing is learned, and the time that passes is taken off.
        """
        if self._begun is None or self._counted is None or self._begun.phase != now.phase:
            self._begun = self._counted = now
        elif _done(self._counted) != _done(now):
            self._counted = now
        found = phase_left(self._begun, self._counted, self._space)
        return None if found is None else max(0.0, found - (now.now - self._counted.now))


def phase_left(begun: Progress, now: Progress, space: int) -> float | None:
    """Seconds from ``now`` until a phase ends, by its pace since it was begun.

    ``None`` in a phase that has no parts, before enough of them are in, and where something else
    ends it.
    """
    budgets: list[tuple[float, float]] = []
    done, merged, confirmed = (b - a for a, b in zip(_done(begun), _done(now), strict=True))
    if now.phase == "confirm":
        budgets.append((confirmed, now.processes - now.confirmations))
    elif now.phase == "search" and done >= FEW and not now.again and now.seconds < ENDLESS:
        budgets += [
            (done, now.trials - now.finished),
            (done + merged, space - now.finished - now.merged),
            (now.searched - begun.searched, now.seconds - now.searched),
        ]
        if now.device_seconds is not None:
            budgets.append((now.device - begun.device, now.device_seconds - now.device))
    return seconds_left(now.now - begun.now, budgets)


def _done(shown: Progress) -> tuple[int, int, int]:
    return shown.finished, shown.merged, shown.confirmations


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a command is busy with; in a run with agents, between the searches of a round."""

    words: str
    round: int = 0
    suffix: str = ""

    def __str__(self) -> str:
        return f"round {self.round}{self.suffix}: {self.words}" if self.round else self.words


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


def display(stream: TextIO | None = None) -> Display:
    """What fits the stream, stderr by default: a live line on a terminal, else plain lines."""
    stream = stream or sys.stderr
    return _Live(stream) if stream.isatty() else _Lines(stream)


class _Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: Shown | None = None
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

    def show(self, progress: Shown) -> None:
        """Print a line for a new phase, a new leader, or after a while; none of them twice."""
        now, last = time.monotonic(), self._last
        news = last is None or _subject(progress) != _subject(last)
        text = str(progress)
        if text not in self._said and (news or now - self._printed >= LINE_SECONDS):
            self._stream.write(f"kernelwright: {text}\n")
            self._stream.flush()
            self._said.add(text)
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
        return (shown.round, shown.suffix, shown.words)
    return (shown.round, shown.suffix, shown.phase, shown.leader, bool(shown.again))


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
