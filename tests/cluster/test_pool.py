"""A pool keeps every bench busy: all prepare at once, and all work at once."""

import asyncio
from dataclasses import replace

import pytest

from cluster.fleets import pool
from cluster.fleets.pool import PooledFleet
from cluster.fleets.slots import WorkerLost
from tests.tuner.space.devices import cuda_device
from tests.tuner.space.experiments import experiment
from tuner.candidate import BASELINE, Candidate
from tuner.engine.work import BenchSetup, CompileWork, ConfirmWork, MeasureWork, PrepareWork
from tuner.errors import EnvironmentProblem
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Span,
    TrialFinished,
    WorkLost,
)
from tuner.plan import Plan
from tuner.trial import Code, Configuration, Full, Measured, Rejected, Stage

PATIENCE = 10.0
CANDIDATE = Candidate(
    trial=0, configuration=Configuration(()), plan=Plan(builds=(), cells=()), binaries=()
)
SETUP = BenchSetup(
    experiment=experiment({"n": 256}), baseline=replace(CANDIDATE, trial=BASELINE), secret=1
)


class FakeBench:
    """Works on its first candidate only once all of its fellows do, and once it is let ``on``."""

    def __init__(self, name: str, together: asyncio.Barrier, *, prepare_together: bool) -> None:
        self.name = name
        self.node = "here"
        self.closed = False
        self.together = together
        self.prepare_together = prepare_together
        self.baseline: tuple[Full, ...] | Rejected = ()
        self.prepared: list[BenchSetup] = []
        self.did_prepare = asyncio.Event()
        self.up = asyncio.Event()
        self.up.set()
        self.on = asyncio.Event()
        self.on.set()
        self.taken: list[MeasureWork] = []
        self.dead = False

    async def ready(self):
        await self.up.wait()
        return self.name

    async def prepare(self, setup):
        if self.prepare_together:
            await self.together.wait()
        self.prepared.append(setup)
        self.did_prepare.set()
        return BaselinePrepared(result=self.baseline)

    async def measure(self, work):
        self.taken.append(work)
        await self.together.wait()
        await self.on.wait()
        if self.dead:
            raise WorkerLost("died")
        for candidate in work.candidates:
            outcome = Measured(cells=())
            span = Span(worker=self.name, began=0.0, ended=0.1)
            yield TrialFinished(trial=candidate.trial, outcome=outcome, span=span)

    async def confirm(self, work):
        return ConfirmationSampled(work=work.id, process=work.process, samples=())

    async def close(self):
        self.closed = True


def with_benches(count, body, *, prepare_together=True):
    async def opened():
        together = asyncio.Barrier(count)
        benches = [
            FakeBench(f"gpu{number}", together, prepare_together=prepare_together)
            for number in range(count)
        ]
        fleet = PooledFleet(cuda_device(90), [], benches)
        try:
            await asyncio.wait_for(body(fleet, benches), PATIENCE)
        finally:
            await fleet.close()

    asyncio.run(opened())


async def answers(fleet, count):
    found = []
    while len(found) < count:
        found += await fleet.answers(timeout=1.0)
    return found


def works(count, each=2):
    return [
        MeasureWork(
            id=n, candidates=tuple(replace(CANDIDATE, trial=n * each + i) for i in range(each))
        )
        for n in range(count)
    ]


def test_all_benches_prepare_at_once_and_work_at_once():
    async def body(fleet, benches):
        fleet.submit(PrepareWork(setup=SETUP))
        assert await answers(fleet, 1) == [BaselinePrepared(work=0, result=())]
        for work in works(4):
            fleet.submit(work)
        found = await answers(fleet, 8)
        assert {one.span.worker for one in found} == {bench.name for bench in benches}
        assert sorted(one.trial for one in found) == list(range(8))
        assert all(bench.prepared == [SETUP] for bench in benches)

    with_benches(4, body)


async def two_taken(fleet, bench):
    """One bench that has a batch to run and another behind it, of the three that there are."""
    fleet.submit(PrepareWork(setup=SETUP))
    await answers(fleet, 1)
    bench.on.clear()
    for work in works(3):
        fleet.submit(work)
    while len(bench.taken) < 2:
        await asyncio.sleep(0)


def test_a_batch_is_at_the_bench_before_the_one_in_front_is_through():
    async def body(fleet, benches):
        await two_taken(fleet, *benches)
        assert benches[0].taken == works(3)[:2]
        benches[0].on.set()
        assert [one.trial for one in await answers(fleet, 6)] == list(range(6))

    with_benches(1, body)


