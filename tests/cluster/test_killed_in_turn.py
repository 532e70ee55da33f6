"""One run on a real Ray: its bench, a compile actor, its driver, a raylet and a node are killed."""

import asyncio
import os
import time

import pytest

from cluster.fleets.claim import Share
from cluster.runs.placement import Placement
from tests.cluster.faults import (
    PATIENCE,
    begin,
    check,
    finished,
    finished_count,
    kill,
    note,
    processes,
    recovery,
)
from tuner.errors import RunInterrupted
from tuner.trial import Measured


def kill_actor(kind):
    """Kill an actor of a class, on any node: all of them are below this process."""
    kill(processes(f"ray::{kind}", os.getpid())[0])


class Run:
    """A run on one GPU at a time, followed as the command does."""

    def __init__(self, path, cluster):
        self.path, self.said = path, [""]
        self._cluster = cluster
        self.add_node()
        self.resume()

    def add_node(self):
        self.node = self._cluster.add_node(wait=False, num_cpus=1, num_gpus=1)

    def remove_node(self):
        self._cluster.remove_node(self.node, allow_graceful=False)

    def resume(self):
        self.following = asyncio.create_task(self._follow())

    async def _follow(self):
        from cluster.jobs.ray_driver import RemoteRun

        run = RemoteRun(self.path, Placement(share=Share(wait=True)), gpus=True)
        async for progress in run.progress():
            self.said.append(str(progress))

    async def until(self, holds):
        """Wait for a condition while the run goes on."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end
            assert not self.following.done(), self.said[-1]
            await asyncio.sleep(0.05)

    async def strike(self, row, fault, remedy=None):
        """Kill something while trials are measured, and wait until others are."""
        before, at, seen = finished(self.path), time.time(), len(self.said)
        fault()
        if remedy:
            await remedy()
        while (seconds := recovery(self.path, at)) is None:
            count = finished_count(self.path)
            await self.until(lambda count=count: finished_count(self.path) > count)
        assert finished(self.path)[: len(before)] == before
        note(row, self.path, seconds, self.said[seen:])

    async def resumed(self):
        with pytest.raises(RunInterrupted, match="the driver actor died"):
            await self.following
        self.resume()

    async def another_node(self):
        await self.until(lambda: "waiting for a bench, since none is left" in self.said[-1])
        self.add_node()


@pytest.mark.timeout(900)  # five recoveries, each of which a busy machine makes longer
def test_each_part_of_a_run_is_killed_in_turn_and_no_trial_is_lost_or_repeated(
    ray_cluster, tmp_path
):
    async def all_in_turn():
        run = Run(begin(tmp_path), ray_cluster)
        try:
            await run.until(lambda: finished_count(run.path))
            await run.strike("a bench", lambda: kill_actor("BenchActor"))
            await run.strike("a compile actor", lambda: kill_actor("CompileActor"))
            await run.strike("the driver", lambda: kill_actor("Driver"), run.resumed)
            await run.strike("the only raylet", run.node.kill_raylet, run.another_node)
            await run.strike("the only GPU node", run.remove_node, run.another_node)
            await run.following
        finally:
            run.remove_node()
        return run.path

    path = asyncio.run(all_in_turn())
    check(path)
    outcomes = [fact.outcome for fact in finished(path)]
    assert all(isinstance(one, Measured) for one in outcomes), outcomes
