"""One search of a run, followed as its journal grows: what the live table and page are made of."""

from tuner.engine.progress import ENDLESS, RunProgress
from tuner.experiment.model import Experiment
from tuner.journal.facts import Entry, WorkBegan
from tuner.journal.history import History
from tuner.report.convergence import Climb


class LiveSearch:
    """The history of a search, how its best speedup climbed, and the work that it waits for.

    Args:
        name: the search's in figures.
        experiment: what its journal is about.
    """

    def __init__(self, name: str, experiment: Experiment) -> None:
        self.history = History(experiment)
        self.climb = Climb(name)
        self.begun = self.written = 0.0
        """When the first and the last entry were written, in Unix seconds."""
        self._began: dict[int, WorkBegan] = {}

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        self.history.apply(entry)
        self.climb.apply(self.history, entry.fact)
        self.begun, self.written = self.begun or entry.at, entry.at
        if entry.fact.kind == "epoch.opened":
            self._began.clear()
        if isinstance(entry.fact, WorkBegan):
            self._began[entry.fact.work] = entry.fact
        else:
            self._began.pop(getattr(entry.fact, "work", -1), None)

    @property
    def waiting_for(self) -> WorkBegan | None:
        """The last work of some length that has no answer yet."""
        return next(reversed(self._began.values()), None)

    @property
    def best(self) -> tuple[float, str] | None:
        """The leader's speedup, unconfirmed, and its configuration."""
        leader = self.history.leader()
        loss = None if leader is None else self.history.loss(leader)
        if leader is None or not loss:
            return None
        return 1 / loss, str(self.history.configuration(leader))

    @property
    def words(self) -> str:
        """How far the search is, in the words of the progress line, without its best."""
        history, experiment = self.history, self.history.experiment
        waited = self.waiting_for
        seconds = experiment.search.seconds
        return str(
            RunProgress(
                phase=_phase(history),
                now=0.0,
                finished=history.outcomes.total() - history.merged,
                merged=history.merged,
                rejected=history.rejected,
                trials=experiment.most_trials,
                searched=history.clock.searched,
                seconds=seconds if seconds < ENDLESS else 0.0,
                device=history.device_seconds,
                device_seconds=None,
                speedup=None,
                leader="",
                confirmations=len(history.confirmations),
                processes=0,
                examining=waited is not None and waited.task == "examine",
                checkers=True,
            )
        )


def _phase(history: History) -> str:
    if history.finished:
        return "finished"
    if history.ended is not None:
        return "confirm"
    return "search" if history.baseline else "baseline"
