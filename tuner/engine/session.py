"""The scheduler of a search, as a state machine without I/O: entries in, commands out.

Owns what is in flight and what follows from it. Knows no fleet, no proposer and no file.
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Literal

from tuner.candidate import BASELINE, Candidate
from tuner.engine.bench_queue import BATCH, QUEUED, BenchQueue
from tuner.engine.candidates import Candidates
from tuner.engine.confirmation import ConfirmationQueue, Confirming
from tuner.engine.work import BenchSetup, Command, Finish, PrepareWork, Propose, Work
from tuner.experiment.odd_shapes import every_shape
from tuner.journal.facts import (
    BaselinePrepared,
    BenchJoined,
    Entry,
    Fact,
    Reason,
    RunFinished,
    SearchEnded,
    TrialCompiled,
    TrialFinished,
    TrialProposed,
)
from tuner.journal.history import History, Trial
from tuner.trial import Code, Configuration, Outcome, Rejected, Stage

StopReason = Literal["stopped", "interrupted"]
"""How a run is asked to end: confirm what was found, or leave at once and resume later."""

PHASE = 8
"""Trials per batch on a CPU device, where compiling and timing take turns on the same cores."""

LOST_IN_A_ROW = 5
"""Trials lost one after the other that end the search: the fleet is broken, not the candidates."""


class Phase(StrEnum):
    """What the run is busy with."""

    BASELINE = "baseline"
    SEARCH = "search"
    CONFIRM = "confirm"
    FINISHED = "finished"


class Session:
    """One search on one device model, for as long as this process lives.

    Args:
        history: what the journal holds, with the ``EpochOpened`` of this process and the incumbents
            that enter with it. Open trials are queued.
        secret: the seed of the inputs.
        rest: whether winners are timed on all that is reported and run under the checkers, or only
            timed on what makes them winners.
        profile: whether to read hardware counters of the best.
        reserve: the seconds of the budget to leave for what must still follow the search, once
            something was measured.
    """

    def __init__(
        self,
        history: History,
        secret: int,
        *,
        rest: bool = True,
        profile: bool = False,
        reserve: Callable[[History], float] = lambda _: 0.0,
    ) -> None:
        if history.epoch is None:
            raise ValueError("the history has no EpochOpened")
        device, self._benches = history.epoch.device, history.epoch.bench_slots
        self.history = history
        self.experiment = history.experiment
        self._secret = secret
        self._reserve = reserve
        self._in_phases = device.is_cpu
        self._in_order = self._benches == 1 or device.is_cpu
        self._baseline: Literal["absent", "compiling", "compiled", "preparing", "ready"] = "absent"
        self._baseline_candidate: Candidate | None = None
        self._open_trials = {trial.number for trial in history.open()}
        self._proposing: set[int] = set()
        self._queue = deque(sorted(self._open_trials))
        self._compiling: set[int] = set()
        self._candidates = Candidates(self.experiment, device)
        self._duplicates: dict[int, list[Candidate]] = {}
        """Candidates that wait for the outcome of an equal one, by its number."""
        self._bench_queue = BenchQueue(history, self._benches)
        self._confirmation = ConfirmationQueue(history, self._benches, rest=rest, profile=profile)
        self._due: list[Fact] = []
        self._told: set[int] = set()
        self._untold = {n for n, t in history.trials.items() if t.outcome is not None}
        self._exhausted = False
        self._stop: StopReason | None = None

    @property
    def phase(self) -> Phase:
        """What the run is busy with now."""
        if self.history.finished:
            return Phase.FINISHED
        if self._baseline != "ready":
            return Phase.BASELINE
        searching = self.history.ended is None or self._open_trials
        return Phase.SEARCH if searching else Phase.CONFIRM

    @property
    def _lookahead(self) -> int:
        """How many trials are in flight at most.

        The slowest compile holds up all later ones: half as many again keep the other slots busy.
        No more than benches need, for what is in flight teaches the search nothing yet. In order
        the first trials, timed in full, do so too, and the number must not depend on how long
        trials take, or a resume would propose others.
        """
        assert self.history.epoch is not None
        slots, in_order = self.history.epoch.compile_slots, self._in_order
        batch, spare = (BATCH, slots - 1) if in_order else (self._bench_queue.batch, slots // 2)
        return slots + spare + QUEUED * batch * self._benches

    @property
    def again(self) -> list[Trial]:
        """Open trials that were measured before: elsewhere, or only until they were cut short."""
        return [self.history.trials[n] for n in self._open_trials if self.history.trials[n].bench]

    @property
    def confirming(self) -> Confirming:
        """How far the confirmation is."""
        return self._confirmation.progress

    def searched(self, t: float) -> float:
        """Seconds of searching up to ``t``, over resumes; constant once searching has ended."""
        return self.history.clock.searched_until(t)

    def seconds_left(self, t: float) -> float:
        """Seconds of the budget that what must follow the search leaves, at ``t``."""
        left = self.experiment.search.seconds - self.history.clock.spent_until(t)
        return left - self._reserve(self.history) if self.history.outcomes["measured"] else left

    def stop(self, reason: StopReason) -> None:
        """Ask for an end: ``stopped`` confirms what was found, ``interrupted`` leaves at once."""
        self._stop = reason

    def exhausted(self) -> None:
        """Note that the proposer has nothing left to propose."""
        self._exhausted = True
        self._proposing.clear()

    def apply(self, entry: Entry) -> None:
        """Apply what was journalled."""
        self.history.apply(entry)
        match entry.fact:
            case BaselinePrepared(result=result):
                if not isinstance(result, Rejected):
                    self._baseline = "ready"
            case TrialProposed(trial=trial):
                self._proposing.discard(trial)
                self._open_trials.add(trial)
                self._queue.append(trial)
            case TrialCompiled() as fact:
                self._compiled(fact)
            case TrialFinished() as fact:
                self._finished(fact)
            case BenchJoined(benches=benches):
                self._benches = max(self._benches, benches)
                self._bench_queue.benches = self._confirmation.benches = self._benches
            case SearchEnded():
                self._open_trials.clear()
                self._queue.clear()
                self._compiling.clear()
                self._bench_queue.clear()
                self._duplicates.clear()
            case fact:
                self._confirmation.applied(fact)
        if self.history.ended is not None:
            self._take_up()

    def _finished(self, fact: TrialFinished) -> None:
        self._bench_queue.finished(fact)
        self._confirmation.remeasured(fact.trial)
        self._open_trials.discard(fact.trial)
        if fact.trial not in self._told:
            self._untold.add(fact.trial)
        for duplicate in self._duplicates.pop(fact.trial, ()):
            self._share(duplicate, fact.trial)

    def _take_up(self) -> None:
        """Queue trials that would be finalists but were cut short: they are measured in full."""
        fresh = [t.number for t in self.history.open() if t.number not in self._open_trials]
        self._open_trials.update(fresh)
        self._queue.extend(fresh)

    def _compiled(self, fact: TrialCompiled) -> None:
        if fact.trial in self._compiling:
            self._ready(fact.trial, self._candidates.finish(fact))

    def _ready(self, trial: int, result: Candidate | Rejected) -> None:
        """Send a compiled candidate on, or record its rejection."""
        self._compiling.discard(trial)
        if trial == BASELINE:
            self._baseline = "compiled"
            if isinstance(result, Rejected):
                self._due.append(BaselinePrepared(result=result))
            else:
                self._baseline_candidate = result
        elif isinstance(result, Rejected):
            if trial in self._open_trials:
                self._finish_unmeasured(trial, result)
            else:
                self._confirmation.refuse(trial)
        elif trial not in self._open_trials:
            self._confirmation.add(result)
        elif (first := self._candidates.same_as(result)) is not None:
            self._share(result, first)
        else:
            self._bench_queue.add(result)

    def _share(self, duplicate: Candidate, first: int) -> None:
        """Give a trial the outcome of an equal one, once that has one of its own."""
        outcome = self.history.trials[first].outcome
        if outcome is None and first in self._open_trials:
            self._duplicates.setdefault(first, []).append(duplicate)
        elif outcome is None or (isinstance(outcome, Rejected) and outcome.stage is Stage.FLEET):
            self._bench_queue.add(duplicate)
        else:
            self._finish_unmeasured(duplicate.trial, outcome, first)

    def _finish_unmeasured(self, trial: int, outcome: Outcome, same_as: int | None = None) -> None:
        self._due.append(TrialFinished(trial=trial, outcome=outcome, same_as=same_as))

    def decide(self, t: float) -> list[Command]:
        """What to do next, in order; empty if nothing can be started yet.

        ``t`` is in seconds, on the clock of the entries.
        """
        if self._stop == "interrupted" or self.history.finished:
            return [Finish()]
        if self.history.ended is not None:
            self._confirmation.hurry(self.seconds_left(t))
        commands: list[Command] = [*(self._take_due() or self._follows(t))]
        if commands:
            return commands
        if self._baseline != "ready":
            commands += self._baseline_next()
        elif self.history.ended is None or self._open_trials:
            commands += self._search(t)
        else:
            commands += self._confirm()
        return commands or [*self._take_due()]

    def _take_due(self) -> list[Fact]:
        due, self._due = self._due, []
        return due

    def _follows(self, t: float) -> list[Fact]:
        """The fact that follows from what is known, if one does."""
        history = self.history
        if history.ended is None:
            reason = self._end(t)
            return [SearchEnded(reason=reason)] if reason else []
        over = not self._open_trials and self._confirmation.over
        return [RunFinished()] if history.refused or over else []

    def _end(self, t: float) -> Reason | None:
        """The reason to end the search, if there is one and nothing is measured or proposed now."""
        if self.history.refused:
            return "baseline"
        if self._bench_queue.in_flight or self._proposing:
            return None
        trial = len(self.history.trials)
        resting = not self._open_trials
        if resting and trial - self.history.merged >= self.experiment.search.trials:
            return "trials"
        if why := self._drains(t):
            return why
        if not resting:
            return None
        if self._broken(trial):
            return "fleet"
        return "exhausted" if self._exhausted else None

    def _drains(self, t: float) -> Reason | None:
        """The budget or request that ends proposing, though trials may be open."""
        if self._stop:
            return self._stop
        budget = self.experiment.search
        if (
            budget.device_seconds is not None
            and self.history.device_seconds >= budget.device_seconds
        ):
            return "device_seconds"
        begun = self.history.outcomes.total() > 0  # however small a budget is, something is tried
        return "seconds" if begun and self.seconds_left(t) <= 0 else None

    def _baseline_next(self) -> list[Work]:
        if self._baseline == "absent":
            self._baseline = "compiling"
            return self._compile([BASELINE], all_shapes=True)
        if self._baseline == "compiled" and self._baseline_candidate is not None:
            self._baseline = "preparing"
            setup = BenchSetup(
                experiment=self.experiment,
                baseline=self._baseline_candidate,
                secret=self._secret,
            )
            return [PrepareWork(setup=setup)]
        return []

    def _search(self, t: float) -> list[Command]:
        if self.history.ended is None:
            if self._drains(t):
                return []
            if proposals := self._proposals(t):
                return [*proposals]
        return [*self._compiles(), *self._measures()]

    def _proposals(self, t: float) -> list[Propose]:
        """What to ask the search for.

        Not in order, all at once, when it has answered: many at a time cost it less.
        """
        proposals: list[Propose] = []
        if self._proposing and not self._in_order:
            return proposals
        trial = len(self.history.trials) + len(self._proposing)
        most = self.experiment.search.trials + self.history.merged
        if not self.history.outcomes["measured"] and self.seconds_left(t) <= self._reserve(
            self.history
        ):
            most = min(most, 1 + self.history.outcomes.total())  # the time is for confirming one
        while trial < most and self._may_propose(trial):
            tell = sorted(n for n in self._untold if n < self._horizon(trial))
            self._untold.difference_update(tell)
            self._told.update(tell)
            losses = tuple((n, self.history.losses(n)) for n in tell)
            proposals.append(Propose(trial=trial, tell=losses))
            self._proposing.add(trial)
            trial += 1
        return proposals

    def _may_propose(self, trial: int) -> bool:
        if self._exhausted or self._broken(trial):
            return False
        if self._in_order:
            pending = (self._open_trials, self._proposing)
            oldest = min(min(each, default=trial) for each in pending)
            return oldest >= self._horizon(trial)
        return len(self._open_trials) + len(self._proposing) < self._lookahead

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

    def _compiles(self) -> list[Work]:
        if self._in_phases and self._bench_queue.in_flight:
            return []
        trials, self._queue = list(self._queue), deque()
        return self._compile(trials, all_shapes=False)

    def _compile(self, trials: list[int], *, all_shapes: bool) -> list[Work]:
        """The works that compile these; a trial over a limit has its outcome without one."""
        self._compiling.update(trials)
        shapes = every_shape(self.experiment) if all_shapes else self.experiment.shapes.tune
        works: list[Work] = []
        for trial in trials:
            template, configuration = None, Configuration(())
            if trial != BASELINE:
                template = self.history.template(trial)
                configuration = self.history.configuration(trial)
            begun = self._candidates.begin(trial, template, configuration, shapes)
            if isinstance(begun, Rejected):
                self._ready(trial, begun)
            else:
                works.append(begun)
        return works

    def _measures(self) -> list[Work]:
        if self._in_phases and self._compiling:
            return []
        return [*self._bench_queue.works()]

    def _confirm(self) -> list[Work]:
        if absent := self._confirmation.absent(self._compiling):
            return self._compile(absent, all_shapes=not self._confirmation.screening)
        return [] if self._compiling else [*self._confirmation.works()]
