"""A fleet over GPUs of a Ray cluster whose nodes come and go while a run works.

Must run inside a process that Ray knows, in its event loop. Owns what becomes of benches and
compile slots when a node joins or is drained. Who takes GPUs at first is :mod:`cluster.fleets.ray`.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import ray
from ray._private.state import available_resources_per_node
from ray._private.state import state as cluster_state
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.fleets.actors import (
    ActorBench,
    ActorCompiler,
    CompileActor,
    OwnedActor,
)
from cluster.fleets.claim import Share
from cluster.fleets.gpus import NODE, Taken, find_room
from cluster.fleets.head_calls import ask_head
from cluster.fleets.pool import PooledFleet
from cluster.fleets.slots import BenchSlot, CompileSlot, WorkerLost
from tuner.errors import EnvironmentProblem, KernelwrightError

POLL_SECONDS = 2.0
"""Interval at which Ray is asked for its nodes: a drained one is gone after 30 s or more."""

FREED_SECONDS = 60.0
"""A GPU of a known node is taken once it was free for so long: a run that asks a model gives its
GPUs back meanwhile, and wants them again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that is alive: Ray's name of it, its host, and what it has."""

    node_id: str
    host: str
    gpus: int
    processors: int
    labels: Mapping[str, str]

    @property
    def spare(self) -> int:
        """The cores that no bench takes."""
        return max(0, self.processors - self.gpus)


def living_nodes() -> dict[str, Node]:
    """The nodes that are alive, by Ray's names."""
    return {
        node["NodeID"]: Node(
            node_id=node["NodeID"],
            host=node["NodeManagerHostname"],
            gpus=int(node["Resources"].get("GPU", 0)),
            processors=int(node["Resources"].get("CPU", 0)),
            labels=node["Labels"],
        )
        for node in ray.nodes()
        if node["Alive"]
    }


def draining_nodes() -> set[str]:
    """The nodes that Ray was told to drain: they get no new actors, and are killed soon."""
    return set(cluster_state.get_draining_nodes())


