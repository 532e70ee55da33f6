"""Nodes join and leave a real Ray cluster while a run works; they are processes of this host."""

import asyncio
import os
import time

import pytest

from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tests.cluster import faults
from tests.cluster.conftest import drain
from tests.cluster.kernels import SPEC
from tests.cluster.test_ray_driver import begin, facts
from tuner.errors import Preempted
from tuner.trial import Measured

PATIENCE = 120


async def until(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("fault_time")
def test_a_node_that_joins_is_used_one_without_a_driver_named_and_a_drained_one_left(
    tmp_path, two_gpus
):
    from cluster.fleets.ray import open_ray_fleet

    run = faults.begin(tmp_path)
    fleets, nodes = [], []

    async def opener(backend):
        fleets.append(await open_ray_fleet(backend, gpus=True))
        return fleets[0]

    def add(**options):
        node = two_gpus.add_node(wait=False, num_gpus=1, **options)
        nodes.append(node)
        return node

    async def noted(row, benches, since):
        await until(lambda: fleets[0].bench_slots == benches)
        faults.note(row, run, time.monotonic() - since, ())

    async def follow():
        joined = drained = None
        async for progress in SearchRun(RunProcess(run, opener)).progress():
            if progress.finished and not joined:
                since = time.monotonic()
                joined = add(num_cpus=2)
                await noted("nothing; a node is added", 3, since)
            elif progress.finished >= faults.TRIALS // 2 and not drained:
                since, drained = time.monotonic(), joined.node_id
                drain(two_gpus, drained)
                await noted("a GPU node is drained", 2, since)

    try:
        add(num_cpus=1, env_vars={"OCL_ICD_VENDORS": "/nonexistent"})
        two_gpus.wait_for_nodes(timeout=PATIENCE)
        asyncio.run(follow())
    finally:
        for node in nodes:
            two_gpus.remove_node(node)
    assert all(isinstance(fact.outcome, Measured) for fact in faults.finished(run))
    faults.check(run)
    lost = facts(run, "bench.lost")
    assert all(fact.node == os.uname().nodename for fact in lost)
    no_driver, drained = (fact.reason for fact in lost)
    assert no_driver.startswith("no OpenCL device")
    assert drained == "its node is being drained"
    assert not facts(run, "work.lost")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_run_whose_own_node_is_drained_is_left_in_order(tmp_path, monkeypatch):
    import ray

    from cluster.jobs import ray_driver

    run = begin(tmp_path, SPEC)
    told = set()
    monkeypatch.setattr(ray_driver, "draining_nodes", lambda: told)

    async def follow():
        async for _ in ray_driver.RemoteRun(run).progress():
            told.add(ray.get_runtime_context().get_node_id())

    with pytest.raises(Preempted, match="is being drained"):
        asyncio.run(follow())
    assert not facts(run, "run.finished")


@pytest.mark.slow
def test_a_gpu_that_others_give_back_for_good_is_taken(two_gpus, monkeypatch):
    import ray

    from cluster.fleets import elastic
    from cluster.fleets.ray import open_ray_fleet

    class Other:
        def here(self):
            return True

    def hold():
        other = ray.remote(num_gpus=1, num_cpus=0)(Other).remote()
        ray.get(other.here.remote(), timeout=PATIENCE)
        return other

    async def follow():
        other = hold()
        fleet = await open_ray_fleet("opencl", gpus=True)
        slots = [fleet.bench_slots]
        ray.kill(other)
        await until(lambda: fleet.bench_slots == 2)
        lost, _ = fleet.bench_changes(), await fleet.close()
        return slots, lost

    monkeypatch.setattr(elastic, "FREED_SECONDS", 0.0)
    assert asyncio.run(follow()) == ([1], ())
