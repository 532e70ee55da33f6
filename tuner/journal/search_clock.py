"""How long a run has searched, has taken in all, and waits for its devices, from its journal."""

from collections import deque

from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Entry,
    EpochOpened,
    SearchEnded,
    Span,
    TrialFinished,
    WinnersExamined,
)
from tuner.trial import Rejected

RECENT = 50
"""The number of last trials, or other works of benches, that tell the pace."""

TOLD_SECONDS = 5.0
"""Waits for devices in use are told once they sum up to this; shorter ones explain little."""


class SearchClock:
    """Seconds of searching, summed over the processes of a run.

    In each process they count from the baseline that it prepared to the last outcome, or to the end
    of the search. What is measured again after that end counts no more. ``spent`` are the seconds
    of everything, preparation and confirmation included; ``spent_searching`` those up to the
    search's end, ``None`` before it. Of the benches' seconds together they ``waited`` for devices
    that other processes used.
    """

    def __init__(self) -> None:
        self.searched = 0.0
        self._began: tuple[float, float] | None = None
        """When this process began to search, and :attr:`searched` at that time."""
        self._ended = False
        self.spent = self.waited = 0.0
        self.spent_searching: float | None = None
        self._opened: tuple[float, float] | None = None
        """When this process began on the run, and :attr:`spent` at that time."""
        self._on_benches: deque[Span] = deque(maxlen=RECENT)

    def apply(self, entry: Entry) -> None:
        """Apply the next entry of the journal."""
        if isinstance(entry.fact, EpochOpened):
            self._opened = entry.t, self.spent
        self.spent = self.spent_until(entry.t)
        fact = entry.fact
        works = BaselinePrepared | TrialFinished | ConfirmationSampled | WinnersExamined
        if isinstance(fact, works) and fact.span is not None:
            self.waited += fact.span.waited
            if not isinstance(fact, WinnersExamined):
                self._on_benches.append(fact.span)
        match fact:
            case EpochOpened():
                self._began = None
                self._on_benches.clear()
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

    @property
    def stretch(self) -> float:
        """How many times as long benches took for their last works as without other processes.

        Those used the devices meanwhile; 1 without any.
        """
        seconds = sum(span.seconds for span in self._on_benches)
        used = seconds - sum(span.waited for span in self._on_benches)
        return seconds / used if 0 < used < seconds else 1.0
