"""The scheduler of a run: what is in flight, and what follows from it.

The protocol is in the package's docstring. Knows no fleet, no proposer and no file.
"""

from collections import Counter, deque
from enum import StrEnum
from typing import Literal

from tuner.engine.bench_queue import BATCH, QUEUED_JOBS, Benching
from tuner.engine.commands import (
    Bench,
    Command,
    Compile,
    Confirm,
    Examine,
    Finish,
    Prepare,
    Propose,
    Record,
    Work,
)
from tuner.engine.confirmation import Confirming
from tuner.engine.fleet import BASELINE
from tuner.engine.signals import (
    CandidateCompiled,
    JobLost,
    Signal,
    SpaceExhausted,
    StopRequested,
)
from tuner.experiment.model import Experiment
from tuner.journal.facts import (
    BaselinePrepared,
    BaselineRefused,
    ConfirmationSampled,
    EpochOpened,
    Fact,
    Reason,
    RunFinished,
    SearchEnded,
    TrialFinished,
    TrialProposed,
    WinnersExamined,
)
from tuner.journal.history import History, Trial
from tuner.trial import Code, Configuration, Outcome, Rejected, Stage

PHASE = 8
"""Trials that are compiled, then timed, in turn, where both need the same processor."""

ATTEMPTS = 3
"""A job is sent this often before its loss counts against the trial."""

LOST_IN_A_ROW = 5
"""Trials lost one after the other that end the search: the fleet is broken, not the candidates."""


class Phase(StrEnum):
    """What the run is busy with."""

    BASELINE = "baseline"
    SEARCH = "search"
    CONFIRM = "confirm"
    FINISHED = "finished"


