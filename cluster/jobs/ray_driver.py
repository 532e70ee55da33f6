"""Running on Ray: joining or starting it, and the driver actor on the entry point's node.

To be imported inside :func:`cluster.settings.environment_for_ray`, since Ray reads its variables on
import. What the driver does is :mod:`cluster.runs.search_run`; where workers are placed is
:mod:`cluster.fleets.ray`.
"""

import asyncio
import gc
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray._private.services import GcsClient
from ray.exceptions import RayError, RayTaskError, RpcError, RuntimeEnvSetupError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.cli.console import Update
from cluster.fleets.claim import Claim
from cluster.fleets.elastic import POLL_SECONDS, draining_nodes
from cluster.fleets.head_calls import free_rooms
from cluster.fleets.local import target_remedy
from cluster.fleets.ray import open_ray_fleet
from cluster.jobs.job_client import check_reachable
from cluster.jobs.ray_metrics import DriverMetrics
from cluster.ray_problems import first_line, no_environment, not_created, ray_problem
from cluster.runs.agent_run import open_run
from cluster.runs.placement import Placement
from cluster.runs.run_process import RunProcess
from cluster.settings import Settings, read_keys
from tuner.backends.registry import traits_of
from tuner.device import Backend
from tuner.engine.progress import RunProgress
from tuner.engine.session import StopReason
from tuner.errors import EnvironmentProblem, KernelwrightError, Preempted, RunInterrupted
from tuner.journal.facts import BaselinePrepared, Fact

NAMESPACE = "kernelwright"

STREAM_SECONDS = 0.1
"""Between two pictures of a phase that are streamed: one for each step of the engine would cost the
driver as much as the step."""


def check_unused() -> None:
    """Raise :class:`EnvironmentProblem` if this program is connected to a Ray: it has only one."""
    if ray.is_initialized():
        raise EnvironmentProblem(
            "this program already uses Ray, and a process can use only one: call ray.shutdown() "
            "first, tune in another process, or use fleet='local'"
        )


@contextmanager
def connected(settings: Settings) -> Iterator[None]:
    """Ray, for as long as the context lasts: the cluster that the user named, or one started here.

    Raises:
        EnvironmentProblem: the cluster cannot be reached, Ray cannot start, or is used already.
    """
    check_unused()
    common = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        try:
            if settings.ray_address:
                check_reachable(settings.ray_address)
                _check_token(settings.ray_address)
                ray.init(address=settings.ray_address, **common)
            else:
                # Ray itself counts cores that this process may not use.
                cores = len(os.sched_getaffinity(0))
                ray.init(address="local", include_dashboard=False, num_cpus=cores, **common)
        except Exception as error:  # a bare one where Ray's node does not come up within 30 s
            where = settings.ray_address or "a local Ray"
            raise EnvironmentProblem(
                f"cannot use {where}: {ray_problem(error)} (`--fleet local` runs without Ray)"
            ) from error
        yield
    finally:  # also of what a failed start leaves
        ray.shutdown()


def _check_token(address: str) -> None:
    """Fail at once where Ray, refused for want of its token, would try and complain for 20 s."""
    if "://" not in address and ":" in address:
        with suppress(RpcError, RuntimeError):  # Ray tells these itself, if they last
            GcsClient(address=address)


def extent() -> str:
    """What the cluster has, in words."""
    nodes, found = sum(node["Alive"] for node in ray.nodes()), ray.cluster_resources()
    cores, devices = found.get("CPU", 0), found.get("GPU", 0)
    return f"nodes: {nodes}, processors: {cores:.0f}, GPUs: {devices:.0f}"


def has_gpu() -> bool:
    """Whether a node of the cluster has a GPU."""
    return gpus() > 0


def gpus() -> int:
    """How many GPUs the cluster has now.

    Raises:
        EnvironmentProblem: Ray's head is gone. Asked itself, Ray would try for a minute and then
            end this process.
    """
    try:
        check_reachable(address())
        return int(ray.cluster_resources().get("GPU", 0))
    except (OSError, RayError, RuntimeError) as error:
        raise EnvironmentProblem(f"lost the Ray at {address()}: {ray_problem(error)}") from error


def address() -> str:
    """The address by which other processes join this Ray."""
    return str(ray.get_runtime_context().gcs_address)


def check_gpu(backend: Backend) -> None:
    """Raise :class:`EnvironmentProblem` if a backend needs a GPU, and no node has one."""
    if traits_of(backend).gpu_only and not has_gpu():
        raise EnvironmentProblem(f"no node of the Ray cluster has a GPU{target_remedy(backend)}")


