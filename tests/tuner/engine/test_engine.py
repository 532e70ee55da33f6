"""The engine over a simulated fleet: facts before work, answers fed back, ends of every kind."""

import asyncio
import threading
from dataclasses import dataclass, field, replace

import pytest

from tests.tuner.engine.simulated_fleet import Durations, Fault, SimulatedFleet
from tests.tuner.space.devices import cuda_device
from tests.tuner.space.experiments import experiment, launch, template
from tuner.candidate import BASELINE
from tuner.engine.candidates import Candidates
from tuner.engine.engine import Engine
from tuner.engine.progress import RunProgress
from tuner.engine.session import Session
from tuner.engine.work import CompileWork, ConfirmWork, MeasureWork, PrepareWork, Work
from tuner.experiment.model import ConfirmSettings, SearchSettings, ShapeBinding
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Entry,
    EpochOpened,
    Fact,
    RunFinished,
    SearchEnded,
    TrialCompiled,
    TrialFinished,
    TrialProposed,
    WorkBegan,
    WorkLost,
)
from tuner.journal.history import History
from tuner.results.summary import winners
from tuner.search.select import make_proposer
from tuner.space.feasible import feasible_set
from tuner.trial import Code, Configuration, Rejected

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

    entries: list[Entry] = field(default_factory=list)
    synced: int = 0

    @property
    def facts(self) -> list[Fact]:
        return [entry.fact for entry in self.entries]

    def append(self, *entries: Entry) -> None:
        self.entries += entries

    def sync(self) -> None:
        self.synced = len(self.entries)


@dataclass(slots=True, kw_only=True)
class Watched(SimulatedFleet):
    """Checks that what announces work is on disk when the work is sent."""

    journal: Recorder

    def submit(self, work: Work) -> None:
        facts = self.journal.facts
        assert self.journal.synced == len(facts)
        if isinstance(work, CompileWork) and work.trial != BASELINE:
            assert work.trial in {f.trial for f in facts if isinstance(f, TrialProposed)}
        if not isinstance(work, CompileWork | MeasureWork):
            assert work.id in {f.work for f in facts if isinstance(f, WorkBegan)}
        SimulatedFleet.submit(self, work)


def cost(configuration, shape):
    return 100.0 * (1 + shape) * {32: 0.5, 64: 0.8, 128: 2.0}[configuration.as_dict()["B"]]


def engine_over(fleet):
    async def opener():
        return fleet

    return Engine(opener, clock=fleet.now, wall=fleet.now)


def begin(engine, journal, problem):
    """A session and a proposer that go on from a journal, in a new epoch."""
    history = History.of(problem, journal.entries)
    proposer = make_proposer(
        SearchSettings(strategy="random"), feasible_set(problem, problem.template, GPU)
    )
    for trial in history.trials.values():
        proposer.record(trial.number, trial.configuration)
    history.apply(engine.append(journal, EpochOpened(device=GPU, environment="one")))
    return Session(history, secret=1), proposer


def run(journal=None, stop_after=None, problem=EXPERIMENT, fleet=None, **options):
    journal = journal or Recorder()
    fleet = fleet or Watched(
        device=GPU, baseline_ns=(100.0, 200.0, 300.0), cost=cost, journal=journal, **options
    )
    engine = engine_over(fleet)
    session, proposer = begin(engine, journal, problem)

    async def follow():
        pictures: list[RunProgress] = []
        async for t in engine.drive(session, journal, proposer):
            pictures.append(RunProgress.of(session, t))
            if stop_after is not None and pictures[-1].finished >= stop_after[0]:
                session.stop(stop_after[1])
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
        {len(candidate.plan.cells) for candidate in work.candidates}
        for work in fleet.submitted
        if isinstance(work, MeasureWork)
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
    (prepared,) = of(journal, BaselinePrepared)
    assert isinstance(prepared.result, Rejected)
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

        async def answers(self, timeout):
            return tuple(
                replace(one, binaries=tuple(replace(b, code=b"same") for b in one.binaries))
                if isinstance(one, TrialCompiled)
                else one
                for one in await super().answers(timeout)
            )

    fleet = Careless(device=GPU, baseline_ns=(100.0, 200.0, 300.0), cost=cost)
    session, _, _, _ = run(problem=problem, fleet=fleet)
    trials = session.history.trials.values()
    shared = [trial for trial in trials if trial.same_as is not None]
    assert shared
    for trial in shared:
        other = session.history.trials[trial.same_as]
        assert trial.outcome == other.outcome
        assert trial.configuration.as_dict()["B"] == other.configuration.as_dict()["B"]
        assert other.same_as is None
    measured = {t for work in fleet.submitted if isinstance(work, MeasureWork) for t in work.trials}
    assert measured == {trial.number for trial in trials if trial.same_as is None}
    assert not {trial.number for trial in shared} & set(session.history.finalists())


