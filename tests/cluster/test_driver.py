"""The driver over a simulated fleet: facts before acts, answers fed back, ends of every kind."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from cluster.console import Progress
from cluster.driver import Driver
from tests.tuner.space.devices import cuda_device
from tests.tuner.space.experiments import experiment, launch, template
from tuner.engine.fleet import BASELINE, BenchJob, Compiled, CompileJob, Job
from tuner.engine.session import Session
from tuner.engine.simulated_fleet import Fault, SimulatedFleet
from tuner.experiment.model import ConfirmSettings, SearchSettings, ShapeBinding
from tuner.journal.facts import (
    BaselineRefused,
    EpochOpened,
    Fact,
    RunFinished,
    SearchEnded,
    TrialFinished,
    TrialProposed,
)
from tuner.search.select import make_proposer
from tuner.space.feasible import feasible_set
from tuner.trial import Code, Rejected

GPU = cuda_device(90)
FAMILY = template({"B": (32, 64, 128, 2048)}, steps=(launch(block=("B",)),))
EXPERIMENT = replace(
    experiment({"n": 256}, {"n": 4096}),
    template=FAMILY,
    search=SearchSettings(trials=10, seconds=1e6),
    confirm=ConfirmSettings(top=2, processes=3),
)
EXPERIMENT = replace(
    EXPERIMENT, shapes=replace(EXPERIMENT.shapes, held_out=(ShapeBinding({"n": 99}),))
)


@dataclass
class Recorder:
    """A journal in memory that remembers what was on disk when."""

    facts: list[Fact] = field(default_factory=list)
    synced: int = 0

    def append(self, fact: Fact) -> None:
        self.facts.append(fact)

    def sync(self) -> None:
        self.synced = len(self.facts)


@dataclass(slots=True, kw_only=True)
class Watched(SimulatedFleet):
    """Checks that what announces a job is on disk when the job is sent."""

    journal: Recorder

    def submit(self, job: Job) -> None:
        assert self.journal.synced == len(self.journal.facts)
        if isinstance(job, CompileJob) and job.trial != BASELINE:
            proposed = {f.trial for f in self.journal.facts if isinstance(f, TrialProposed)}
            assert job.trial in proposed
        SimulatedFleet.submit(self, job)


def cost(configuration, shape):
    return 100.0 * (1 + shape) * {32: 0.5, 64: 0.8, 128: 2.0}[configuration.as_dict()["B"]]


def run(journal=None, stop_after=None, **options):
    journal = journal or Recorder()
    fleet = Watched(
        device=GPU, baseline_ns=(100.0, 200.0, 300.0), cost=cost, journal=journal, **options
    )
    proposer = make_proposer(
        SearchSettings(strategy="random"), feasible_set(EXPERIMENT, FAMILY, GPU)
    )
    session = Session(EXPERIMENT, compile_slots=fleet.compile_slots, bench_slots=fleet.bench_slots)
    for fact in (*journal.facts, EpochOpened(device=GPU, environment="one")):
        session.apply(fact)
        if isinstance(fact, TrialProposed):
            proposer.record(fact.trial, fact.configuration)
    journal.append(EpochOpened(device=GPU, environment="one"))
    driver = Driver(session=session, fleet=fleet, proposer=proposer, journal=journal, secret=1)

    async def follow():
        pictures: list[Progress] = []
        async for picture in driver.run():
            pictures.append(picture)
            if stop_after is not None and picture.finished >= stop_after[0]:
                driver.stop(stop_after[1])
        return pictures

    return session, journal, asyncio.run(follow()), fleet


def of(journal, kind):
    return [fact for fact in journal.facts if isinstance(fact, kind)]


def test_a_run_ends_with_every_fact_on_disk():
    session, journal, pictures, _ = run()
    assert session.history.finished
    assert journal.synced == len(journal.facts)
    assert isinstance(journal.facts[-1], RunFinished)
    assert session.history.trials[session.history.leader()].configuration.as_dict() == {"B": 32}
    assert next(p.phase for p in pictures) == "baseline"
    assert pictures[-1].phase == "finished"
    assert pictures[-1].speedup == pytest.approx(2.0)


def test_held_out_shapes_are_compiled_for_baseline_and_finalists_only():
    _, _, _, fleet = run()
    cells = [
        {len(candidate.plan.cells) for candidate in job.candidates}
        for job in fleet.submitted
        if isinstance(job, BenchJob)
    ]
    assert cells
    assert set().union(*cells) == {2}


def test_a_lost_worker_costs_a_retry_and_a_broken_candidate_one_trial():
    faults = {0: Fault.LOST_ONCE, 1: Fault.HANG, 2: Fault.COMPILE_ERROR}
    session, journal, _, _ = run(faults=faults)
    finished = of(journal, TrialFinished)
    assert sorted(fact.trial for fact in finished) == [0, 1, 2]
    codes = {f.trial: f.outcome.code for f in finished if isinstance(f.outcome, Rejected)}
    assert codes == {1: Code.HANG, 2: Code.COMPILE_ERROR}
    assert session.history.finished


def test_a_baseline_that_fails_ends_the_run_at_once():
    session, journal, _, _ = run(faults={BASELINE: Fault.WRONG})
    assert of(journal, BaselineRefused)
    assert not of(journal, TrialProposed)
    assert session.history.finished


def test_stopped_confirms_what_it_has_and_interrupted_can_be_resumed():
    stopped, journal, _, _ = run(stop_after=(1, "stopped"))
    assert [fact.reason for fact in of(journal, SearchEnded)] == ["stopped"]
    assert stopped.history.finished
    assert stopped.history.confirmations

    interrupted, journal, _, _ = run(stop_after=(1, "interrupted"))
    assert not interrupted.history.finished
    before = [fact.trial for fact in of(journal, TrialFinished)]
    resumed, journal, _, _ = run(journal)
    assert resumed.history.finished
    after = [fact.trial for fact in of(journal, TrialFinished)]
    assert after[: len(before)] == before
    assert sorted(after) == [0, 1, 2]


def test_equal_code_with_equal_launches_is_measured_once():
    family = template({"B": (32, 64), "DEAD": (0, 1, 2)}, steps=(launch(block=("B",)),))
    problem = replace(
        EXPERIMENT,
        template=family,
        kernel=replace(EXPERIMENT.kernel, language="cuda"),
        search=SearchSettings(trials=6, seconds=1e6),
    )

    class Careless(SimulatedFleet):
        """Its compiler sees neither parameter, like NVRTC one that nothing reads."""

        def _answer(self, at, answer):
            if isinstance(answer, Compiled) and not isinstance(answer.result, Rejected):
                same = tuple(replace(binary, code=b"same") for binary in answer.result)
                answer = replace(answer, result=same)
            SimulatedFleet._answer(self, at, answer)

    fleet = Careless(device=GPU, baseline_ns=(100.0, 200.0, 300.0), cost=cost)
    journal = Recorder()
    session = Session(problem, compile_slots=1, bench_slots=1)
    session.apply(EpochOpened(device=GPU, environment="one"))
    proposer = make_proposer(SearchSettings(strategy="random"), feasible_set(problem, family, GPU))
    driver = Driver(session=session, fleet=fleet, proposer=proposer, journal=journal, secret=1)

    async def follow():
        async for _ in driver.run():
            pass

    asyncio.run(follow())
    trials = session.history.trials.values()
    shared = [trial for trial in trials if trial.same_as is not None]
    assert shared
    for trial in shared:
        other = session.history.trials[trial.same_as]
        assert trial.outcome == other.outcome
        assert trial.configuration.as_dict()["B"] == other.configuration.as_dict()["B"]
        assert other.same_as is None
    measured = {
        t
        for job in fleet.submitted
        if isinstance(job, BenchJob)
        for t in (c.trial for c in job.candidates)
    }
    assert measured == {trial.number for trial in trials if trial.same_as is None}
    assert not {trial.number for trial in shared} & set(session.history.finalists())
