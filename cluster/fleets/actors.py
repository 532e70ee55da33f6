"""The actors of a Ray fleet and the slots that use them: what runs on a node, and how it is called.

Must run inside a process that Ray knows, in its event loop. Owns what the death of an actor means,
and the placement group of each bench. Knows nothing of which actors a fleet needs.
"""

import asyncio
import gc
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError, RayTaskError, RuntimeEnvSetupError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cluster.fleets.head_calls import ask_head
from cluster.fleets.slots import NoRoom, WorkerLost
from cluster.ray_problems import NO_ROOM, first_line, lacks_room, no_environment, not_created
from kernelwright import __version__
from tuner.device import Backend, Device
from tuner.engine.work import BenchSetup, ConfirmWork, ExamineWork, MeasureWork
from tuner.errors import EnvironmentProblem, KernelwrightError
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    TrialFinished,
    WinnersExamined,
)
from tuner.plan import Binary, Build
from tuner.trial import Rejected
from workers.bench.device_bench import DeviceBench
from workers.compilers.worker import CompileWorker

PLACEMENT_SECONDS = 60.0
"""How long the cluster may take to find room for an actor."""

WAITING_SECONDS = 5.0
"""How often a bench at work is asked whether it waits for its device."""

_NEXT_SECONDS = 0.001
"""A bench begins its next trial first: streaming an outcome takes the interpreter meanwhile."""

CLOSING_SECONDS = 2.0
"""How long an actor may take to release its children before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an actor runs, as it says itself.

    ``process`` changes when it is restarted; ``node`` is the host, ``node_id`` Ray's name of it;
    ``worker`` is the name in spans.
    """

    process: str
    node: str
    node_id: str
    worker: str
    version: str = __version__

    @classmethod
    def here(cls, worker: str) -> "Place":
        """This process's."""
        node, node_id = socket.gethostname(), ray.get_runtime_context().get_node_id()
        return cls(process=f"{node}/{os.getpid()}", node=node, node_id=node_id, worker=worker)

    def check(self) -> None:
        """Raise :class:`EnvironmentProblem` if another version of Kernelwright runs there."""
        if self.version != __version__:
            raise EnvironmentProblem(
                f"{self.node} has Kernelwright {self.version}, and the driver {__version__}: "
                "install the same version on every node"
            )


class BenchActor:
    """Holds one device. Everything on it is one queue, worked off by one thread.

    Two works at a time: the next batch is there before the one in front is through, so that the
    device never waits for Ray. A third call asks what it waits for.
    """

    def __init__(self, backend: Backend, index: int) -> None:
        self._bench = DeviceBench(backend, index)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bench")

    def place(self) -> Place:
        """Where it is, once its device has answered; asked often, and the device only once."""
        self._thread.submit(self._bench.device, shared=True).result()
        return Place.here(self._bench.name)

    def device(self) -> Device:
        """What the device allows."""
        return self._thread.submit(self._bench.device).result()

    def waits_for(self) -> str:
        """Which process has had the device for long."""
        return self._bench.waits_for

    def prepare(self, setup: BenchSetup) -> BaselinePrepared:
        """Make oracle and baseline ready."""
        prepared = self._thread.submit(self._bench.prepare, setup).result()
        gc.freeze()  # a full collection of what there is now stops all threads for 0.1 s
        return prepared

    def measure(self, work: MeasureWork) -> Iterator[TrialFinished]:
        """Stream one outcome for each candidate, so that a batch costs one call."""
        outcomes = [
            self._thread.submit(self._bench.run, candidate, work.cutoffs)
            for candidate in work.candidates
        ]
        try:
            for outcome in outcomes:
                finished = outcome.result()
                time.sleep(_NEXT_SECONDS)
                yield finished
        finally:
            for outcome in outcomes:
                outcome.cancel()

    def confirm(self, work: ConfirmWork) -> ConfirmationSampled:
        """Time finalists and baseline in a fresh process."""
        return self._thread.submit(self._bench.confirm, work).result()

    def examine(self, work: ExamineWork) -> WinnersExamined:
        """Run winners under the checkers."""
        return self._thread.submit(self._bench.examine, work).result()

    def close(self) -> None:
        """Release the device; what is being done on it is aborted."""
        self._bench.close()


