"""How long a run has searched, and how long it has taken in all, from its journal."""

from tuner.journal.facts import BaselinePrepared, Entry, EpochOpened, SearchEnded, TrialFinished
from tuner.trial import Rejected


class SearchClock:
    """Seconds of searching, summed over the processes of a run.

    In each process they count from the baseline that it prepared to the last outcome, or to the end
    of the search. What is measured again after that end counts no more. ``spent`` are the seconds
    of everything, preparation and confirmation included; ``spent_searching`` those up to the
    search's end, ``None`` before it.
    """

    def __init__(self) -> None:
        self.searched = 0.0
        self._began: tuple[float, float] | None = None
        """When this process began to search, and :attr:`searched` at that time."""
        self._ended = False
        self.spent = 0.0
        self.spent_searching: float | None = None
        self._opened: tuple[float, float] | None = None
        """When this process began on the run, and :attr:`spent` at that time."""

    def apply(self, entry: Entry) -> None:
        """Apply the next entry of the journal."""
        if isinstance(entry.fact, EpochOpened):
            self._opened = entry.t, self.spent
        self.spent = self.spent_until(entry.t)
        match entry.fact:
            case EpochOpened():
                self._began = None
            case BaselinePrepared(result=result):
                if not isinstance(result, Rejected):
                    self._began = entry.t, self.searched
            case TrialFinished():
                self.searched = self.searched_until(entry.t)
            case SearchEnded():
                self.searched = self.searched_until(entry.t)
                self._ended = True
                self.spent_searching = self.spent
            case _:
                pass

    def searched_until(self, t: float) -> float:
        """The seconds at ``t`` of this process."""
        if self._began is None or self._ended:
            return self.searched
        began, before = self._began
        return before + t - began

    def spent_until(self, t: float) -> float:
        """The seconds of everything at ``t`` of this process."""
        if self._opened is None:
            return self.spent
        opened, before = self._opened
        return before + t - opened
