"""After the search: confirm the finalists in fresh processes, then examine the winners.

Owns which trials are ready for that, and what of it is in flight. Knows nothing of searching.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import count

from tuner.candidate import Candidate
from tuner.engine.work import ConfirmWork, ExamineWork
from tuner.journal.facts import ConfirmationSampled, Fact, WinnersExamined
from tuner.journal.history import History
from tuner.results.summary import winners

CONFIRM_ROUNDS = 4
"""Processes spent on confirming at most, as a multiple of ``confirm.processes``."""


class ConfirmationQueue:
    """Confirmation for as long as this process lives."""

    def __init__(self, history: History, benches: int) -> None:
        self._history = history
        self._benches = benches
        self._compiled: dict[int, Candidate] = {}
        self._refused: set[int] = set()
        self._processes: dict[int, ConfirmWork] = {}
        self._examining = False

    @property
    def over(self) -> bool:
        """Whether nothing is in flight and nothing wanted."""
        return not (self._processes or self._examining or self._wanting())

    def applied(self, fact: Fact) -> None:
        """Note an answer."""
        if isinstance(fact, ConfirmationSampled):
            self._processes.pop(fact.process, None)
        elif isinstance(fact, WinnersExamined):
            self._examining = False

    def add(self, candidate: Candidate) -> None:
        """Note that a trial is compiled for every shape."""
        self._compiled[candidate.trial] = candidate

    def refuse(self, trial: int) -> None:
        """Note that a trial cannot be compiled for every shape."""
        self._refused.add(trial)

    def remeasured(self, trial: int) -> None:
        """Forget what was compiled of a trial that was measured once more: it may lack shapes."""
        self._compiled.pop(trial, None)

    def absent(self, compiling: set[int]) -> list[int]:
        """Trials that must be compiled before anything else is done."""
        if self._waits:
            return []
        return [n for n in self._wanting() if n not in self._compiled and n not in compiling]

    def works(self) -> list[ConfirmWork | ExamineWork]:
        """What to send now that everything wanted is compiled."""
        if self._waits:
            return []
        if not self._processes and not self._unconfirmed():
            self._examining = True
            winners = tuple(self._compiled[trial] for trial in self._unexamined())
            return [ExamineWork(winners=winners)]
        works: list[ConfirmWork | ExamineWork] = []
        while len(self._processes) < self._benches and (wanted := self._unconfirmed()):
            used = {c.process for c in self._history.confirmations} | self._processes.keys()
            process = next(n for n in count() if n not in used)
            work = ConfirmWork(
                process=process,
                finalists=tuple(self._compiled[trial] for trial in wanted),
                extra_checks=self._unchecked(wanted),
            )
            self._processes[process] = work
            works.append(work)
        return works

    def _unchecked(self, trials: Sequence[int]) -> tuple[int, ...]:
        """Those that have not been given the extra checks, in this process or an earlier one."""
        checked = {n for work in self._processes.values() for n in work.extra_checks}
        checked.update(n for fact in self._history.confirmations for n in fact.extra_checks)
        return tuple(trial for trial in trials if trial not in checked)

    @property
    def _waits(self) -> bool:
        """Whether nothing can be begun before what is in flight is answered."""
        return self._examining or (bool(self._processes) and not self._unconfirmed())

    def _wanting(self) -> Sequence[int]:
        """Trials that need to be confirmed, or once all are, examined."""
        return self._unconfirmed() or self._unexamined()

    def _unconfirmed(self) -> list[int]:
        """Finalists that need to be timed in more processes, if any are left to spend.

        The incumbents are timed beside all of them, as the baseline is.
        """
        wanted = self._history.experiment.confirm.processes
        spent = len(self._history.confirmations) + len(self._processes)
        if spent >= CONFIRM_ROUNDS * wanted:
            return []
        seen = Counter(n for work in self._processes.values() for n in work.trials)
        for confirmation in self._history.confirmations:
            seen.update({sample.trial for sample in confirmation.samples})
        finalists = self._history.finalists()
        unsure = [n for n in finalists if n not in self._refused and seen[n] < wanted]
        return [*unsure, *self._incumbents()] if unsure else []

    def _incumbents(self) -> list[int]:
        failed = self._refused | self._history.failed_later.keys()
        return [number for number in self._history.incumbent_numbers if number not in failed]

    def _unexamined(self) -> tuple[int, ...]:
        """Confirmed winners that no checker has seen; incumbents were seen in their own search."""
        seen = {number for fact in self._history.examinations for number in fact.trials}
        passed = self._refused | seen | set(self._history.incumbent_numbers)
        return tuple(n for n in winners(self._history) if n not in passed)