class Session:
    """One run of one experiment on one device model, for as long as this process lives."""

    def __init__(self, experiment: Experiment, *, compile_slots: int, bench_slots: int) -> None:
        self.experiment = experiment
        self.history = History(experiment)
        self._benches = bench_slots
        # The slowest compile holds up all later ones: half as many again keep the other slots busy.
        self._lookahead = compile_slots * 3 // 2 + QUEUED_JOBS * BATCH * bench_slots
        self._now = 0.0
        self._reset()

    def _reset(self) -> None:
        """Forget what was in flight; what is open is queued."""
        self._baseline: Literal["absent", "compiling", "compiled", "preparing", "ready"] = "absent"
        self._open = {trial.number for trial in self.history.open()}
        self._proposing: set[int] = set()
        self._queue = deque(sorted(self._open))
        self._compiling: set[int] = set()
        self._twins: dict[int, list[int]] = {}
        self._benching = Benching(self.history, self._benches)
        self._confirming = Confirming(self.history, self._benches)
        self._due: list[Fact] = []
        self._handed: list[Fact] = []
        self._lost: Counter[tuple[str, int]] = Counter()
        self._told: set[int] = set()
        self._untold = {n for n, t in self.history.trials.items() if t.outcome is not None}
        self._exhausted = False
        self._stop: Literal["stopped", "interrupted"] | None = None
        self._searched_before = self.history.searched
        self._search_began: float | None = None

    @property
    def phase(self) -> Phase:
        """What the run is busy with now."""
        if self.history.finished:
            return Phase.FINISHED
        if self._baseline != "ready":
            return Phase.BASELINE
        return Phase.SEARCH if self.history.ended is None or self._open else Phase.CONFIRM

    @property
    def again(self) -> list[Trial]:
        """Open trials that were measured before: elsewhere, or only until they were given up."""
        return [self.history.trials[n] for n in self._open if self.history.trials[n].bench]

    def searched(self, now: float) -> float:
        """Seconds of searching so far, over resumes; it stands still once searching ended."""
        if self._search_began is None or self.history.ended is not None:
            return self.history.searched
        return self._searched_before + now - self._search_began

    def expects(self, fact: Fact) -> bool:
        """Whether an answer is still waited for; one that is not must not be journalled."""
        if fact in self._handed:
            return True
        match fact:
            case TrialFinished(trial=trial):
                return self._benching.holds(trial)
            case ConfirmationSampled() | WinnersExamined():
                return self._confirming.expects(fact)
            case BaselinePrepared() | BaselineRefused():
                return self._baseline == "preparing"
            case _:
                return True

    def apply(self, event: Fact | Signal) -> None:
        """Take in what happened."""
        match event:
            case CandidateCompiled(trial=trial, rejected=rejected, same_as=same_as):
                self._compiled(trial, rejected, same_as)
            case SpaceExhausted():
                self._exhausted = True
                self._proposing.clear()
            case JobLost(command=command, reason=reason):
                self._job_lost(command, reason)
            case StopRequested(reason=reason):
                self._stop = reason
            case _:
                self.history.apply(event)
                self._applied(event)

    def _applied(self, fact: Fact) -> None:
        match fact:
            case EpochOpened():
                self._reset()
            case BaselinePrepared():
                self._baseline = "ready"
            case TrialProposed(trial=trial):
                self._proposing.discard(trial)
                self._open.add(trial)
                self._queue.append(trial)
            case TrialFinished():
                self._finished(fact)
            case SearchEnded():
                self._open.clear()
                self._queue.clear()
                self._compiling.clear()
                self._benching.give_up_waiting()
                self._twins.clear()
            case _:
                self._confirming.applied(fact)
        if self.history.ended is not None:
            self._take_up()

    def _finished(self, fact: TrialFinished) -> None:
        self._benching.finished(fact)
        self._confirming.measured(fact.trial)
        self._open.discard(fact.trial)
        if fact.trial not in self._told:
            self._untold.add(fact.trial)
        for twin in self._twins.pop(fact.trial, ()):
            self._share(twin, fact.trial)

    def _take_up(self) -> None:
        """Queue what is wanted in full after all: it is to be chosen, and had been given up."""
        fresh = [t.number for t in self.history.open() if t.number not in self._open]
        self._open.update(fresh)
        self._queue.extend(fresh)

    def _compiled(self, trial: int, rejected: Rejected | None, same_as: int | None = None) -> None:
        if trial == BASELINE:
            self._baseline = "compiled"
            if rejected:
                self._due.append(BaselineRefused(rejected=rejected))
        elif trial in self._compiling:
            self._compiling.remove(trial)
            if trial not in self._open:
                self._confirming.compiled(trial, refused=rejected is not None)
            elif rejected:
                self._decide_unseen(trial, rejected)
            elif same_as is not None:
                self._share(trial, same_as)
            else:
                self._benching.add(trial)

    def _share(self, trial: int, first: int) -> None:
        """Give a trial the outcome of an equal one, once that has one of its own."""
        outcome = self.history.trials[first].outcome
        if outcome is None and first in self._open:
            self._twins.setdefault(first, []).append(trial)
        elif outcome is None or (isinstance(outcome, Rejected) and outcome.stage is Stage.FLEET):
            self._benching.add(trial)
        else:
            self._decide_unseen(trial, outcome, first)

    def _decide_unseen(self, trial: int, outcome: Outcome, same_as: int | None = None) -> None:
        """A trial has its outcome without having seen a bench."""
        self._due.append(
            TrialFinished(
                trial=trial,
                outcome=outcome,
                bench="",
                device_seconds=0.0,
                searched=self.searched(self._now),
                same_as=same_as,
            )
        )

    def _job_lost(self, command: Work, reason: str) -> None:
        match command:
            case Compile(trial=trial):
                if trial != BASELINE and trial not in self._compiling:
                    return
                if verdict := self._charge("compile", trial, reason):
                    self._compiled(trial, verdict)
                elif trial == BASELINE:
                    self._baseline = "absent"
                else:
                    self._compiling.remove(trial)
                    if trial in self._open:
                        self._queue.appendleft(trial)
            case Prepare():
                self._baseline = "compiled"
                if verdict := self._charge("prepare", BASELINE, reason):
                    self._due.append(BaselineRefused(rejected=verdict))
            case Bench(trials=trials):
                rest = self._benching.lost(trials)
                if rest and (verdict := self._charge("bench", rest[0], reason)):
                    self._decide_unseen(rest.pop(0), verdict)
                self._benching.put_back(rest)
            case Confirm(process=process):
                if self._confirming.lost(command) and self._charge("confirm", process, reason):
                    self._due.append(ConfirmationSampled(process=process, samples=()))
            case Examine(trials=trials):
                self._confirming.lost(command)
                if verdict := self._charge("examine", trials[0], reason):
                    notes = (f"the winners were not examined: {verdict.detail}",)
                    self._due.append(WinnersExamined(trials=trials, notes=notes))

    def _charge(self, work: str, number: int, reason: str) -> Rejected | None:
        """Count one more loss of a piece of work; after the last attempt, the verdict on it."""
        self._lost[work, number] += 1
        if self._lost[work, number] < ATTEMPTS:
            return None
        detail = f"the worker was lost {ATTEMPTS} times: {reason}"
        return Rejected(stage=Stage.FLEET, code=Code.WORKER_LOST, detail=detail)

    def decide(self, now: float) -> list[Command]:
        """What to do next, in order; empty while there is only waiting to do.

        ``now`` is in seconds on a clock that never goes back.
        """
        self._now = now
        if self._stop == "interrupted" or self.history.finished:
            return [Finish()]
        if due := self._due or self._follows(now):
            self._due, self._handed = [], due
            return [Record(fact) for fact in due]
        if self._baseline != "ready":
            return self._baseline_next()
        if self.history.ended is None or self._open:
            return self._search(now)
        return self._confirm()

    def _follows(self, now: float) -> list[Fact]:
        """The fact that follows from what is known, if one does."""
        history = self.history
        if history.ended is None:
            reason = self._end(now)
            return [SearchEnded(reason=reason, searched=self.searched(now))] if reason else []
        over = not self._open and self._confirming.over
        return [RunFinished()] if history.refused or over else []

    def _end(self, now: float) -> Reason | None:
        """Why searching is over, once no bench is at work for it."""
        if self.history.refused:
            return "baseline"
        if self._benching.in_flight:
            return None
        trial = len(self.history.trials)
        resting = not (self._open or self._proposing)
        if resting and trial - self.history.merged >= self.experiment.search.trials:
            return "trials"
        if why := self._drains(now):
            return why
        if not resting:
            return None
        if self._broken(trial):
            return "fleet"
        return "exhausted" if self._exhausted else None

    def _drains(self, now: float) -> Reason | None:
        """Why nothing more is sent out, though trials may be open."""
        if self._stop:
            return self._stop
        budget = self.experiment.search
        if (
            budget.device_seconds is not None
            and self.history.device_seconds >= budget.device_seconds
        ):
            return "device_seconds"
        return "seconds" if self.searched(now) >= budget.seconds else None

    def _baseline_next(self) -> list[Command]:
        if self._baseline == "absent":
            self._baseline = "compiling"
            return [Compile(BASELINE, Configuration(()), held_out=True)]
        if self._baseline == "compiled":
            self._baseline = "preparing"
            return [Prepare()]
        return []

    def _search(self, now: float) -> list[Command]:
        if self._search_began is None:
            self._search_began = now
        if self.history.ended is None:
            if self._drains(now):
                return []
            if proposals := self._proposals():
                return proposals
        return [*self._compiles(), *self._benches_next()]

    def _proposals(self) -> list[Command]:
        proposals: list[Command] = []
        trial = len(self.history.trials) + len(self._proposing)
        most = self.experiment.search.trials + self.history.merged
        while trial < most and self._may_propose(trial):
            tell = sorted(n for n in self._untold if n < self._horizon(trial))
            self._untold.difference_update(tell)
            self._told.update(tell)
            proposals.append(Propose(trial, tuple((n, self.history.losses(n)) for n in tell)))
            self._proposing.add(trial)
            trial += 1
        return proposals

    def _may_propose(self, trial: int) -> bool:
        if self._exhausted or self._broken(trial):
            return False
        if self._in_order:
            oldest = min(min(pending, default=trial) for pending in (self._open, self._proposing))
            return oldest >= self._horizon(trial)
        return len(self._open) + len(self._proposing) < self._lookahead

    def _horizon(self, trial: int) -> int:
        """Below it, outcomes are known to the proposer when it is asked for ``trial``."""
        if self._in_phases:
            return trial - trial % (PHASE * self._benches)
        return max(0, trial - self._lookahead + 1) if self._in_order else trial

    def _broken(self, trial: int) -> bool:
        """Whether the last trials surely finished before ``trial`` is proposed were all lost."""
        end = trial - self._lookahead + 1
        last = [self.history.trials.get(n) for n in range(end - LOST_IN_A_ROW, end)]
        return all(
            one and isinstance(one.outcome, Rejected) and one.outcome.code is Code.WORKER_LOST
            for one in last
        )

    @property
    def _in_phases(self) -> bool:
        return self.history.device is not None and self.history.device.is_cpu

    @property
    def _in_order(self) -> bool:
        return self._benches == 1 or self._in_phases

    def _compiles(self) -> list[Command]:
        if self._in_phases and self._benching.in_flight:
            return []
        trials, self._queue = list(self._queue), deque()
        return self._compile(trials, held_out=False)

    def _compile(self, trials: list[int], *, held_out: bool) -> list[Command]:
        self._compiling.update(trials)
        chosen = self.history.configuration
        return [Compile(trial, chosen(trial), held_out) for trial in trials]

    def _benches_next(self) -> list[Command]:
        if self._in_phases and self._compiling:
            return []
        return self._benching.commands(in_phases=self._in_phases)

    def _confirm(self) -> list[Command]:
        if absent := self._confirming.absent(self._compiling):
            return self._compile(absent, held_out=True)
        return [] if self._compiling else self._confirming.commands()
