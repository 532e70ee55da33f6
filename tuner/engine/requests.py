"""Work outside a search, as a client of the engine: a fixed list, until all of it is answered."""

from collections.abc import Sequence

from tuner.engine.work import Command, Finish, MeasureWork, Work
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Entry,
    TrialCompiled,
    TrialFinished,
    WinnersExamined,
)

Result = TrialCompiled | BaselinePrepared | TrialFinished | ConfirmationSampled | WinnersExamined


class Requests:
    """Has facts journalled and work done, in order; ``results`` holds the answers as they came."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = list(commands)
        self._awaited = sum(
            len(one.candidates) if isinstance(one, MeasureWork) else isinstance(one, Work)
            for one in commands
        )
        self.results: list[Result] = []

    def decide(self, _t: float) -> list[Command]:
        """Everything at first; later nothing, until it is answered."""
        commands, self._commands = self._commands, []
        if commands or len(self.results) < self._awaited:
            return commands
        return [Finish()]

    def apply(self, entry: Entry) -> None:
        """Keep an answer."""
        if isinstance(entry.fact, Result):
            self.results.append(entry.fact)

    def exhausted(self) -> None:
        """Nothing is proposed for requests."""
