"""How far a run is, as plain data, and how long it still takes at its pace."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tuner.engine.session import Session
from tuner.experiment.longest import LONGEST_SECONDS
from tuner.journal.history import History
from tuner.journal.search_clock import TOLD_SECONDS
from tuner.printable import counted

ENDLESS = LONGEST_SECONDS
"""The trials, and the seconds, of a search without an end of its own."""

_SEARCHES = {
    "d": "draft {}",
    "rung": "rung {}",
    "meanwhile": "while a model was asked",
    "final": "confirming the winners",
}
"""Words for the parts of a search's suffix."""

FEW = 3
"""Trials that must be in before they say how fast a search is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """A picture of a run, or of one of its rounds, small enough to cross a network for each step.

    Times in seconds, ``now`` on a clock that never goes back. ``merged`` trials, which an equal one
    spared, are not among those ``finished``, of at most so many ``trials``. ``seconds`` are those
    of the search, less what confirming needs. ``speedup`` is the leader's, unconfirmed, over the
    tune shapes. ``prospect`` says what follows the baseline, ``left`` what is left of the phase by
    its pace so far, and ``again`` how many trials are measured again, and why. ``suffix`` names one
    of several searches of a round. Winners are confirmed in at most so many ``processes``, those on
    tune shapes and those on the rest together (0 if that is unknown), in ``confirming`` seconds if
    that is known, and with checkers once ``examining``; ``checkers``: this machine has some.
    ``lost`` is why no bench lives, if none does, and ``missing`` says which of several were lost.
    ``waiting`` says for which device a bench has waited long, and which process has it; ``waited``
    are the seconds of all such waits, however short, in work that is finished.
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
    confirming: float | None = None
    examining: bool = False
    prospect: str = ""
    left: float | None = None
    again: str = ""
    round: int = 0
    suffix: str = ""
    checkers: bool = False
    lost: str = ""
    missing: str = ""
    waiting: str = ""
    waited: float = 0.0

    @classmethod
    def of(cls, session: Session, t: float) -> "RunProgress":
        """The picture at ``t``, on the clock of the session's entries."""
        history, search = session.history, session.experiment.search
        leader = history.leader()
        confirming = session.confirming if session.phase == "confirm" else None
        return cls(
            phase=str(session.phase),
            now=t,
            finished=history.outcomes.total() - history.merged,
            merged=history.merged,
            rejected=history.rejected,
            trials=search.trials,
            searched=session.searched(t),
            seconds=search.seconds
            if search.seconds >= ENDLESS
            else session.searched(t) + max(0.0, session.seconds_left(t)),
            device=history.device_seconds,
            device_seconds=search.device_seconds,
            speedup=_speedup(history, leader),
            leader="" if leader is None else str(history.trials[leader].configuration),
            confirmations=len(history.confirmations),
            processes=confirming.processes if confirming else 0,
            confirming=confirming.seconds if confirming else None,
            examining=confirming.examining if confirming else False,
            again=_again(session),
            waited=history.clock.waited,
        )

    def __str__(self) -> str:
        missing = f"; {self.missing}" if self.missing and not self.lost else ""
        waiting = f"; {self.waiting}" if self.waiting else ""
        waited = ""
        if self.waits:
            waited = f"; waited {self.waited:.0f} s for devices in use by other processes"
        words = f"{self._words()}{missing}{waiting}{waited}"
        return f"{round_text(self.round, self.suffix)}: {words}" if self.round else words

    @property
    def waits(self) -> bool:
        """Whether the waits for devices in use are long enough together to be told."""
        return self.waited >= TOLD_SECONDS

    def _words(self) -> str:
        if self.lost:
            return f"{self.phase}: waiting for a bench, since none is left ({self.lost})"
        where = "best" if self.phase == "search" else "best of the search"
        best = f"; {where} {self.speedup:.2f}× with {self.leader}" if self.speedup else ""
        again = f"; {self.again}" if self.again else ""
        left = f", about {duration(self.left)} left" if self.left and self.left >= 1 else ""
        match self.phase:
            case "baseline":
                then = f"; then {self.prospect}" if self.prospect else ""
                return f"baseline: compiling, checking and timing it{then}{again}"
            case "search":
                over = 0 < self.seconds <= self.searched
                most = f"/{self.seconds:.0f}" if self.seconds < ENDLESS and not over else ""
                rest = ""
                if over and self.finished + self.merged:
                    rest = "; any time left is for confirming"
                elif over:
                    rest = "; the time is over, so only few are tried"
                return (
                    f"search: {self.finished}/{self.trials} trials, {self.rejected} rejected, "
                    f"{self.searched:.0f}{most} s{left}{rest}{again}{best}"
                )
            case "confirm":
                examined = self.checkers and self.examining
                checked = ", checking winners for memory errors and races" if examined else ""
                processes = counted(self.confirmations, "process", "processes")
                if self.processes:
                    done = min(self.confirmations, self.processes)
                    processes = f"{done} of at most {self.processes} processes"
                return f"confirm: {processes}, {self.rejected} rejected{left}{checked}{best}"
        # Of a finished search the best is what was confirmed, which its report says.
        return f"{self.phase}: {counted(self.finished, 'trial')}, {self.rejected} rejected"