def test_when_a_bench_dies_the_batch_behind_is_lost_too_and_no_other():
    async def body(fleet, benches):
        (bench,) = benches
        await two_taken(fleet, bench)
        bench.dead = True
        bench.up.clear()
        bench.on.set()
        lost = await answers(fleet, 2)
        assert sorted(one.work for one in lost) == [0, 1]
        assert all(one.worker == bench.name for one in lost)
        assert fleet.benches_lost == "gpu0: died"
        bench.dead = False
        bench.name = "born again"
        bench.up.set()
        assert [one.trial for one in await answers(fleet, 2)] == [4, 5]
        assert fleet.benches_lost is None
        assert bench.prepared == [SETUP, SETUP]

    with_benches(1, body)


def test_a_bench_that_was_born_again_while_idle_prepares_before_it_takes_a_job():
    async def body(fleet, benches):
        (bench,) = benches
        fleet.submit(PrepareWork(setup=SETUP))
        await answers(fleet, 1)
        assert await fleet.answers(timeout=0.01) == ()  # it waits for work
        bench.name = "born again"
        bench.on.clear()
        fleet.submit(works(1)[0])
        while not bench.taken:
            await asyncio.sleep(0)
        assert bench.prepared == [SETUP, SETUP]

    with_benches(1, body)


def test_a_confirmation_waits_for_the_batch_in_front():
    async def body(fleet, benches):
        (bench,) = benches
        fleet.submit(PrepareWork(setup=SETUP))
        await answers(fleet, 1)
        bench.on.clear()
        fleet.submit(works(1)[0])
        fleet.submit(ConfirmWork(process=0, finalists=()))
        while not bench.taken:
            await asyncio.sleep(0)
        assert await fleet.answers(timeout=0.05) == ()
        bench.on.set()
        found = await answers(fleet, 3)
        assert [type(one) for one in found] == [TrialFinished, TrialFinished, ConfirmationSampled]

    with_benches(1, body)


def test_what_is_prepared_anew_is_prepared_anew_on_every_bench():
    async def body(fleet, benches):
        other = replace(SETUP, secret=2)
        for setup in (SETUP, other):
            fleet.submit(PrepareWork(setup=setup))
            await answers(fleet, 1)
            for work in works(2):
                fleet.submit(work)
            await answers(fleet, 4)
        assert all(bench.prepared == [SETUP, other] for bench in benches)

    with_benches(2, body)


def test_a_bench_that_comes_up_late_prepares_before_it_takes_a_job():
    async def body(fleet, benches):
        early, late = benches
        late.up.clear()
        fleet.submit(PrepareWork(setup=SETUP))
        assert await answers(fleet, 1) == [BaselinePrepared(work=0, result=())]
        late.up.set()
        await late.did_prepare.wait()
        assert early.prepared == late.prepared == [SETUP]
        early.together = late.together = asyncio.Barrier(1)
        late.on.clear()
        for work in works(2):
            fleet.submit(work)
        assert {one.span.worker for one in await answers(fleet, 2)} == {early.name}
        late.on.set()
        assert {one.span.worker for one in await answers(fleet, 2)} == {late.name}

    with_benches(2, body, prepare_together=False)


def test_a_baseline_that_fails_on_the_first_bench_is_answered_once():
    async def body(fleet, benches):
        refused = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="wrong")
        for bench in benches:
            bench.baseline = refused
        fleet.submit(PrepareWork(setup=SETUP))
        assert await answers(fleet, 1) == [BaselinePrepared(work=0, result=refused)]
        (work,) = works(1)
        fleet.submit(work)
        (lost,) = await answers(fleet, 1)
        assert lost.trials == work.trials
        assert lost.reason == "the baseline failed on this bench: wrong"

    with_benches(2, body)


def alone(name):
    return FakeBench(name, asyncio.Barrier(1), prepare_together=False)


async def told(fleet, kind):
    """The names of the first benches of which that is told."""
    while not (found := [one for one in fleet.bench_changes() if one.kind == kind]):
        await asyncio.sleep(0)
    return [(one.bench, one.benches) for one in found]


def test_a_bench_that_is_added_prepares_and_takes_work():
    async def body(fleet, benches):
        (first,) = benches
        fleet.submit(PrepareWork(setup=SETUP))
        await answers(fleet, 1)
        assert await told(fleet, "bench.joined") == [("gpu0", 1)]
        first.on.clear()
        fleet.add_bench(second := alone("gpu1"))
        assert await told(fleet, "bench.joined") == [("gpu1", 2)]
        assert second.prepared == [SETUP]
        for work in works(3):
            fleet.submit(work)
        found = await answers(fleet, 2)
        assert {one.span.worker for one in found} == {"gpu1"}
        first.on.set()
        await answers(fleet, 4)

    with_benches(1, body)


