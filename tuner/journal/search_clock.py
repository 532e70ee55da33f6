"""How long a run has searched, from its journal."""

from tuner.journal.facts import BaselinePrepared, Entry, EpochOpened, SearchEnded, TrialFinished
from tuner.trial import Rejected


class SearchClock:
    """Seconds of searching, summed over the processes of a run.

    In each process they count from the baseline that it prepared to the last outcome, or to the end
    of the search. What is measured again after that end counts no more.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began: tuple[float, float] | None = None
        """When this process began to search, and :attr:`seconds` at that time."""
        self._ended = False

    def apply(self, entry: Entry) -> None:
        """Apply the next entry of the journal."""
        match entry.fact:
            case EpochOpened():
                self._began = None
            case BaselinePrepared(result=result):
                if not isinstance(result, Rejected):
                    self._began = entry.t, self.seconds
            case TrialFinished():
                self.seconds = self.until(entry.t)
            case SearchEnded():
                self.seconds = self.until(entry.t)
                self._ended = True
            case _:
                pass

    def until(self, t: float) -> float:
        """The seconds at ``t`` of this process."""
        if self._began is None or self._ended:
            return self.seconds
        began, before = self._began
        return before + t - began
