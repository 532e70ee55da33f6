"""The driver: a thin shell that executes a session's commands and feeds the answers back.

Obeys the protocol of :mod:`tuner.engine` and decides nothing. Owns the order of journal and acts,
and the compiled candidates in flight. Knows nothing of Ray, of signals or of terminals.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, Protocol

from cluster.console import Progress
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
from tuner.engine.fleet import (
    BASELINE,
    Answer,
    Benched,
    BenchJob,
    BenchSetup,
    Candidate,
    Compiled,
    CompileJob,
    Confirmed,
    ConfirmJob,
    Examined,
    ExamineJob,
    Fleet,
    Job,
    Lost,
    Prepared,
    PrepareJob,
)
from tuner.engine.session import Session
from tuner.engine.signals import (
    CandidateCompiled,
    JobLost,
    Signal,
    SpaceExhausted,
    StopRequested,
)
from tuner.experiment.odd_shapes import every_shape
from tuner.journal.facts import (
    BaselinePrepared,
    BaselineRefused,
    ConfirmationSampled,
    Fact,
    TrialFinished,
    TrialProposed,
    WinnersExamined,
)
from tuner.plan import Binary, Plan
from tuner.search.port import Proposer
from tuner.space.limits import over_limit, within_limits
from tuner.space.lower import lower
from tuner.trial import Rejected

TICK_SECONDS = 0.5
"""How long answers are waited for at most, so that budgets of time and requests are kept."""


class Journal(Protocol):
    """Where facts go before anything that follows from them is done."""

    def append(self, fact: Fact) -> None:
        """Write one fact."""
        ...

    def sync(self) -> None:
        """Return once everything appended is on disk."""
        ...


class Driver:
    """Runs one session to its end, or until it is told to stop.

    Args:
        session: with the journal's facts and this process's ``EpochOpened`` applied.
        fleet: closed by whoever opened it.
        proposer: told of every earlier proposal.
        journal: opened for appending.
        secret: the seed of the inputs.
    """

    def __init__(
        self, *, session: Session, fleet: Fleet, proposer: Proposer, journal: Journal, secret: int
    ) -> None:
        self._session = session
        self._experiment = session.experiment
        self._fleet = fleet
        self._proposer = proposer
        self._journal = journal
        self._secret = secret
        self._plans: dict[int, tuple[Compile, Plan]] = {}
        self._candidates: dict[int, Candidate] = {}
        self._harder: set[int] = set()
        self._outbox: list[Job] = []
        self._first: dict[str, int] = {}

    def stop(self, reason: Literal["stopped", "interrupted"]) -> None:
        """Ask for an end: ``stopped`` confirms what was found, ``interrupted`` leaves at once."""
        self._session.apply(StopRequested(reason))

    async def run(self) -> AsyncIterator[Progress]:
        """Drive the session until it finishes, yielding how far it is after each step."""
        while self._act():
            await self._send()
            yield Progress.of(self._session, self._fleet.now())
            for answer in await self._fleet.answers(TICK_SECONDS):
                event = self._event(answer)
                if isinstance(event, Signal) or self._session.expects(event):
                    self._take(event)
                    if not self._act():
                        break
        self._journal.sync()
        yield Progress.of(self._session, self._fleet.now())

    def _act(self) -> bool:
        """Execute what the session wants now; whether it goes on."""
        while commands := self._session.decide(self._fleet.now()):
            for command in commands:
                if isinstance(command, Finish):
                    return False
                self._execute(command)
        return True

    def _take(self, event: Fact | Signal) -> None:
        if not isinstance(event, Signal):
            self._journal.append(event)
        self._session.apply(event)
        if isinstance(event, TrialFinished):
            self._candidates.pop(event.trial, None)

    def _execute(self, command: Command) -> None:
        match command:
            case Record(fact=fact):
                self._take(fact)
            case Propose(trial=trial, tell=tell):
                for earlier, loss in tell:
                    self._proposer.tell(earlier, loss)
                configuration = self._proposer.ask(trial)
                self._take(
                    SpaceExhausted()
                    if configuration is None
                    else TrialProposed(trial=trial, configuration=configuration)
                )
            case Compile():
                self._compile(command)
            case Prepare():
                self._outbox.append(
                    PrepareJob(
                        setup=BenchSetup(
                            experiment=self._experiment,
                            baseline=self._candidates[BASELINE],
                            secret=self._secret,
                        )
                    )
                )
            case Bench(trials=trials, cutoffs=cutoffs):
                chosen = tuple(self._candidates[trial] for trial in trials)
                self._outbox.append(BenchJob(candidates=chosen, cutoffs=cutoffs))
            case Confirm(process=process, finalists=finalists):
                chosen = tuple(self._candidates[trial] for trial in finalists)
                fresh = tuple(trial for trial in finalists if trial not in self._harder)
                self._harder.update(fresh)
                self._outbox.append(ConfirmJob(process=process, finalists=chosen, harder=fresh))
            case Examine(trials=trials):
                self._outbox.append(ExamineJob(winners=tuple(self._candidates[t] for t in trials)))

    async def _send(self) -> None:
        """Submit what was decided on, once all that announces it is on disk.

        One sync serves every answer that came at once, and those that come meanwhile the next one:
        the slower the disk, the larger the groups.
        """
        if self._outbox:
            await asyncio.to_thread(self._journal.sync)
        for job in self._outbox:
            self._fleet.submit(job)
        self._outbox.clear()

    def _compile(self, command: Compile) -> None:
        """Lower one candidate and send its builds, unless a limit refuses it at once."""
        tune = self._experiment.shapes.tune
        plan = lower(
            self._experiment,
            None if command.trial == BASELINE else self._session.history.template(command.trial),
            command.configuration,
            every_shape(self._experiment) if command.held_out else tune,
            self._fleet.device,
        )
        if refusal := over_limit(plan, self._fleet.device):
            self._take(CandidateCompiled(command.trial, refusal))
            return
        self._plans[command.trial] = (command, plan)
        self._outbox.append(CompileJob(trial=command.trial, builds=plan.builds))

    def _event(self, answer: Answer) -> Fact | Signal:
        match answer:
            case Compiled(trial=trial, result=result):
                rejected = self._keep(trial, result)
                return CandidateCompiled(trial, rejected, self._equal(trial, rejected))
            case Prepared(result=result):
                if isinstance(result, Rejected):
                    return BaselineRefused(rejected=result)
                return BaselinePrepared(
                    cells=result,
                    notes=answer.notes,
                    ceilings=answer.ceilings,
                    vitals=answer.vitals,
                )
            case Benched(trial=trial, outcome=outcome, bench=bench, seconds=seconds):
                return TrialFinished(
                    trial=trial,
                    outcome=outcome,
                    bench=bench,
                    device_seconds=seconds,
                    searched=self._session.searched(self._fleet.now()),
                    vitals=answer.vitals,
                )
            case Confirmed():
                return ConfirmationSampled(
                    process=answer.process,
                    samples=answer.samples,
                    failed=answer.failed,
                    notes=answer.notes,
                    vitals=answer.vitals,
                )
            case Examined():
                return WinnersExamined(
                    trials=answer.trials,
                    failed=answer.failed,
                    notes=answer.notes,
                    profiles=answer.profiles,
                )
            case Lost(job=job, reason=reason):
                return JobLost(self._work(job), reason)

    def _keep(self, trial: int, result: tuple[Binary, ...] | Rejected) -> Rejected | None:
        """Hold a compiled candidate ready for the bench, or say why there is none."""
        command, plan = self._plans.pop(trial)
        result = within_limits(plan, self._fleet.device, result)
        if isinstance(result, Rejected):
            return result
        self._candidates[trial] = Candidate(
            trial=trial, configuration=command.configuration, plan=plan, binaries=result
        )
        return None

    def _equal(self, trial: int, rejected: Rejected | None) -> int | None:
        """The first trial that does the same: the same machine code, launched the same.

        On CUDA alone: an OpenCL binary changes with a macro that nothing reads.
        """
        if rejected or trial == BASELINE or self._experiment.kernel.language != "cuda":
            return None
        first = self._first.setdefault(self._candidates[trial].work, trial)
        return None if first == trial else first

    def _work(self, job: Job) -> Work:
        match job:
            case CompileJob(trial=trial):
                return self._plans.pop(trial)[0]
            case PrepareJob():
                return Prepare()
            case BenchJob(candidates=candidates):
                return Bench(tuple(candidate.trial for candidate in candidates))
            case ConfirmJob(process=process, finalists=finalists, harder=harder):
                self._harder.difference_update(harder)
                return Confirm(process, tuple(candidate.trial for candidate in finalists))
            case ExamineJob(winners=winners):
                return Examine(tuple(candidate.trial for candidate in winners))