class CompileActor:
    """Holds compile processes, each used by one thread; they are called by their numbers."""

    def __init__(self, device: Device, cache: Path | None, processes: int = 1) -> None:
        self._workers = [CompileWorker(device, cache) for _ in range(processes)]
        self._threads = [
            ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile") for _ in self._workers
        ]
        for worker, thread in zip(self._workers, self._threads, strict=True):
            thread.submit(worker.ready)  # while benches open their devices
        gc.freeze()

    def ready(self, number: int) -> Place:
        """Where it is, once the process is up."""
        self._threads[number].submit(self._workers[number].ready).result()
        return Place.here(f"compiler{number}")

    def compile(self, number: int, builds: tuple[Build, ...]) -> tuple[Binary, ...] | Rejected:
        """Compile every build."""
        return self._threads[number].submit(self._workers[number].compile, builds).result()

    def close(self) -> None:
        """End the compile processes."""
        for worker in self._workers:
            worker.close()


class OwnedActor:
    """An actor that Ray restarts for ever, and whose calls are never repeated behind our back.

    Args:
        kind: the class.
        placement: Ray's options.
        arguments: the class's.
    """

    def __init__(self, kind: type, placement: Mapping[str, Any], *arguments: object) -> None:
        remote = ray.remote(max_restarts=-1, max_task_retries=0, **placement)(kind)
        self.calls: Any = remote.remote(*arguments)
        """The actor's handle; Ray's own type does not describe its methods."""
        self._released: asyncio.Task[None] | None = None

    async def release(self) -> None:
        """Let the actor end its children; it is killed if it does not answer, and they with it.

        Several slots may share an actor: the first releases it.
        """
        self._released = self._released or asyncio.create_task(self._release())
        await asyncio.shield(self._released)

    async def _release(self) -> None:
        closing = asyncio.ensure_future(self.calls.close.remote())
        try:
            # Not `wait_for`, which waits for what it cancels, and a call of Ray's may go on.
            await asyncio.wait({closing}, timeout=CLOSING_SECONDS)
            with suppress(RayError, asyncio.InvalidStateError):
                closing.result()
        finally:
            closing.cancel()
            ray.kill(self.calls, no_restart=True)


class ActorCompiler:
    """A compile slot of the fleet: one process of a compile actor.

    Args:
        actor: holds the process, and perhaps others.
        number: names the slot.
        process: the process's number in the actor; by default the slot's own.
    """

    def __init__(self, actor: OwnedActor, number: int, process: int | None = None) -> None:
        self.name = f"compiler{number}"
        self.node_id = ""
        """Ray's name of its node, once it is placed."""
        self._actor, self._up = actor, False
        self._process = number if process is None else process

    async def ready(self) -> None:
        """Return once the actor is placed and its process is up; it is asked after losses alone.

        Raises:
            EnvironmentProblem: others hold the cluster's cores, and the actor no longer waits for
                one; or it runs another version.
        """
        if self._up:
            return
        ready = asyncio.ensure_future(self._actor.calls.ready.remote(self._process))
        try:
            # Not `wait_for`, which waits for what it cancels, and a call of Ray's may go on.
            if not (await asyncio.wait({ready}, timeout=PLACEMENT_SECONDS))[0]:
                await self.close()
                raise EnvironmentProblem("no core of the Ray cluster is free to compile")
            with _losses(final=True):
                place: Place = ready.result()
            place.check()
            self.node_id, self._up = place.node_id, True
        finally:
            ready.cancel()

    async def compile(self, builds: tuple[Build, ...]) -> tuple[Binary, ...] | Rejected:
        """Compile every build."""
        self._up = False
        with _losses():
            made: tuple[Binary, ...] | Rejected
            made = await self._actor.calls.compile.remote(self._process, builds)
        self._up = True
        return made

    async def close(self) -> None:
        """End the actor and its child."""
        await self._actor.release()