class ElasticFleet(PooledFleet):
    """Port :class:`tuner.engine.fleet.Fleet` over benches of Ray, and of nodes that join later.

    Args:
        taken: the GPUs that the run begins with.
        share: how many it may have.
        cache: the folder where compiled binaries are kept from run to run.
    """

    def __init__(self, taken: Taken, share: Share, cache: Path | None) -> None:
        super().__init__(taken.device, [], [])
        self._group = taken.group
        self._share = share
        self._cache = cache
        self._numbers = count()
        self._mine: list[ActorBench | ActorCompiler] = []
        """Every worker that was added; it may be gone."""
        self._pinned: set[ActorBench] = set()
        """Benches that are lost for good with their node."""
        self._leaving: set[object] = set()
        self._anchored: tuple[ActorBench, ActorCompiler] | None = None
        nodes = living_nodes()
        self._known = set(nodes)
        self._unusable = Counter(bench.node_id for bench in taken.refused)
        """How many GPUs of each node Ray may offer though this run cannot use them."""
        self._free_since: dict[str, float] = {}
        """Since when a GPU of each node has been free."""
        for bench in taken.benches:
            self._mine.append(bench)
            self.add_bench(bench)
        self._anchor()
        for node in nodes.values():
            for _ in range(node.spare - (node.node_id == taken.benches[0].node_id)):
                self._compile_on(node.node_id)
        self._joining: set[asyncio.Task[None]] = set()
        self._following = asyncio.create_task(self._follow())

    def _compile_on(self, node: str) -> None:
        """Add a compile slot with a core of its own on a node.

        Not on any node: where one waited for room, it would take a bench's core of one that joins.
        """
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        self._compile({"num_cpus": 1, "scheduling_strategy": where})

    def _anchor(self, closing: object = None) -> None:
        """Have one compile slot share a bench's core: compiling goes on where others hold the rest.

        It goes with the bench's placement group to another node, and to another bench before that
        group is freed, with the bench that is ``closing``.
        """
        if self._anchored is not None and self._anchored[0] not in self._leaving:
            return
        staying = [
            worker
            for worker in self._mine
            if isinstance(worker, ActorBench) and self.has(worker) and worker not in self._leaving
        ]
        if self._anchored is not None and (staying or closing is self._anchored[0]):
            self.retire(self._anchored[1], "its bench left")
            self._anchored = None
        if self._anchored is None and staying:
            placement = {"num_cpus": 0, "scheduling_strategy": staying[0].placement}
            self._anchored = staying[0], self._compile(placement)

    def _compile(self, placement: dict[str, object]) -> ActorCompiler:
        actor = OwnedActor(CompileActor, placement, self.device, self._cache)
        compiler = ActorCompiler(actor, next(self._numbers), process=0)
        self._mine.append(compiler)
        self.add_compiler(compiler)
        return compiler

    async def _release(self, worker: CompileSlot | BenchSlot) -> None:
        self._leaving.add(worker)
        self._anchor(closing=worker)
        if isinstance(worker, ActorBench):
            self._unusable[worker.node_id] += 1
        await super()._release(worker)
        self._leaving.discard(worker)

    async def close(self) -> None:
        """Drop pending jobs and release every worker; closing twice does nothing."""
        tasks = (self._following, *self._joining)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().close()

    async def _follow(self) -> None:
        while True:
            try:
                nodes, draining, free = await ask_head(
                    lambda: (living_nodes(), draining_nodes(), available_resources_per_node())
                )
            except (RayError, RuntimeError) as error:  # the head restarts, say
                _log.warning("cannot ask Ray for its nodes: %s", error)
            else:
                self._leave(nodes, draining)
                self._join(nodes, draining)
                self._take_freed(nodes, draining, free)
            await asyncio.sleep(POLL_SECONDS)

    def _leave(self, nodes: dict[str, Node], draining: set[str]) -> None:
        """Send nothing more to nodes that are drained; let them finish what they have."""
        for worker in self._mine:
            if self._anchored is not None and worker is self._anchored[1]:
                continue
            if worker.node_id in draining:
                self._leaving.add(worker)
                self.retire(worker, "its node is being drained")
            elif worker in self._pinned and worker.node_id not in nodes:
                self._leaving.add(worker)
                self.retire(worker, "its node died")
        self._mine = [worker for worker in self._mine if self.has(worker)]
        self._anchor()

    def _join(self, nodes: dict[str, Node], draining: set[str]) -> None:
        """Ask new nodes for benches and compile slots."""
        for new in nodes.keys() - self._known - draining:
            self._known.add(new)
            self._begin(self._use(nodes[new]))

    def _take_freed(
        self,
        nodes: Mapping[str, Node],
        draining: set[str],
        free: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Ask known nodes for benches on GPUs that others no longer hold."""
        for name in nodes.keys() - draining:
            gpus = int(free.get(name, {}).get("GPU", 0)) - self._unusable[name]
            if gpus <= 0 or self._joining:
                self._free_since.pop(name, None)
            elif time.monotonic() >= self._free_since.setdefault(name, time.monotonic()) + (
                FREED_SECONDS
            ):
                self._begin(self._bench_on(nodes[name], gpus))

    def _begin(self, joining: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(joining)
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    async def _use(self, node: Node) -> None:
        _log.info("%s joined with %d GPUs, %d cores", node.host, node.gpus, node.processors)
        await self._bench_on(node, node.gpus)
        for _ in range(node.spare):
            self._compile_on(node.node_id)

    async def _bench_on(self, node: Node, gpus: int) -> None:
        """Add benches on so many GPUs of a node, within the run's share."""
        if not self._group.labels.items() <= node.labels.items():
            return
        now, room = self.bench_slots, self._group.room
        more = max(0, self._share.most(now + gpus) - now)
        # Ray shows each actor its own GPU alone, so the index is always 0.
        benches = [
            ActorBench(self.device.backend, 0, room, {NODE: node.node_id}) for _ in range(more)
        ]
        await asyncio.gather(*(self._try(bench, node) for bench in benches))

    async def _try(self, bench: ActorBench, node: Node) -> None:
        """Add a bench if it finds room, and has a device of the model."""
        joined = False
        try:
            kept, refused = await find_room([bench])
            if not kept:
                raise EnvironmentProblem(refused.get(bench, "others hold its GPU or its cores"))
            device = await bench.device()
            if device.model != self.device.model:
                raise EnvironmentProblem(f"it has {device.name}, not {self.device.name}")
            self._mine.append(bench)
            self._pinned.add(bench)
            self.add_bench(bench)
            self._anchor()
            joined = True
        except (KernelwrightError, WorkerLost) as problem:
            bench.node = bench.node or node.host
            self._unusable[node.node_id] += 1
            self.refuse(bench, str(problem))
        finally:
            if not joined:
                await bench.close()