def test_a_retired_bench_finishes_what_it_has_and_gets_no_more():
    async def body(fleet, benches):
        (first,) = benches
        await two_taken(fleet, first)
        fleet.retire(first, "its node is drained")
        fleet.retire(first, "once more")
        first.on.set()
        found = await answers(fleet, 4)
        assert sorted(one.trial for one in found) == [0, 1, 2, 3]
        assert await told(fleet, "bench.lost") == [("gpu0", 0)]
        assert fleet.benches_lost == "gpu0: its node is drained"
        while not first.closed:
            await asyncio.sleep(0)
        assert (first.taken, fleet.bench_slots) == (works(3)[:2], 0)
        fleet.add_bench(alone("gpu1"))
        assert [one.trial for one in await answers(fleet, 2)] == [4, 5]
        assert fleet.benches_lost is None

    with_benches(1, body)


def test_a_retired_bench_that_is_dead_or_idle_is_closed_at_once():
    async def body(fleet, benches):
        dead, idle = benches
        fleet.submit(PrepareWork(setup=SETUP))
        await answers(fleet, 1)
        dead.up.clear()
        for bench in benches:
            fleet.retire(bench, "drained")
        while not (dead.closed and idle.closed):
            await asyncio.sleep(0)

    with_benches(2, body)


def test_a_bench_that_cannot_go_on_is_closed_and_the_others_work():
    async def body(fleet, benches):
        first, other = benches
        fleet.submit(PrepareWork(setup=SETUP))
        await answers(fleet, 1)

        async def broken():
            raise EnvironmentProblem("no driver")

        other.ready = broken
        first.together = asyncio.Barrier(1)
        for work in works(3):
            fleet.submit(work)
        lost, found = [], []
        while len(found) < 4:
            for one in await answers(fleet, 1):
                (lost if isinstance(one, WorkLost) else found).append(one)
        assert [one.reason for one in lost] == ["no driver"]
        assert {one.span.worker for one in found} == {"gpu0"}
        assert await told(fleet, "bench.lost") == [("gpu1", 1)]
        assert (other.closed, fleet.bench_slots) == (True, 1)
        assert fleet.benches_missing == "1 bench lost (on here: no driver)"

    with_benches(2, body)


def test_a_bench_that_fails_again_before_it_is_back_was_lost_once(monkeypatch):
    monkeypatch.setattr(pool, "RESTART_POLL_SECONDS", 0.0)

    async def body(fleet, benches):
        (bench,) = benches
        fleet.submit(PrepareWork(setup=SETUP))
        await answers(fleet, 1)
        assert await told(fleet, "bench.joined") == [("gpu0", 1)]
        reasons = iter(["no room", "no node"])

        async def again():
            if reason := next(reasons, None):
                raise WorkerLost(reason)
            return "another process"

        bench.ready, bench.dead = again, True
        fleet.submit(works(1)[0])
        await answers(fleet, 1)
        changes = []
        while not (changes and changes[-1].kind == "bench.joined"):
            changes += fleet.bench_changes()
            await asyncio.sleep(0)
        assert [one.kind for one in changes] == ["bench.lost", "bench.joined"]

    with_benches(1, body)


def test_what_fails_beside_a_worker_ends_the_run():
    async def body(fleet, benches):
        (bench,) = benches

        async def fails():
            raise RuntimeError("cannot close")

        bench.close = fails
        fleet.retire(bench, "drained")
        with pytest.raises(RuntimeError, match="cannot close"):
            await answers(fleet, 1)

    with_benches(1, body)


def test_a_bench_on_which_alone_the_baseline_fails_takes_no_work():
    async def body(fleet, benches):
        (first,) = benches
        fleet.submit(PrepareWork(setup=SETUP))
        await answers(fleet, 1)
        bad = alone("gpu1")
        bad.baseline = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="wrong")
        first.on.clear()
        fleet.add_bench(bad)
        for work in works(3):
            fleet.submit(work)
        while not bad.closed:
            await asyncio.sleep(0)
        first.on.set()
        assert {one.span.worker for one in await answers(fleet, 6)} == {"gpu0"}
        assert fleet.benches_missing.endswith("the baseline fails on this bench alone: wrong)")

    with_benches(1, body)


def test_a_lost_compiler_is_named_in_the_log_with_the_reason(caplog):
    class Dying:
        name = "here/compiler0"

        async def ready(self):
            pass

        async def compile(self, builds):
            raise WorkerLost("killed by SIGKILL")

        async def close(self):
            pass

    async def body(fleet, _):
        fleet.add_compiler(Dying())
        fleet.submit(
            CompileWork(id=1, trial=0, configuration=Configuration(()), plan=CANDIDATE.plan)
        )
        (lost,) = await answers(fleet, 1)
        assert (lost.worker, lost.reason) == ("here/compiler0", "killed by SIGKILL")

    with_benches(1, body)
    assert "lost the compiler here/compiler0: killed by SIGKILL" in caplog.text
