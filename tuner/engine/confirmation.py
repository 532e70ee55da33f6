"""What is left once searching is over: finalists in fresh processes, then winners under checkers.

Owns which trials are ready for that, and what of it is in flight. Knows nothing of searching.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count

from tuner.engine.commands import Command, Confirm, Examine
from tuner.journal.facts import ConfirmationSampled, Fact, WinnersExamined
from tuner.journal.history import History
from tuner.results.summary import winners

CONFIRM_ROUNDS = 4
"""Processes spent on confirming at most, as a multiple of ``confirm.processes``."""


class Confirming:
    """Confirmation for as long as this process lives."""

    def __init__(self, history: History, benches: int) -> None:
        self._history = history
        self._benches = benches
        self._compiled: set[int] = set()
        self._refused: set[int] = set()
        self._processes: dict[int, tuple[int, ...]] = {}
        self._examining: tuple[int, ...] = ()

    @property
    def over(self) -> bool:
        """Whether nothing is in flight and nothing wanted."""
        return not (self._processes or self._examining or self._wanting())

    def expects(self, fact: ConfirmationSampled | WinnersExamined) -> bool:
        """Whether this answer is still waited for."""
        if isinstance(fact, ConfirmationSampled):
            return fact.process in self._processes
        return fact.trials == self._examining

    def applied(self, fact: Fact) -> None:
        """Take in an answer."""
        if isinstance(fact, ConfirmationSampled):
            self._processes.pop(fact.process, None)
        elif isinstance(fact, WinnersExamined):
            self._examining = ()

    def compiled(self, trial: int, *, refused: bool) -> None:
        """Take in that a trial is ready to be confirmed, or cannot be."""
        (self._refused if refused else self._compiled).add(trial)

    def measured(self, trial: int) -> None:
        """Take in that what was compiled of a trial was for measuring it, once more perhaps."""
        self._compiled.discard(trial)

    def lost(self, command: Confirm | Examine) -> bool:
        """Take in that a worker died; whether the work had not been answered."""
        if isinstance(command, Confirm):
            return self._processes.pop(command.process, None) is not None
        held, self._examining = self._examining, ()
        return bool(held)

    def absent(self, compiling: set[int]) -> list[int]:
        """Trials that must be compiled before anything else is done."""
        if self._waits:
            return []
        return [n for n in self._wanting() if n not in self._compiled | compiling]

    def commands(self) -> list[Command]:
        """What to do next with what is compiled."""
        if self._waits:
            return []
        if not self._processes and not self._unconfirmed():
            self._examining = self._unexamined()
            return [Examine(self._examining)]
        commands: list[Command] = []
        while len(self._processes) < self._benches and (wanted := self._unconfirmed()):
            used = {c.process for c in self._history.confirmations} | self._processes.keys()
            process = next(n for n in count() if n not in used)
            self._processes[process] = tuple(wanted)
            commands.append(Confirm(process, tuple(wanted)))
        return commands

    @property
    def _waits(self) -> bool:
        """Whether nothing can be begun before what is in flight is answered."""
        return bool(self._examining or (self._processes and not self._unconfirmed()))

    def _wanting(self) -> Sequence[int]:
        """Trials that need to be confirmed, or once all are, examined."""
        return self._unconfirmed() or self._unexamined()

    def _unconfirmed(self) -> list[int]:
        """Finalists that need to be seen in more processes, if any are left to spend.

        The incumbents are seen beside all of them, as the baseline is.
        """
        wanted = self._history.experiment.confirm.processes
        spent = len(self._history.confirmations) + len(self._processes)
        if spent >= CONFIRM_ROUNDS * wanted:
            return []
        seen = Counter(n for finalists in self._processes.values() for n in finalists)
        for confirmation in self._history.confirmations:
            seen.update({sample.trial for sample in confirmation.samples})
        finalists = self._history.finalists()
        unsure = [n for n in finalists if n not in self._refused and seen[n] < wanted]
        return [*unsure, *self._incumbents()] if unsure else []

    def _incumbents(self) -> list[int]:
        failed = self._refused | self._history.refuted.keys()
        return [number for number in self._history.entered if number not in failed]

    def _unexamined(self) -> tuple[int, ...]:
        """Confirmed winners that no checker has seen; incumbents were where they were found."""
        seen = {number for fact in self._history.examinations for number in fact.trials}
        passed = self._refused | seen | set(self._history.entered)
        return tuple(n for n in winners(self._history) if n not in passed)