class Driver:
    """The one writer of a run directory, on the node where that lies; asynchronous.

    For a Ray of this process's own; on a cluster that others started it is an actor.

    Args:
        path: the run directory, absolute.
        where: the device wanted, the share of the cluster's GPUs, and how models are reached.
        gpus: whether benches take Ray's GPUs; by default where the backend has only GPUs.
        keys: the file with the models' keys, on this node.
        cache: the folder where compiled binaries are kept from run to run, if they are.
        job: the batch job that the entry point belongs to.
    """

    def __init__(
        self,
        path: Path,
        where: Placement,
        *,
        gpus: bool | None = None,
        keys: Path | None = None,
        cache: Path | None = None,
        job: str = "",
    ) -> None:
        claim = Claim(where.share)
        opener = partial(open_ray_fleet, wanted=where.device, gpus=gpus, cache=cache, claim=claim)
        access = replace(where.access, keys={} if keys is None else read_keys(keys))
        self._metrics = DriverMetrics(path.name)
        process = RunProcess(path, opener, job, claim, self._observe)
        self._run = open_run(process, access)

    async def progress(self) -> AsyncIterator[Update]:
        """Go on with the run, streaming how far it is: what is new, and the rest now and then."""
        shown, due = None, 0.0
        try:
            async for progress in self._run.progress():
                if isinstance(progress, RunProgress):
                    self._metrics.publish(progress.speedup)
                    part, now = (progress.phase, progress.round, progress.suffix), time.monotonic()
                    if part == shown and now < due:
                        continue
                    shown, due = part, now + STREAM_SECONDS
                yield progress
        finally:
            self._metrics.publish(None, now=True)

    def stop(self, reason: StopReason) -> None:
        """Ask for an end."""
        self._run.stop(reason)

    def _observe(self, fact: Fact) -> None:
        self._metrics.counts.apply(fact)


class DriverActor(Driver):
    """A driver in a process of its own, where it may freeze all objects."""

    def _observe(self, fact: Fact) -> None:
        super()._observe(fact)
        if isinstance(fact, BaselinePrepared):  # the search begins: all it needs is imported
            gc.freeze()  # a full collection of that stops all threads for 0.1 s


def driver_lost(error: RayError) -> EnvironmentProblem:
    """The problem of a driver actor that Ray could not create, lost, or killed for its memory."""
    if why := not_created(error):
        return EnvironmentProblem(f"the driver cannot be started on this node: {why}")
    return RunInterrupted(f"the driver actor died ({first_line(error)})")


class RemoteRun:
    """A run that a driver actor carries out; the same interface as a local one.

    Args:
        path: the run directory, absolute.
        where: as for :class:`Driver`; by default all free GPUs.
        options: the others of :class:`Driver`.
    """

    def __init__(self, path: Path, where: Placement | None = None, **options: object) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._name = f"driver:{path}:{secrets.token_hex(4)}"
        # No CPU slot: it only waits, and must not dead-lock with its own workers on two cores.
        remote = ray.remote(
            num_cpus=0,
            num_gpus=0,
            max_restarts=0,
            name=self._name,
            scheduling_strategy=here,
        )(DriverActor)
        self._actor: Any = remote.remote(path, where or Placement(), **options)

    def stop(self, reason: StopReason) -> None:
        """Ask for an end, without waiting for it."""
        self._actor.stop.remote(reason)

    async def progress(self) -> AsyncIterator[Update]:
        """Follow the run to its end.

        Raises:
            KernelwrightError: what the driver raised.
            Preempted: this node is being drained; the run was left in order.
            EnvironmentProblem: the driver died, or Ray could not start it; everything finished is
                kept.
        """
        stream = self._actor.progress.options(num_returns="streaming").remote()
        watch = asyncio.create_task(self._leave_when_drained())
        try:
            async for progress in stream:
                yield await progress
            if watch.done():
                raise Preempted("this node of the Ray cluster is being drained")
        except RayTaskError as error:
            if isinstance(error.cause, KernelwrightError):
                raise error.cause from None
            raise
        except RuntimeEnvSetupError as error:
            raise EnvironmentProblem(no_environment(error)) from error
        except RayError as error:
            await asyncio.to_thread(free_rooms, self._name)
            raise driver_lost(error) from error
        finally:
            watch.cancel()

    async def _leave_when_drained(self) -> None:
        """End the run in order once Ray says that this node will be taken away."""
        here = ray.get_runtime_context().get_node_id()
        drained = False
        while not drained:
            await asyncio.sleep(POLL_SECONDS)
            with suppress(RayError, RuntimeError):  # the head is away
                drained = here in await asyncio.to_thread(draining_nodes)
        self.stop("interrupted")
