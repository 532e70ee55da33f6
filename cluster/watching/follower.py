"""A run followed from its directory alone, also while it goes on: takes no lock, writes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.rounds_summary import RoundsSummary, read_summary
from agents.settings import agent_settings
from cluster.commands.results import awaits_device, result_of, state_of, tried
from cluster.runs.run_layout import searches_begun
from tuner.errors import KernelwrightError, NothingValid
from tuner.journal.counts import RunCounts
from tuner.journal.tail import JournalTail
from tuner.report.convergence import Climb
from tuner.report.live import LiveSearch
from tuner.results.verdict import verdict_text
from tuner.run_directory import JOURNAL, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPicture:
    """A run as it was when it was looked at; ``name`` is its path as the user gave it.

    ``state`` is ``starting``, ``running``, ``waiting``, ``interrupted``, ``finished`` or
    ``unreadable``; ``problem`` says why the last, and ``writer`` which process runs it. ``words``
    say how far it is. ``speedup`` and ``configuration`` are the best of the search; ``verdict`` the
    confirmed result, once there is one. ``searches`` are those of its rounds by folder, or its own
    one. ``counts`` are over all.
    """

    name: str
    path: Path
    state: str
    writer: str = ""
    problem: str = ""
    words: str = ""
    kernel: str = ""
    device: str = ""
    round: int = 0
    rounds: int = 0
    tried: int = 0
    rejected: int = 0
    seconds: float = 0.0
    speedup: float | None = None
    configuration: str = ""
    verdict: str = ""
    searches: Mapping[str, LiveSearch]
    counts: RunCounts
    summary: RoundsSummary | None = None

    @property
    def climbs(self) -> list[Climb]:
        """Those of its rounds in order, without what only screens drafts or confirms again."""
        named = self.searches.items()
        return [one.climb for name, one in named if not name or name.isdecimal()]

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self.state == "finished"


class RunFollower:
    """Follows one run: each :meth:`look` reads what was written since the last.

    Args:
        path: the run directory, which may be damaged or not there yet.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.path = path.absolute()
        self._begin()

    def _begin(self) -> None:
        self._view: RunView | None = None
        self._own: _Followed | None = None
        self._rounds: dict[str, _Followed] = {}
        self._counts = RunCounts()
        self._counted: set[tuple[object, ...]] = set()
        self._verdict = ""

    def look(self) -> RunPicture:
        """The run now. One that cannot be read is a picture, too, and is read anew next time."""
        try:
            return self._look()
        except (KernelwrightError, OSError) as error:
            picture = RunPicture(
                name=self.name,
                path=self.path,
                state="unreadable",
                problem=str(error),
                searches={name: one.live for name, one in self._rounds.items()},
                counts=self._counts,
            )
            self._begin()
            return picture

    def _look(self) -> RunPicture:
        if self._view is None or self._own is None:
            self._view = RunView.open(self.path)
            self._own = _Followed("", self._view)
        self._read(self._own)
        for path in searches_begun(self.path):
            if path.name not in self._rounds:
                name = f"round {int(path.name)}" if path.name.isdecimal() else path.name
                self._rounds[path.name] = _Followed(name, RunView.open(path))
            self._read(self._rounds[path.name])
        return self._picture(self._view, self._own.live)

    def _read(self, followed: "_Followed") -> None:
        for entry in followed.tail.entries():
            followed.live.apply(entry)
            # A search that goes on with a copy of another one's facts counts only what it adds.
            fact = entry.fact
            numbers = getattr(fact, "work", None), getattr(fact, "trial", None)
            key = entry.at, entry.t, fact.kind, *numbers
            if key not in self._counted:
                self._counted.add(key)
                self._counts.apply(fact)

    def _picture(self, view: RunView, own: LiveSearch) -> RunPicture:
        agents = agent_settings(view.experiment)
        summary = read_summary(self.path) if agents else None
        rounds = {name: one.live for name, one in self._rounds.items()}
        searches = rounds if agents else {"": own}
        histories = [one.history for name, one in searches.items() if not name or name.isdecimal()]
        over = (summary is not None and summary.over) if agents else own.history.finished
        waiting = (
            (summary is not None and summary.waiting) if agents else awaits_device(own.history)
        )
        told = state_of(self.path, over=over, waiting=waiting)
        state = told["state"]
        if state == "interrupted" and not own.written:
            state = "starting"
        if over and not self._verdict:
            self._verdict = _verdict(self.path)
        numbers = [int(name) for name in searches if name.isdecimal()]
        latest = max(searches.values(), key=lambda one: one.written, default=own)
        speedup, configuration = max(
            (found for one in searches.values() if (found := one.best)), default=(None, "")
        )
        device = latest.history.device or own.history.device
        return RunPicture(
            name=self.name,
            path=self.path,
            state=state,
            writer=told.get("writer", ""),
            words=summary.detail if summary else _words(own, latest) if agents else own.words,
            kernel=view.experiment.name,
            device=device.name if device else "",
            round=max(numbers, default=0),
            rounds=agents.rounds if agents else 0,
            tried=tried(histories),
            rejected=sum(history.rejected for history in histories),
            seconds=_seconds(own, searches),
            speedup=speedup,
            configuration=configuration,
            verdict=self._verdict if over else "",
            searches=searches,
            counts=self._counts,
            summary=summary,
        )


def _verdict(path: Path) -> str:
    """The verdict on a run that is over: without any result, why there is none."""
    try:
        return verdict_text(result_of(path)[1])
    except NothingValid as error:
        return str(error)


class _Followed:
    """A search's directory, and what its journal has added up to so far."""

    def __init__(self, name: str, view: RunView) -> None:
        self.tail = JournalTail(view.path / JOURNAL, view.experiment)
        self.live = LiveSearch(name, view.experiment)


def _words(own: LiveSearch, latest: LiveSearch) -> str:
    """What a run with agents does: its newest search, or what comes between two searches."""
    if latest.written > own.written:
        return latest.words
    waited = own.waiting_for
    if waited is not None and waited.task == "model":
        return "waiting for a model's reply"
    return "preparing the next search" if own.history.baseline else own.words


def _seconds(own: LiveSearch, searches: Mapping[str, LiveSearch]) -> float:
    """Seconds from the first to the last entry."""
    written = max([own.written, *(one.written for one in searches.values())])
    return max(0.0, written - own.begun) if own.begun else 0.0
