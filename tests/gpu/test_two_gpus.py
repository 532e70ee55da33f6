"""A run over two GPUs of this machine: one kernel hangs, and one bench is killed."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest

import kernelwright
from tests.cluster.faults import finished, kill, processes
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView
from tuner.trial import Code, Measured, Rejected

pytestmark = pytest.mark.gpu

SPEC = Path(__file__).parent / "data" / "faults" / "two_gpus.yaml"
PATIENCE = 100.0
AT_WORK = 20
"""Trials after which a GPU counts as one that works."""


def hung(fact):
    return isinstance(fact.outcome, Rejected) and fact.outcome.code is Code.HANG


def per_gpu(run, since=0.0):
    """How many trials each GPU began since a moment, and finished."""
    spans = [fact.span for fact in finished(run) if fact.span is not None]
    return Counter(span.worker for span in spans if span.began > since)


def both_work(run, since=0.0):
    counts = per_gpu(run, since).values()
    return len(counts) == 2 and min(counts) >= AT_WORK


@pytest.mark.timeout(200)
def test_a_kernel_hangs_and_a_bench_is_killed_and_both_gpus_work_again(tmp_path, ray_here):
    from cluster.jobs.ray_driver import RemoteRun

    if ray_here.cluster_resources().get("GPU", 0) < 2:
        pytest.skip("there is one GPU")
    run = tmp_path / "run"
    RunDirectory.create(run, load_experiment(SPEC), SPEC.read_text()).close()

    async def strike():
        remote = RemoteRun(run)

        async def follow():
            async for _ in remote.progress():
                pass

        async def until(holds):
            end = time.monotonic() + PATIENCE
            while not holds():
                assert time.monotonic() < end, per_gpu(run)
                assert not following.done(), following.result()
                await asyncio.sleep(0.25)

        following = asyncio.create_task(follow())
        await until(lambda: both_work(run) and any(map(hung, finished(run))))
        before, at = finished(run), time.time()
        kill(processes("ray::BenchActor", os.getpid())[0])
        await until(lambda: both_work(run, at))
        back = time.time() - at
        remote.stop("stopped")
        await following
        return before, at, back

    before, at, back = asyncio.run(strike())
    facts, trials = RunView.open(run).facts(), finished(run)
    result = kernelwright.load(run)
    print(f"{len(before)} trials before the kill, each GPU at work {back:.1f} s after it")
    print(f"after it: {per_gpu(run, at)}; {result.speedup}; {result.best}")
    assert trials[: len(before)] == before
    assert len({fact.trial for fact in trials}) == len(trials)
    assert sum(map(hung, trials)) == 1
    assert all(isinstance(fact.outcome, Measured) for fact in trials if not hung(fact))
    assert [fact.kind for fact in facts].count("bench.lost") == 1
    assert facts[-1].kind == "run.finished"
    assert result.best["FAULT"] == "none"
    assert result.speedup.verdict != "unconfirmed"
