"""A driver in small: it obeys the session's protocol over a simulated fleet, in one thread.

Its journal is a list, and it can be killed after any number of facts.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tests.tuner.space.devices import cuda_device, opencl_cpu
from tuner.device import Device
from tuner.engine.commands import (
    Bench,
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
    Job,
    Lost,
    Prepared,
    PrepareJob,
)
from tuner.engine.session import Session
from tuner.engine.signals import CandidateCompiled, JobLost, Signal, SpaceExhausted
from tuner.engine.simulated_fleet import SimulatedFleet
from tuner.experiment import model as spec
from tuner.experiment.fields import Source
from tuner.experiment.model import (
    Argument,
    Experiment,
    Kernel,
    Launch,
    SearchSettings,
    ShapeBinding,
    Shapes,
)
from tuner.expressions import Expression
from tuner.journal.facts import (
    BaselinePrepared,
    BaselineRefused,
    ConfirmationSampled,
    EpochOpened,
    Fact,
    IncumbentEntered,
    TrialFinished,
    TrialProposed,
    WinnersExamined,
)
from tuner.plan import Build, CellPlan, KernelStep, Plan
from tuner.search.port import Losses
from tuner.trial import Configuration, Infeasible, Rejected

GPU = cuda_device(90)
CPU = opencl_cpu()
TUNE = 2
HELD_OUT = 1
BASELINE_NS = (1000.0, 2000.0, 4000.0)


def experiment(
    trials: int = 12, seconds: float = 1e6, top: int = 2, processes: int = 3
) -> Experiment:
    return Experiment(
        version=1,
        name="simulated",
        kernel=Kernel(
            language="cuda",
            source=Source(name="copy.cu", text="void copy(float *x, int n) {}"),
            entry="copy",
            launch=Launch(grid=(Expression.parse("n"),), block=(Expression.parse(64),)),
        ),
        arguments=(
            Argument(name="x", kind="out", dtype="float32", shape=(Expression.parse("n"),)),
            Argument(name="n", kind="scalar", dtype="int32", value=Expression.parse("n")),
        ),
        shapes=Shapes(
            tune=(ShapeBinding({"n": 256}), ShapeBinding({"n": 1024}, weight=2.0)),
            held_out=(ShapeBinding({"n": 4096}),),
        ),
        search=SearchSettings(trials=trials, seconds=seconds),
        confirm=spec.ConfirmSettings(top=top, processes=processes),
    )


def cost(configuration: Configuration, shape: int) -> float:
    """A bowl around x = 11, whose bottom moves a little with the shape."""
    x = configuration.as_dict()["x"]
    assert isinstance(x, int)
    return BASELINE_NS[shape] * (0.5 + 0.002 * (x - 11 - shape) ** 2)


class Sensitive:
    """A proposer whose every answer depends on all that it was told."""

    def __init__(self, size: int = 200) -> None:
        self._left = set(range(size))
        self._told: dict[int, Losses | None] = {}
        self.asked: list[int] = []

    def ask(self, trial: int) -> Configuration | None:
        self.asked.append(trial)
        if not self._left:
            return None
        seen = json.dumps([trial, sorted(self._told.items())]).encode()
        pick = int(hashlib.sha256(seen).hexdigest(), 16) % len(self._left)
        configuration = Configuration.of({"x": sorted(self._left)[pick]})
        self.record(trial, configuration)
        return configuration

    def record(self, trial: int, configuration: Configuration) -> None:
        value = configuration.as_dict()["x"]
        assert isinstance(value, int)
        self._left.remove(value)

    def tell(self, trial: int, losses: Losses | None) -> None:
        assert trial not in self._told, f"trial {trial} was told twice"
        self._told[trial] = losses


class KilledError(Exception):
    """The process ends here; nothing but the journal is left."""


@dataclass
class Run:
    """What outlives a process: the journal. ``kill_after`` facts, the next process dies."""

    experiment: Experiment
    device: Device = GPU
    environment: str = "one"
    proposer_size: int = 200
    infeasible: frozenset[tuple[int, int]] = frozenset()
    """Pairs (value of x, tune shape) that are outside the constraints."""
    incumbents: tuple[IncumbentEntered, ...] = ()
    facts: list[Fact] = field(default_factory=list)
    kill_after: int | None = None

    def drive(self, fleet: SimulatedFleet, signals: Iterable[Signal | None] = ()) -> Session:
        """One process: from the journal as it stands to ``Finish``; ``signals`` come in between."""
        return asyncio.run(_Process(self, fleet, signals).run())

    def append(self, fact: Fact) -> None:
        if self.kill_after is not None and len(self.facts) >= self.kill_after:
            raise KilledError
        self.facts.append(fact)


class _Process:
    def __init__(self, run: Run, fleet: SimulatedFleet, signals: Iterable[Signal | None]) -> None:
        self.journal = run
        self.fleet = fleet
        self.signals = iter(signals)
        self.proposer = Sensitive(run.proposer_size)
        self.candidates: dict[int, Candidate] = {}
        self.plans: dict[int, tuple[Compile, Plan]] = {}
        self.session = Session(
            run.experiment, compile_slots=fleet.compile_slots, bench_slots=fleet.bench_slots
        )

    async def run(self) -> Session:
        for fact in self.journal.facts:
            self.session.apply(fact)
            if isinstance(fact, TrialProposed):
                self.proposer.record(fact.trial, fact.configuration)
        self.take(EpochOpened(device=self.journal.device, environment=self.journal.environment))
        for entered in self.journal.incumbents[len(self.session.history.incumbents) :]:
            self.take(entered)
        idle = 0
        while self.act():
            answers = await self.fleet.answers(timeout=0.5)
            idle = 0 if answers else idle + 1
            assert idle < 1000, "the session waits for nothing"
            if signal := next(self.signals, None):
                self.take(signal)
            for answer in answers:
                self.take(self.event(answer))
                if not self.act():
                    return self.session
        return self.session

    def act(self) -> bool:
        while commands := self.session.decide(self.fleet.now()):
            for command in commands:
                if isinstance(command, Finish):
                    return False
                self.execute(command)
        return True

    def take(self, event: Fact | Signal) -> None:
        if not isinstance(event, Signal):
            if not self.session.expects(event):
                return
            self.journal.append(event)
        self.session.apply(event)
        if isinstance(event, TrialFinished):
            self.candidates.pop(event.trial, None)

    def execute(self, command: Record | Propose | Work) -> None:
        match command:
            case Record(fact=fact):
                self.take(fact)
            case Propose(trial=trial, tell=tell):
                for number, loss in tell:
                    self.proposer.tell(number, loss)
                chosen = self.proposer.ask(trial)
                if chosen is None:
                    self.take(SpaceExhausted())
                else:
                    self.take(TrialProposed(trial=trial, configuration=chosen))
            case Compile(trial=trial):
                plan = self.plan(command)
                self.plans[trial] = (command, plan)
                self.fleet.submit(CompileJob(trial=trial, builds=plan.builds))
            case Prepare():
                setup = BenchSetup(
                    experiment=self.journal.experiment,
                    baseline=self.candidates[BASELINE],
                    secret=1,
                )
                self.fleet.submit(PrepareJob(setup=setup))
            case Bench(trials=trials, cutoffs=cutoffs):
                chosen_ones = tuple(self.candidates[t] for t in trials)
                self.fleet.submit(BenchJob(candidates=chosen_ones, cutoffs=cutoffs))
            case Confirm(process=process, finalists=finalists):
                chosen_ones = tuple(self.candidates[t] for t in finalists)
                self.fleet.submit(ConfirmJob(process=process, finalists=chosen_ones))
            case Examine(trials=trials):
                self.fleet.submit(ExamineJob(winners=tuple(self.candidates[t] for t in trials)))

    def plan(self, command: Compile) -> Plan:
        x = command.configuration.as_dict().get("x", -1)
        build = Build(language="cuda", file="t.cu", source="", entries=("f",), defines=(("X", x),))
        step = KernelStep(entry="f", grid=(1, 1, 1), block=(1, 1, 1), arguments=())
        return Plan(
            builds=(build,),
            cells=tuple(
                Infeasible(reason="told to")
                if (x, shape) in self.journal.infeasible
                else CellPlan(build=0, steps=(step,))
                for shape in range(TUNE + HELD_OUT * command.held_out)
            ),
        )

    def event(self, answer: Answer) -> Fact | Signal:
        match answer:
            case Compiled(trial=trial, result=Rejected() as rejected):
                return CandidateCompiled(trial, rejected)
            case Compiled(trial=trial, result=binaries):
                command, plan = self.plans[trial]
                self.candidates[trial] = Candidate(
                    trial=trial,
                    configuration=command.configuration,
                    plan=plan,
                    binaries=binaries,
                )
                return CandidateCompiled(trial)
            case Prepared(result=Rejected() as rejected):
                return BaselineRefused(rejected=rejected)
            case Prepared(result=cells, notes=notes):
                return BaselinePrepared(cells=cells, notes=notes)
            case Benched(trial=trial, outcome=outcome, bench=bench, seconds=seconds):
                searched = self.session.searched(self.fleet.now())
                return TrialFinished(
                    trial=trial,
                    outcome=outcome,
                    bench=bench,
                    device_seconds=seconds,
                    searched=searched,
                )
            case Confirmed(process=process, samples=samples, failed=failed):
                return ConfirmationSampled(process=process, samples=samples, failed=failed)
            case Examined(trials=trials, failed=failed):
                return WinnersExamined(trials=trials, failed=failed)
            case Lost(job=job, reason=reason):
                return JobLost(self.work(job), reason)

    def work(self, job: Job) -> Work:
        match job:
            case CompileJob(trial=trial):
                return self.plans[trial][0]
            case PrepareJob():
                return Prepare()
            case BenchJob(candidates=candidates):
                return Bench(tuple(c.trial for c in candidates))
            case ConfirmJob(process=process, finalists=finalists):
                return Confirm(process, tuple(c.trial for c in finalists))
            case ExamineJob(winners=winners):
                return Examine(tuple(c.trial for c in winners))


def fleet(device: Device = GPU, **options: object) -> SimulatedFleet:
    base = SimulatedFleet(device=device, baseline_ns=BASELINE_NS, cost=cost, noise=0.02)
    return replace(base, **options)
