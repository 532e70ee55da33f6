"""A pool keeps every bench busy: all prepare at once, and all work at once."""

import asyncio
from dataclasses import replace

from cluster.fleets.pool import PooledFleet, WorkerLost
from tests.tuner.space.devices import cuda_device
from tests.tuner.space.experiments import experiment
from tuner.engine.fleet import (
    BASELINE,
    Benched,
    BenchJob,
    BenchSetup,
    Candidate,
    Confirmed,
    ConfirmJob,
    Lost,
    Prepared,
    PrepareJob,
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
        self.together = together
        self.prepare_together = prepare_together
        self.baseline: tuple[Full, ...] | Rejected = ()
        self.prepared: list[BenchSetup] = []
        self.did_prepare = asyncio.Event()
        self.up = asyncio.Event()
        self.up.set()
        self.on = asyncio.Event()
        self.on.set()
        self.taken: list[BenchJob] = []
        self.dead = False

    async def ready(self):
        await self.up.wait()
        return self.name

    async def prepare(self, setup):
        if self.prepare_together:
            await self.together.wait()
        self.prepared.append(setup)
        self.did_prepare.set()
        return Prepared(result=self.baseline)

    async def run(self, job):
        self.taken.append(job)
        await self.together.wait()
        await self.on.wait()
        if self.dead:
            raise WorkerLost("died")
        for candidate in job.candidates:
            outcome = Measured(cells=())
            yield Benched(trial=candidate.trial, outcome=outcome, bench=self.name, seconds=0.1)

    async def confirm(self, job):
        return Confirmed(process=job.process, samples=())

    async def close(self):
        pass


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


def jobs(count, each=2):
    return [
        BenchJob(candidates=tuple(replace(CANDIDATE, trial=n * each + i) for i in range(each)))
        for n in range(count)
    ]


def test_all_benches_prepare_at_once_and_work_at_once():
    async def body(fleet, benches):
        fleet.submit(PrepareJob(setup=SETUP))
        assert await answers(fleet, 1) == [Prepared(result=())]
        for job in jobs(4):
            fleet.submit(job)
        found = await answers(fleet, 8)
        assert {one.bench for one in found} == {bench.name for bench in benches}
        assert sorted(one.trial for one in found) == list(range(8))
        assert all(bench.prepared == [SETUP] for bench in benches)

    with_benches(4, body)


async def two_taken(fleet, bench):
    """One bench that has a batch to run and another behind it, of the three that there are."""
    fleet.submit(PrepareJob(setup=SETUP))
    await answers(fleet, 1)
    bench.on.clear()
    for job in jobs(3):
        fleet.submit(job)
    while len(bench.taken) < 2:
        await asyncio.sleep(0)


def test_a_batch_is_at_the_bench_before_the_one_in_front_is_through():
    async def body(fleet, benches):
        await two_taken(fleet, *benches)
        assert benches[0].taken == jobs(3)[:2]
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
        assert sorted((one.job for one in lost), key=jobs(3).index) == jobs(3)[:2]
        bench.dead = False
        bench.name = "born again"
        bench.up.set()
        assert [one.trial for one in await answers(fleet, 2)] == [4, 5]
        assert bench.prepared == [SETUP, SETUP]

    with_benches(1, body)


def test_a_bench_that_was_born_again_while_idle_prepares_before_it_takes_a_job():
    async def body(fleet, benches):
        (bench,) = benches
        fleet.submit(PrepareJob(setup=SETUP))
        await answers(fleet, 1)
        assert await fleet.answers(timeout=0.01) == ()  # it waits for a job
        bench.name = "born again"
        bench.on.clear()
        fleet.submit(jobs(1)[0])
        while not bench.taken:
            await asyncio.sleep(0)
        assert bench.prepared == [SETUP, SETUP]

    with_benches(1, body)


def test_a_confirmation_waits_for_the_batch_in_front():
    async def body(fleet, benches):
        (bench,) = benches
        fleet.submit(PrepareJob(setup=SETUP))
        await answers(fleet, 1)
        bench.on.clear()
        fleet.submit(jobs(1)[0])
        fleet.submit(ConfirmJob(process=0, finalists=()))
        while not bench.taken:
            await asyncio.sleep(0)
        assert await fleet.answers(timeout=0.05) == ()
        bench.on.set()
        found = await answers(fleet, 3)
        assert [type(one) for one in found] == [Benched, Benched, Confirmed]

    with_benches(1, body)


def test_what_is_prepared_anew_is_prepared_anew_on_every_bench():
    async def body(fleet, benches):
        other = replace(SETUP, secret=2)
        for setup in (SETUP, other):
            fleet.submit(PrepareJob(setup=setup))
            await answers(fleet, 1)
            for job in jobs(2):
                fleet.submit(job)
            await answers(fleet, 4)
        assert all(bench.prepared == [SETUP, other] for bench in benches)

    with_benches(2, body)


def test_a_bench_that_comes_up_late_prepares_before_it_takes_a_job():
    async def body(fleet, benches):
        early, late = benches
        late.up.clear()
        fleet.submit(PrepareJob(setup=SETUP))
        assert await answers(fleet, 1) == [Prepared(result=())]
        late.up.set()
        await late.did_prepare.wait()
        assert early.prepared == late.prepared == [SETUP]
        for job in jobs(2):
            fleet.submit(job)
        assert {one.bench for one in await answers(fleet, 4)} == {early.name, late.name}

    with_benches(2, body, prepare_together=False)


def test_a_baseline_that_fails_on_the_first_bench_is_answered_once():
    async def body(fleet, benches):
        refused = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="wrong")
        for bench in benches:
            bench.baseline = refused
        fleet.submit(PrepareJob(setup=SETUP))
        assert await answers(fleet, 1) == [Prepared(result=refused)]
        (job,) = jobs(1)
        fleet.submit(job)
        (lost,) = await answers(fleet, 1)
        assert lost == Lost(job=job, reason="the baseline failed on this bench: wrong")

    with_benches(2, body)
