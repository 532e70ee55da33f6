"""Takes GPUs of a Ray cluster for a run: on which nodes, how many, and what if others hold them.

Must run inside a process that Ray knows, in its event loop. A bench waits in Ray's own queue, so
that runs get GPUs in the order in which they asked.
"""

import asyncio
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import ray
from ray._private.state import available_resources_per_node

from cluster.fleets.actors import PLACEMENT_SECONDS, ActorBench
from cluster.fleets.claim import Claim, Share
from cluster.fleets.head_calls import ask_head
from cluster.fleets.holders import gpu_holders
from cluster.fleets.local import target_remedy
from cluster.fleets.slots import WorkerLost
from tuner.device import Backend, Device
from tuner.errors import EnvironmentProblem, KernelwrightError
from tuner.printable import counted

STRAGGLER_SECONDS = 15.0
"""How long further benches may take after the first."""

FREE_SECONDS = 2.0
"""How long Ray may take to report a GPU as free that was given back."""

TELL_SECONDS = 5.0
"""Interval at which a waiting run asks Ray again for the holders of the GPUs."""

ASIDE_SECONDS = 5
"""For one to so many seconds more a run that got too few GPUs steps aside, so that no two runs hold
half of the GPUs each and wait for the other half."""

NODE = "ray.io/node-id"
_TYPE = "ray.io/accelerator-type"
_POLL_SECONDS = 0.2

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes with GPUs of one type, as far as Ray knows it: what they have, and what is free.

    ``labels`` are those that a placement group must ask for to be placed on one of them.
    """

    labels: Mapping[str, str]
    gpus: int
    free: int
    processors: int

    @property
    def room(self) -> dict[str, float]:
        """What a bench holds: a core besides its GPU, unless there are too few."""
        return {"GPU": 1, "CPU": 1} if self.processors >= self.gpus else {"GPU": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """GPUs that a run took: benches on devices of one model, in ``group``.

    ``refused`` are benches that could not be used, and why: what their node lacks, or who else
    works on their GPU.
    """

    device: Device
    benches: Sequence[ActorBench]
    group: NodeGroup
    refused: Mapping[ActorBench, str]


async def take_gpus(backend: Backend, wanted: str | None, claim: Claim) -> Taken:
    """Benches on GPUs of one model: the one that the run took before, if it did.

    Raises:
        EnvironmentProblem: the cluster has no such GPUs, or others hold them and the run does not
            wait.
    """
    share, before = claim.share, claim.device
    wanted = before.name if before else wanted

    def look() -> NodeGroup:
        nodes = [node for node in ray.nodes() if node["NodeID"] not in unusable()]
        return choose_nodes(backend, nodes, available_resources_per_node(), wanted, share)

    def unusable() -> set[str]:
        return {bench.node_id for bench in refused if bench.node_id}

    async def asking(gpus: int) -> list[ActorBench]:
        labels = dict(group.labels)
        if bad := unusable():
            labels[NODE] = f"!in({','.join(sorted(bad))})"
        # Ray shows each actor its own GPU alone, so the index is always 0.
        return await ask_head(
            lambda: [ActorBench(backend, 0, group.room, labels) for _ in range(gpus)]
        )

    refused: dict[ActorBench, str] = {}

    while True:
        group = await _settled(look, share)
        held = group.gpus - group.free
        if group.free >= share.least:
            benches, bad = await placed(await asking(share.most(group.free)))
        elif claim.waits:
            with claim.waiting():
                benches, bad = await placed(
                    await asking(share.most(group.gpus)), partial(_tell, claim, held)
                )
        else:
            raise EnvironmentProblem(
                f"{counted(share.least, 'GPU')} asked for and {group.free} of {group.gpus} free: "
                f"{await asyncio.to_thread(gpu_holders, held)}; wait for them with --wait, ask for "
                "fewer with --gpus, or end a run with `kernelwright stop RUN`"
            )
        refused |= bad
        devices, occupied = await _devices(benches, asking, group.free)
        taken = _of_one_model(devices, wanted, before)
        enough = len(taken) >= share.least
        others = (devices.keys() | occupied.keys()) - set(taken if enough else ())
        await asyncio.gather(*(bench.close() for bench in others))
        if enough:
            device = claim.device = devices[taken[0]]
            return Taken(device=device, benches=taken, group=group, refused=refused | occupied)
        found = _found(devices, wanted) + _words(refused | occupied)
        if not claim.waits:
            raise EnvironmentProblem(
                f"{counted(share.least, 'GPU')} of one model asked for: {found}"
            )
        with claim.waiting():
            claim.words = f"waiting for {counted(share.least, 'GPU')}: {found}"
            await asyncio.sleep(1 + secrets.randbelow(1000 * ASIDE_SECONDS) / 1000)


def choose_nodes(
    backend: Backend,
    nodes: Iterable[Mapping[str, Any]],
    free: Mapping[str, Mapping[str, float]],
    wanted: str | None,
    share: Share,
) -> NodeGroup:
    """The nodes to take GPUs of: those of the type of which most are free.

    Args:
        backend: for the remedy in a message.
        nodes: as ``ray.nodes()`` lists them.
        free: what of their resources is free, by node id.
        wanted: part of a device's name; a node's type is part of it, or it of the type. Types say
            nothing of a name that fits none: then all nodes are looked at.
        share: how many, and on nodes with which labels.

    Raises:
        EnvironmentProblem: there are no such nodes, or they have too few GPUs.
    """
    found = [node for node in nodes if node["Alive"] and node["Resources"].get("GPU", 0) >= 1]
    if not found:
        raise EnvironmentProblem(f"no node of the Ray cluster has a GPU{target_remedy(backend)}")
    labelled = [node for node in found if share.labels.items() <= node["Labels"].items()]
    if not labelled:
        asked = ", ".join(f"{key}={value}" for key, value in share.labels.items())
        there = sorted(
            {f"{k}={v}" for node in found for k, v in node["Labels"].items() if k != NODE}
        )
        raise EnvironmentProblem(
            f"no node with a GPU has the labels {asked}; there are: {', '.join(there) or 'none'}"
        )
    types = defaultdict(list)
    for node in labelled:
        types[node["Labels"].get(_TYPE, "")].append(node)
    groups = [
        NodeGroup(
            labels={**share.labels, **({_TYPE: name} if name else {})},
            gpus=sum(int(node["Resources"]["GPU"]) for node in members),
            free=sum(int(free.get(node["NodeID"], {}).get("GPU", 0)) for node in members),
            processors=sum(int(node["Resources"].get("CPU", 0)) for node in members),
        )
        for name, members in (_fitting(types, wanted) or types).items()
    ]
    chosen = max(groups, key=lambda group: (min(group.free, share.most(group.free)), group.gpus))
    if chosen.gpus < share.least:
        raise EnvironmentProblem(
            f"--gpus {share.least}: the cluster has only {chosen.gpus} of them; ask for fewer"
        )
    return chosen


def _fitting(types: Mapping[str, T], wanted: str | None) -> dict[str, T]:
    """The types that may be of the device wanted."""
    part = (wanted or "").lower()
    return {
        name: members
        for name, members in types.items()
        if name.lower() in part or part in name.lower()
    }


async def _tell(claim: Claim, held: int) -> None:
    """Say what the run waits for."""
    holders = await asyncio.to_thread(gpu_holders, held)
    claim.words = f"waiting for {counted(claim.share.least, 'GPU')}: {holders}"


async def _settled(look: Callable[[], NodeGroup], share: Share) -> NodeGroup:
    """What is there, once as much is free as the run takes, or soon."""
    until = time.monotonic() + FREE_SECONDS
    while (group := await ask_head(look)).free < share.most(group.gpus):
        if time.monotonic() >= until:
            break
        await asyncio.sleep(_POLL_SECONDS)
    return group


async def placed(
    benches: Sequence[ActorBench], tell: Callable[[], Awaitable[None]] | None = None
) -> tuple[list[ActorBench], dict[ActorBench, str]]:
    """The benches that found room, and why others cannot be used; all but the first are given up.

    Args:
        benches: each waits in Ray's queue.
        tell: called at once, and again until the first has room; by default that is waited for
            :data:`PLACEMENT_SECONDS`.

    Raises:
        EnvironmentProblem: none found room, or none can be used.
    """
    kept, refused = await find_room(benches, tell)
    if not kept:
        raise EnvironmentProblem(
            f"the Ray cluster has no bench that can be used{_words(refused)}"
            if refused
            else f"the Ray cluster had no free room for a bench within {PLACEMENT_SECONDS:.0f} s; "
            "`ray status` shows what takes it"
        )
    return kept, refused


async def find_room(
    benches: Sequence[ActorBench], tell: Callable[[], Awaitable[None]] | None = None
) -> tuple[list[ActorBench], dict[ActorBench, str]]:
    """The same, perhaps with no bench."""
    births = {asyncio.create_task(bench.ready()): bench for bench in benches}
    waiting = set(births)
    kept: list[ActorBench] = []
    refused: dict[ActorBench, str] = {}

    async def some(seconds: float, when: str) -> bool:
        nonlocal waiting
        done, waiting = await asyncio.wait(waiting, timeout=seconds, return_when=when)
        for task in done:
            bench = births[task]
            try:
                task.result()
                kept.append(bench)
            except (KernelwrightError, WorkerLost) as problem:
                await bench.locate()
                refused[bench] = str(problem)
        return bool(done)

    try:
        while waiting and not kept:
            if tell is not None:
                await tell()
            seconds = TELL_SECONDS if tell else PLACEMENT_SECONDS
            if not await some(seconds, asyncio.FIRST_COMPLETED) and tell is None:
                break
        if kept and waiting:
            await some(STRAGGLER_SECONDS, asyncio.ALL_COMPLETED)
    finally:
        for task in births:
            task.cancel()
        await asyncio.gather(*(bench.close() for bench in benches if bench not in kept))
    return kept, refused


def _words(refused: Mapping[ActorBench, str]) -> str:
    """Why benches cannot be used, by node, as the end of a message."""
    each = dict.fromkeys(f"{bench.node or 'a node'}: {why}" for bench, why in refused.items())
    return f"; {'; '.join(each)}" if each else ""


async def _devices(
    benches: list[ActorBench], asking: Callable[[int], Awaitable[list[ActorBench]]], free: int
) -> tuple[dict[ActorBench, Device], dict[ActorBench, str]]:
    """Each bench's device, and why those that cannot be used cannot: another user works there.

    For each of these another GPU is asked for, while some of the ``free`` ones are untried. None is
    let go before, since Ray would offer it again.
    """
    devices: dict[ActorBench, Device] = {}
    occupied: dict[ActorBench, str] = {}
    try:
        while benches:
            answers = await asyncio.gather(
                *(bench.device() for bench in benches), return_exceptions=True
            )
            missing = 0
            for bench, answer in zip(benches, answers, strict=True):
                if isinstance(answer, Device):
                    devices[bench] = answer
                elif isinstance(answer, KernelwrightError | WorkerLost):
                    occupied[bench] = str(answer)
                    missing += 1
                else:
                    raise answer
            untried = max(0, free - len(devices) - len(occupied))
            benches, _ = await find_room(await asking(min(missing, untried)))
    except BaseException:
        await asyncio.gather(*(bench.close() for bench in {*benches, *devices, *occupied}))
        raise
    return devices, occupied


def _of_one_model(
    devices: Mapping[ActorBench, Device], wanted: str | None, before: Device | None
) -> list[ActorBench]:
    """The benches of the most common model that fits, or of the one ``before``."""
    models: dict[str, list[ActorBench]] = defaultdict(list)
    for bench, device in devices.items():
        fits = not wanted or wanted.lower() in device.name.lower()
        if device.model == before.model if before else fits:
            models[device.model].append(bench)
    return max(models.values(), key=len, default=[])


def _found(devices: Mapping[ActorBench, Device], wanted: str | None) -> str:
    """What found room, in words, where that is not enough."""
    names = Counter(device.name for device in devices.values())
    each = ", ".join(f"{count} × {name}" for name, count in names.items()) or "nothing"
    return f"{each} found room{f', {wanted!r} wanted' if wanted else ''}"
