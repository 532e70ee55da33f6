"""The fleet of a Ray cluster: bench actors that hold the devices, compile actors on any node.

Must run inside a process that Ray knows, in its event loop. Owns which actors a fleet has, and
where they are placed. Knows nothing of how Ray was started.
"""

import asyncio
import os
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.fleets.actors import ActorBench, ActorCompiler, CompileActor, OwnedActor
from cluster.fleets.claim import Claim
from cluster.fleets.elastic import ElasticFleet
from cluster.fleets.gpus import NODE, placed, take_gpus
from cluster.fleets.head_calls import ask_head
from cluster.fleets.local import choose, compile_slots
from cluster.fleets.pool import PooledFleet
from tuner.backends.registry import traits_of
from tuner.device import Backend
from tuner.errors import KernelwrightError
from workers.devices.discover import list_devices


async def open_ray_fleet(
    backend: Backend,
    wanted: str | None = None,
    *,
    gpus: bool | None = None,
    cache: Path | None = None,
    claim: Claim | None = None,
) -> PooledFleet:
    """A fleet over the cluster's free devices of one model.

    Args:
        backend: whose devices.
        wanted: part of a device's name, or the index of a device of this node that is not one of
            Ray's GPUs; any device by default.
        gpus: whether a bench takes one of Ray's GPUs, on whatever node, or a device of this node
            that Ray does not count; by default whether the backend has GPUs only.
        cache: the folder where compiled binaries are kept from run to run, on each node or shared.
        claim: how many devices, and whether to wait for GPUs; by default all that are free.

    Raises:
        EnvironmentProblem: no device, or none that is free.
    """
    claim = claim or Claim()
    if traits_of(backend).gpu_only if gpus is None else gpus:
        return await _over_gpus(backend, wanted, cache, claim)
    found = await asyncio.to_thread(list_devices, (backend,))
    device, indices = choose(found, backend, wanted)
    indices = claim.share.limited(indices)
    here = ray.get_runtime_context().get_node_id()
    # One actor compiles on the benches' own node, and takes none of Ray's slots: on a CPU device,
    # where compiling and timing take turns, the bench's slot stands for both, so one free CPU is
    # enough. It starts beside the benches.
    slots = compile_slots(device, processors=len(os.sched_getaffinity(0)), benches=len(indices))
    beside = {
        "num_cpus": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False),
        "max_concurrency": slots + 1,
    }
    actor = await ask_head(lambda: OwnedActor(CompileActor, beside, device, cache, slots))
    compilers = [ActorCompiler(actor, number) for number in range(slots)]
    try:
        asked = await ask_head(
            lambda: [ActorBench(backend, index, {"CPU": 1}, {NODE: here}) for index in indices]
        )
        benches, _ = await placed(asked)
    except KernelwrightError:
        await actor.release()
        raise
    return PooledFleet(device, compilers, benches)


async def _over_gpus(
    backend: Backend, wanted: str | None, cache: Path | None, claim: Claim
) -> PooledFleet:
    taken = await take_gpus(backend, wanted, claim)
    fleet = ElasticFleet(taken, claim.share, cache)
    for bench, problem in taken.refused.items():
        fleet.refuse(bench, problem)
    return fleet