class ActorBench:
    """A bench of the fleet: one bench actor, in a placement group of its own.

    The group keeps its room while the actor is restarted, and goes to another node with it.

    Args:
        room: the Ray resources that the bench holds.
        labels: of the node that it must be on; any node by default.
    """

    def __init__(
        self,
        backend: Backend,
        index: int,
        room: Mapping[str, float],
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"{backend}{index}"
        self.node = self.node_id = ""
        """Its host and Ray's name of that, once it is placed."""
        self.waits_for = ""
        """Which process has had the device for long, when it was last asked."""
        owner = ray.get_runtime_context().get_actor_name() or "none"
        name = f"{owner}:{secrets.token_hex(8)}"
        self._group: PlacementGroup = placement_group(
            [dict(room)], name=name, bundle_label_selector=[dict(labels)] if labels else None
        )
        self.placement = PlacementGroupSchedulingStrategy(self._group)
        options = {
            "num_gpus": room.get("GPU", 0),
            "num_cpus": room.get("CPU", 0),
            "scheduling_strategy": self.placement,
            "max_concurrency": 3,
        }
        self._actor = OwnedActor(BenchActor, options, backend, index)

    async def ready(self) -> str:
        """Return once the actor lives and its device answers, with the name of its process.

        Raises:
            EnvironmentProblem: no driver, no package or another version of it on that node.
        """
        with _losses(final=True):
            place: Place = await self._actor.calls.place.remote()
        place.check()
        self.name, self.node, self.node_id = place.worker, place.node, place.node_id
        return place.process

    async def locate(self) -> None:
        """Look up its node with Ray, where the actor itself cannot say."""
        table = await ask_head(lambda: placement_group_table(self._group))
        nodes = await ask_head(ray.nodes)
        self.node_id = table.get("bundles_to_node_id", {}).get(0, "")
        hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in nodes}
        self.node = hosts.get(self.node_id, "")

    async def device(self) -> Device:
        """What the device allows."""
        with _losses():
            device: Device = await self._actor.calls.device.remote()
            return device

    async def prepare(self, setup: BenchSetup) -> BaselinePrepared:
        """Make oracle and baseline ready."""
        async with self._working():
            prepared: BaselinePrepared = await self._actor.calls.prepare.remote(setup)
            return prepared

    async def measure(self, work: MeasureWork) -> AsyncIterator[TrialFinished]:
        """Yield outcomes as they stream in; those before a death survive it."""
        async with self._working():
            stream = self._actor.calls.measure.options(num_returns="streaming").remote(work)
            async for outcome in stream:
                yield await outcome

    async def confirm(self, work: ConfirmWork) -> ConfirmationSampled:
        """Time finalists and baseline in a fresh process."""
        async with self._working():
            sampled: ConfirmationSampled = await self._actor.calls.confirm.remote(work)
            return sampled

    async def examine(self, work: ExamineWork) -> WinnersExamined:
        """Run winners under the checkers."""
        async with self._working():
            examined: WinnersExamined = await self._actor.calls.examine.remote(work)
            return examined

    async def close(self) -> None:
        """End the actor and its child, and free the room."""
        await self._actor.release()
        with suppress(TimeoutError, RayError):  # the head is gone
            removal = ask_head(lambda: remove_placement_group(self._group))
            await asyncio.wait_for(removal, CLOSING_SECONDS)

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Know meanwhile what the bench waits for; tell what it raised from its death."""
        asking = asyncio.create_task(self._ask())
        try:
            with _losses():
                yield
        finally:
            asking.cancel()
            self.waits_for = ""

    async def _ask(self) -> None:
        with suppress(RayError):  # the work itself raises the reason
            while True:
                await asyncio.sleep(WAITING_SECONDS)
                self.waits_for = await self._actor.calls.waits_for.remote()


@contextmanager
def _losses(*, final: bool = False) -> Iterator[None]:
    """Tell what a worker raised from its death; ``final``: one that Ray gave up is no mere loss."""
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, KernelwrightError):
            raise error.cause from None
        raise _loss(error.cause) from error
    except RuntimeEnvSetupError as error:
        raise EnvironmentProblem(no_environment(error)) from error
    except ActorDiedError as error:
        if final:
            why = not_created(error) or first_line(error)
            raise EnvironmentProblem(f"a worker cannot be started: {why}") from error
        raise _loss(error) from error
    except RayError as error:
        raise _loss(error) from error


def _loss(error: Exception) -> WorkerLost:
    return NoRoom(NO_ROOM) if lacks_room(error) else WorkerLost(first_line(error))