class Pace:
    """How fast a run goes through a phase, counted from where this process took it up.

    Args:
        space: how many configurations there are.
    """

    def __init__(self, space: int) -> None:
        self._space = space
        self._begun: RunProgress | None = None
        self._counted: RunProgress | None = None

    def left(self, now: RunProgress) -> float | None:
        """Seconds until the phase ends, if that can be told; to be asked of each picture in turn.

        Between two answers nothing is learned, and the time that passes is taken off.
        """
        if self._begun is None or self._counted is None or self._begun.phase != now.phase:
            self._begun = self._counted = now
        elif _done(self._counted) != _done(now):
            self._counted = now
        found = phase_left(self._begun, self._counted, self._space)
        return None if found is None else max(0.0, found - (now.now - self._counted.now))


def phase_left(begun: RunProgress, now: RunProgress, space: int) -> float | None:
    """Seconds from ``now`` until a phase ends, by its pace since it was begun.

    ``None`` in a phase that has no parts, before enough of them are in, and where something else
    ends it.
    """
    if now.phase == "confirm":
        return now.confirming
    done, merged = now.finished - begun.finished, now.merged - begun.merged
    if now.phase != "search" or done < FEW or now.again or now.seconds >= ENDLESS:
        return None
    budgets = [
        (done, now.trials - now.finished),
        (done + merged, space - now.finished - now.merged),
        (now.searched - begun.searched, now.seconds - now.searched),
    ]
    if now.device_seconds is not None:
        budgets.append((now.device - begun.device, now.device_seconds - now.device))
    return seconds_left(now.now - begun.now, budgets)


def _done(shown: RunProgress) -> tuple[int, int, int]:
    return shown.finished, shown.merged, shown.confirmations


def _again(session: Session) -> str:
    again = session.again
    if not again:
        return ""
    why = "those that led them were refused"
    if not all(trial.current for trial in again):
        why = "the device, its driver or a compiler has changed"
    return f"{len(again)} measured again, since {why}"


def _speedup(history: History, leader: int | None) -> float | None:
    loss = None if leader is None else history.loss(leader)
    return 1 / loss if loss else None


def round_text(number: int, suffix: str) -> str:
    """A round, and in words which of its searches: ``-d0-rung1`` is a rung of its first draft."""
    words = [_SEARCHES[name].format(at) for name, at in re.findall(r"-([a-z]+)([0-9]+)", suffix)]
    return f"round {number}" + (f" ({', '.join(words)})" if words else "")


def duration(seconds: float) -> str:
    """Seconds or minutes, rounded."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def seconds_left(seconds: float, budgets: Iterable[tuple[float, float]]) -> float | None:
    """Seconds until the first budget is spent, at the pace of the last ``seconds``.

    ``budgets`` has the amounts spent in that time and left; ``None`` if nothing was spent.
    """
    each = [seconds * max(0.0, rest) / spent for spent, rest in budgets if spent > 0]
    return min(each, default=None)
