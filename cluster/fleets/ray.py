"""The fleet of a Ray cluster: bench actors that hold the devices, compile actors on any node.

Must run inside a process that Ray knows, in its event loop. Owns which actors a fleet has, and
where they are placed. Knows nothing of how Ray was started.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.fleets.actors import (
    PLACEMENT_SECONDS,
    ActorBench,
    ActorCompiler,
    CompileActor,
    OwnedActor,
)
from cluster.fleets.local import choose, compile_slots, target_remedy
from cluster.fleets.pool import PooledFleet
from tuner.backends.registry import traits_of
from tuner.device import Backend, Device
from tuner.errors import EnvironmentProblem, KernelwrightError
from workers.devices.discover import list_devices

STRAGGLER_SECONDS = 15.0
"""How long further benches may take after the first."""


async def open_ray_fleet(
    backend: Backend,
    wanted: str | None = None,
    *,
    gpus: bool | None = None,
    cache: Path | None = None,
) -> PooledFleet:
    """A fleet over the cluster's free devices of one model.

    Args:
        backend: whose devices.
        wanted: part of a device's name, or the index of a device of this node that is not one of
            Ray's GPUs; any device by default.
        gpus: whether a bench takes one of Ray's GPUs, on whatever node, or a device of this node
            that Ray does not count; by default whether the backend has GPUs only.
        cache: the folder where compiled binaries are kept from run to run, on each node or shared.

    Raises:
        EnvironmentProblem: no device, or none that is free.
    """
    if traits_of(backend).gpu_only if gpus is None else gpus:
        return await _over_gpus(backend, wanted, cache)
    found = await asyncio.to_thread(list_devices, (backend,))
    device, indices = choose(found, backend, wanted)
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
    actor = OwnedActor(CompileActor, beside, device, cache, slots)
    compilers = [ActorCompiler(actor, number) for number in range(slots)]
    try:
        benches = await _placed(
            [ActorBench(backend, index, {"CPU": 1}, node=here) for index in indices]
        )
    except KernelwrightError:
        await actor.release()
        raise
    return PooledFleet(device, compilers, benches)


async def _over_gpus(backend: Backend, wanted: str | None, cache: Path | None) -> PooledFleet:
    resources = ray.cluster_resources()
    gpus, processors = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
    if not gpus:
        raise EnvironmentProblem(f"no node of the Ray cluster has a GPU{target_remedy(backend)}")
    # One core for each bench, unless there are too few.
    room = {"GPU": 1, "CPU": 1} if processors >= gpus else {"GPU": 1}
    # Ray shows each actor its own GPU alone, so the index is always 0.
    placed = await _placed([ActorBench(backend, 0, room) for _ in range(gpus)])
    models: dict[str, list[tuple[ActorBench, Device]]] = defaultdict(list)
    for bench in placed:
        device = await bench.device()
        models[device.model].append((bench, device))
    fitting = {
        model: held
        for model, held in models.items()
        if wanted is None or wanted.lower() in held[0][1].name.lower()
    }
    if not fitting:
        there = ", ".join(f"{len(held)} × {held[0][1].name}" for held in models.values())
        raise EnvironmentProblem(f"no GPU of the cluster fits {wanted!r}; there are: {there}")
    chosen = max(fitting, key=lambda model: len(fitting[model]))
    await asyncio.gather(
        *(bench.close() for model, held in models.items() if model != chosen for bench, _ in held)
    )
    benches, (_, device) = [bench for bench, _ in fitting[chosen]], fitting[chosen][0]
    slots = compile_slots(device, processors=processors, benches=gpus)
    # The first shares a bench's core, so that compiling goes on where others hold all the rest.
    beside = {"num_cpus": 0, "scheduling_strategy": benches[0].placement}
    spread = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
    compilers = [
        ActorCompiler(
            OwnedActor(CompileActor, spread if number else beside, device, cache), number, process=0
        )
        for number in range(slots)
    ]
    return PooledFleet(device, compilers, benches)


async def _placed(benches: Sequence[ActorBench]) -> list[ActorBench]:
    """The benches that found room; the others are given up."""
    births = {asyncio.create_task(bench.ready()): bench for bench in benches}
    done, waiting = await asyncio.wait(
        births, timeout=PLACEMENT_SECONDS, return_when=asyncio.FIRST_COMPLETED
    )
    if done and waiting:
        more, waiting = await asyncio.wait(waiting, timeout=STRAGGLER_SECONDS)
        done |= more
    for task in waiting:
        task.cancel()
    await asyncio.gather(*(births[task].close() for task in waiting))
    if not done:
        raise EnvironmentProblem(
            f"the Ray cluster had no free room for a bench within {PLACEMENT_SECONDS:.0f} s; "
            "`ray status` shows what takes it"
        )
    for task in done:
        await task
    return [births[task] for task in done]
