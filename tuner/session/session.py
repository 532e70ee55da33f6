"""The scheduler of a run: what is in flight, and what follows from it.

The protocol is in the package's docstring. Knows no fleet, no proposer and no file.
"""

from collections import Counter, deque
from collections.abc import Sequence
from enum import StrEnum
from itertools import count
from typing import Literal

from tuner.events import (
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
from tuner.fleet import BASELINE
from tuner.report.summary import winners
from tuner.session.commands import (
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
from tuner.session.history import History
from tuner.session.signals import (
    CandidateCompiled,
    JobLost,
    Signal,
    SpaceExhausted,
    StopRequested,
)
from tuner.spec.experiment import Experiment
from tuner.trial import Code, Configuration, Outcome, Rejected, Stage

BATCH = 4
"""Trials in one bench job at most: about 50 ms of work, so that the call costs nothing."""

QUEUED_JOBS = 2
"""Bench jobs in flight for each bench: one that runs, and one that waits."""

PHASE = 8
"""Trials that are compiled, then timed, in turn, where both need the same processor."""

ATTEMPTS = 3
"""A job is sent this often before its loss counts against the trial."""

LOST_IN_A_ROW = 5
"""Trials lost one after the other that end the search: the fleet is broken, not the candidates."""

CONFIRM_ROUNDS = 4
"""Processes spent on confirming at most, as a multiple of ``confirm.processes``."""


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
        self._lookahead = compile_slots + QUEUED_JOBS * BATCH * bench_slots
        self._now = 0.0
        self._reset()

    def _reset(self) -> None:
        """Forget what was in flight; what is open is queued."""
        self._baseline: Literal["absent", "compiling", "compiled", "preparing", "ready"] = "absent"
        self._open = {trial.number for trial in self.history.open()}
        self._proposing: set[int] = set()
        self._queue = deque(sorted(self._open))
        self._compiling: set[int] = set()
        self._ready: deque[int] = deque()
        self._jobs: list[list[int]] = []
        self._confirmable: set[int] = set()
        self._dropped: set[int] = set()
        self._confirming: dict[int, tuple[int, ...]] = {}
        self._examining: tuple[int, ...] = ()
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
    def in_flight(self) -> tuple[int, int]:
        """How many trials are being compiled, and how many are on a bench or queued for one."""
        return len(self._compiling), sum(len(job) for job in self._jobs)

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
                return any(trial in job for job in self._jobs)
            case ConfirmationSampled(process=process):
                return process in self._confirming
            case WinnersExamined(trials=trials):
                return trials == self._examining
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
            case TrialFinished(trial=trial):
                self._leave(trial)
                self._open.discard(trial)
                if trial not in self._told:
                    self._untold.add(trial)
            case SearchEnded():
                self._open.clear()
                self._queue.clear()
                self._compiling.clear()
                self._ready.clear()
            case ConfirmationSampled(process=process):
                self._confirming.pop(process, None)
            case WinnersExamined():
                self._examining = ()

    def _leave(self, trial: int) -> None:
        """Take a trial off the bench job that holds it."""
        for job in self._jobs:
            if trial in job:
                job.remove(trial)
        self._jobs = [job for job in self._jobs if job]

    def _compiled(self, trial: int, rejected: Rejected | None, same_as: int | None = None) -> None:
        if trial == BASELINE:
            self._baseline = "compiled"
            if rejected:
                self._due.append(BaselineRefused(rejected=rejected))
        elif trial in self._compiling:
            self._compiling.remove(trial)
            if trial not in self._open:
                (self._dropped if rejected else self._confirmable).add(trial)
            elif rejected:
                self._decide_unseen(trial, rejected)
            elif same_as is not None and (outcome := self.history.trials[same_as].outcome):
                self._decide_unseen(trial, outcome, same_as)
            else:
                self._ready.append(trial)

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
                rest = [t for t in trials if any(t in job for job in self._jobs)]
                for trial in rest:
                    self._leave(trial)
                if rest and (verdict := self._charge("bench", rest[0], reason)):
                    self._decide_unseen(rest.pop(0), verdict)
                self._ready.extendleft(reversed(rest))
            case Confirm(process=process):
                held = self._confirming.pop(process, None)
                if held and self._charge("confirm", process, reason):
                    self._due.append(ConfirmationSampled(process=process, samples=()))
            case Examine(trials=trials):
                self._examining = ()
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
        over = history.refused or not (
            self._open or self._confirming or self._examining or self._wanting()
        )
        return [RunFinished()] if over else []

    def _end(self, now: float) -> Reason | None:
        """Why searching is over, once no bench is at work for it."""
        if self.history.refused:
            return "baseline"
        if self._jobs:
            return None
        trial = len(self.history.trials)
        resting = not (self._open or self._proposing)
        if resting and trial >= self.experiment.search.trials:
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
        while trial < self.experiment.search.trials and self._may_propose(trial):
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
        if self._in_phases and self._jobs:
            return []
        trials, self._queue = list(self._queue), deque()
        return self._compile(trials, held_out=False)

    def _compile(self, trials: list[int], *, held_out: bool) -> list[Command]:
        self._compiling.update(trials)
        known = self.history.trials
        return [Compile(trial, known[trial].configuration, held_out) for trial in trials]

    def _benches_next(self) -> list[Command]:
        if self._in_phases and self._compiling:
            return []
        size = -(-len(self._ready) // self._benches) if self._in_phases else BATCH
        jobs: list[Command] = []
        while self._ready and len(self._jobs) < QUEUED_JOBS * self._benches:
            batch = [self._ready.popleft() for _ in range(min(size, len(self._ready)))]
            self._jobs.append(batch)
            jobs.append(Bench(tuple(batch)))
        return jobs

    def _unconfirmed(self) -> list[int]:
        """Finalists that need to be seen in more processes, if any are left to spend."""
        wanted = self.experiment.confirm.processes
        spent = len(self.history.confirmations) + len(self._confirming)
        if spent >= CONFIRM_ROUNDS * wanted:
            return []
        seen = Counter(n for finalists in self._confirming.values() for n in finalists)
        for confirmation in self.history.confirmations:
            seen.update({sample.trial for sample in confirmation.samples})
        finalists = self.history.finalists()
        return [n for n in finalists if n not in self._dropped and seen[n] < wanted]

    def _unexamined(self) -> tuple[int, ...]:
        """Confirmed winners that no checker has seen."""
        seen = {number for fact in self.history.examinations for number in fact.trials}
        return tuple(n for n in winners(self.history) if n not in self._dropped | seen)

    def _wanting(self) -> Sequence[int]:
        """Trials that need to be confirmed, or once all are, examined."""
        return self._unconfirmed() or self._unexamined()

    def _confirm(self) -> list[Command]:
        commands: list[Command] = []
        if self._examining or (self._confirming and not self._unconfirmed()):
            return []
        wanted = self._wanting()
        if absent := [n for n in wanted if n not in self._confirmable | self._compiling]:
            return self._compile(absent, held_out=True)
        if self._compiling:
            return []
        if not self._confirming and not self._unconfirmed():
            self._examining = tuple(wanted)
            return [Examine(self._examining)]
        while len(self._confirming) < self._benches and (wanted := self._unconfirmed()):
            used = {c.process for c in self.history.confirmations} | self._confirming.keys()
            process = next(n for n in count() if n not in used)
            self._confirming[process] = tuple(wanted)
            commands.append(Confirm(process, tuple(wanted)))
        return commands