def test_every_entry_has_its_time_and_long_work_begin_and_end():
    _, journal, _, _ = run()
    times = [entry.t for entry in journal.entries]
    assert times == sorted(times)
    began = {fact.work: fact.task for fact in of(journal, WorkBegan)}
    assert sorted(began.values()) == [*["confirm"] * 6, "examine", "prepare"]
    ended = {fact.work: fact.span for fact in journal.facts if getattr(fact, "span", None)}
    for work in began:
        assert ended[work].ended > ended[work].began


def test_a_lost_worker_is_journalled_with_reason_and_attempt():
    _, journal, _, _ = run(faults={1: Fault.LOST})
    lost = of(journal, WorkLost)
    assert [(fact.task, fact.trials[0], fact.attempt, fact.final) for fact in lost] == [
        ("measure", 1, 1, False),
        ("measure", 1, 2, False),
        ("measure", 1, 3, True),
    ]
    assert {fact.reason for fact in lost} == {"simulated"}
    assert len({fact.work for fact in lost}) == 3, "each attempt is a work of its own"


def test_a_finalist_is_given_the_extra_checks_once_in_a_run_also_after_a_resume():
    journal = Recorder()
    session, journal, _, fleet = run(journal)
    whole = [work.extra_checks for work in fleet.submitted if isinstance(work, ConfirmWork)]
    assert whole == [session.history.finalists(), (), (), winners(session.history), (), ()]
    first = next(n for n, f in enumerate(journal.facts) if isinstance(f, ConfirmationSampled))
    cut = Recorder(journal.entries[: first + 1])
    _, _, _, fleet = run(cut)
    resumed = [work.extra_checks for work in fleet.submitted if isinstance(work, ConfirmWork)]
    assert resumed == [(), (), winners(session.history), (), ()]


def test_what_one_client_left_behind_never_reaches_the_next():
    fleet = SimulatedFleet(
        device=GPU,
        baseline_ns=(100.0, 200.0, 300.0),
        cost=cost,
        compile_slots=4,  # so that several answers come at once
        durations=Durations(compile=3.0),
    )
    engine, journal, other = engine_over(fleet), Recorder(), Recorder()

    async def go():
        session, proposer = begin(engine, journal, EXPERIMENT)
        async for _ in engine.drive(session, journal, proposer):
            if len(fleet.submitted) > 3:
                session.stop("interrupted")
        candidates = Candidates(EXPERIMENT, GPU)
        work = candidates.begin(BASELINE, None, Configuration(()), EXPERIMENT.shapes.tune)
        return await engine.results(other, [work])

    (result,) = asyncio.run(asyncio.wait_for(go(), 60.0))
    assert isinstance(result, TrialCompiled)
    assert result.trial == BASELINE
    assert other.facts == [result]


def test_a_preparation_of_the_same_kernel_is_reused_and_says_so():
    fleet = SimulatedFleet(device=GPU, baseline_ns=(100.0, 200.0, 300.0), cost=cost)
    engine, first, second = engine_over(fleet), Recorder(), Recorder()

    async def go():
        for journal in (first, second):
            session, proposer = begin(engine, journal, EXPERIMENT)
            async for _ in engine.drive(session, journal, proposer):
                pass

    asyncio.run(go())
    assert sum(isinstance(work, PrepareWork) for work in fleet.submitted) == 1
    (measured,), (reused,) = of(first, BaselinePrepared), of(second, BaselinePrepared)
    assert measured.span is not None
    assert reused.span is None
    assert reused.result == measured.result
    assert [fact.task for fact in of(second, WorkBegan)].count("prepare") == 0


MANY = replace(
    EXPERIMENT,
    template=template({"B": (32, 64, 128), "U": tuple(range(20))}, steps=(launch(block=("B",)),)),
    search=SearchSettings(trials=40, seconds=1e6),
)


@dataclass
class Signalling(Recorder):
    """Says once five trials have finished."""

    five: threading.Event = field(default_factory=threading.Event)

    def append(self, *entries: Entry) -> None:
        Recorder.append(self, *entries)
        if len(of(self, TrialFinished)) >= 5:
            self.five.set()


class RealTime(Watched):
    """Its clock goes on while a search computes."""

    real_time = True


@pytest.mark.parametrize("stop", [None, "stopped"])
def test_answers_are_taken_while_the_search_is_asked(stop):
    journal = Signalling()
    fleet = RealTime(
        device=GPU, baseline_ns=(100.0, 200.0, 300.0), cost=cost, journal=journal, bench_slots=2
    )
    engine = engine_over(fleet)
    session, proposer = begin(engine, journal, MANY)

    class Slow:
        tell = proposer.tell

        def ask(self, trial):
            if of(journal, TrialFinished):
                assert journal.five.wait(60)
                if stop:
                    session.stop(stop)
            return proposer.ask(trial)

    async def follow():
        async for _ in engine.drive(session, journal, Slow()):
            pass

    asyncio.run(follow())
    assert session.history.finished
    assert journal.five.is_set()
    proposed = [fact.trial for fact in of(journal, TrialProposed)]
    assert proposed == list(range(len(proposed)))
    assert (len(proposed) == 40) == (stop is None)
    ended = journal.facts.index(of(journal, SearchEnded)[0])
    assert not any(isinstance(fact, TrialProposed) for fact in journal.facts[ended:])
