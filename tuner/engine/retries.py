"""Lost work: what is sent again, and what is given up. Decided nowhere else."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from tuner.candidate import BASELINE
from tuner.engine.work import CompileWork, ConfirmWork, ExamineWork, MeasureWork, PrepareWork, Work
from tuner.errors import RunInterrupted
from tuner.journal.facts import (
    Answer,
    Fact,
    TrialCompiled,
    TrialFinished,
    WinnersExamined,
    WorkLost,
)
from tuner.trial import Code, Rejected, Stage

ATTEMPTS = 3
"""How often work is sent before its loss counts against the candidate."""

_NEEDED = {"prepare": "preparing the baseline", "confirm": "the confirmation"}
"""Work that nothing stands in for, as messages call it."""


class Retries:
    """Counts losses by kind of work and its first trial (of a confirmation: its process)."""

    def __init__(self) -> None:
        self._losses: Counter[tuple[str, int]] = Counter()

    def settle(self, work: Work, lost: WorkLost) -> tuple[tuple[Answer, ...], Work | None]:
        """What follows from the loss of ``work``, which holds only what has no answer yet.

        Returns:
            The facts: the loss itself, and after the last attempt the answer that stands in for the
            worker's, if one can (:func:`require_answers`). Then what is to be sent again, if
            anything is.
        """
        if not lost.counted:
            return (replace(lost, trials=work.trials, attempt=work.attempt),), work
        self._losses[_key(work)] += 1
        attempt = self._losses[_key(work)]
        lost = replace(lost, trials=work.trials, attempt=attempt, final=attempt == ATTEMPTS)
        if not lost.final:
            return (lost,), replace(work, attempt=attempt + 1)
        detail = f"the worker was lost {ATTEMPTS} times: {lost.reason}"
        rejected = Rejected(stage=Stage.FLEET, code=Code.WORKER_LOST, detail=detail)
        rest = _rest(work)
        if rest is not None:
            rest = replace(rest, attempt=1 + self._losses[_key(rest)])
        if isinstance(work, PrepareWork | ConfirmWork):
            return (lost,), None
        return (lost, _answer(work, rejected)), rest


def require_answers(facts: Iterable[Fact]) -> None:
    """Raise :class:`RunInterrupted` where work that a run needs lost its last attempt.

    No candidate is to blame: kernels run in children, whose death costs no worker. Without the
    baseline, or with its winners unconfirmed, a run would end for good; interrupted, it can be
    resumed.
    """
    for fact in facts:
        if isinstance(fact, WorkLost) and fact.final and fact.task in _NEEDED:
            raise RunInterrupted(
                f"{_NEEDED[fact.task]} lost its worker {ATTEMPTS} times, "
                f"{fact.worker}: {fact.reason}"
            )


def _key(work: Work) -> tuple[str, int]:
    if isinstance(work, ConfirmWork):
        return work.kind, work.process
    return work.kind, next(iter(work.trials), BASELINE)


def _rest(work: Work) -> MeasureWork | None:
    """What is still to be measured once the first candidate is given up."""
    if isinstance(work, MeasureWork) and len(work.candidates) > 1:
        return replace(work, candidates=work.candidates[1:])
    return None


def _answer(work: CompileWork | MeasureWork | ExamineWork, rejected: Rejected) -> Answer:
    """The answer that stands in for a worker's."""
    match work:
        case CompileWork():
            return TrialCompiled(work=work.id, trial=work.trial, rejected=rejected)
        case MeasureWork(candidates=candidates):
            return TrialFinished(work=work.id, trial=candidates[0].trial, outcome=rejected)
        case ExamineWork():
            note = f"the winners were not examined: {rejected.detail}"
            return WinnersExamined(work=work.id, trials=work.trials, notes=(note,))
