"""The fleet of one machine: threads, each with a child process of its own. No Ray.

A child asks the kernel to die with the *thread* that spawned it, so each worker's thread lives as
long as the worker.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from cluster.fleets.claim import Share
from cluster.fleets.pool import PooledFleet
from cluster.fleets.slots import WorkerLost
from tuner.backends.registry import traits_of
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
from workers.devices.discover import Found, list_devices

T = TypeVar("T")


async def open_local_fleet(
    backend: Backend,
    wanted: str | None = None,
    *,
    cache: Path | None = None,
    share: Share | None = None,
) -> PooledFleet:
    """A fleet over this machine's devices of one model.

    Args:
        backend: whose devices.
        wanted: part of a device's name, or an index; any device by default.
        cache: where compiled binaries are kept from run to run, if they are.
        share: how many devices; by default all. Runs take turns on those that they share.

    Raises:
        EnvironmentProblem: there is no such device.
    """
    found = await asyncio.to_thread(list_devices, (backend,))
    model, indices = choose(found, backend, wanted)
    indices = (share or Share()).limited(indices)
    slots = compile_slots(model, processors=len(os.sched_getaffinity(0)), benches=len(indices))
    return PooledFleet(
        model,
        [ThreadCompiler(model, number, cache) for number in range(slots)],
        [ThreadBench(backend, index) for index in indices],
    )


def choose(
    found: tuple[Found, ...], backend: Backend, wanted: str | None
) -> tuple[Device, tuple[int, ...]]:
    """The model to tune for, and the indices of its devices; one device where that is the CPU.

    Raises:
        EnvironmentProblem: nothing fits ``wanted``; says what there is.
    """
    devices = [(one.index, one.device) for one in found if one.device is not None]
    if not devices:
        problems = "; ".join(one.problem for one in found if one.problem) or "none was found"
        raise EnvironmentProblem(f"no {backend} device: {problems}{target_remedy(backend)}")
    fitting = [
        (index, device)
        for index, device in devices
        if wanted is None or wanted == str(index) or wanted.lower() in device.name.lower()
    ]
    if not fitting:
        there = ", ".join(f"{index} ({device.name})" for index, device in devices)
        raise EnvironmentProblem(f"no {backend} device fits {wanted!r}; there are: {there}")
    first = fitting[0][1]
    same = tuple(index for index, device in fitting if device.model == first.model)
    return first, same[:1] if first.is_cpu else same


def target_remedy(backend: Backend) -> str:
    """What a user without a device can do, as the end of a message."""
    target = traits_of(backend).example_target
    return f"; --target {target} goes as far as possible without" if target else ""


def compile_slots(device: Device, *, processors: int, benches: int) -> int:
    """One core stays free for each bench, except on a CPU device, where the two never overlap."""
    return max(1, processors if device.is_cpu else processors - benches)


class _Thread:
    """Runs blocking calls in one thread of its own, one after the other."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def call(self, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, function)
        except KernelwrightError:
            raise
        except Exception as error:
            raise WorkerLost(f"{type(error).__name__}: {error}") from error

    async def close(self, release: Callable[[], None]) -> None:
        """Abort what runs, by ``release`` from another thread, and wait for it."""
        await asyncio.to_thread(release)
        await asyncio.to_thread(self._executor.shutdown, cancel_futures=True)


class ThreadCompiler:
    """A compile slot: a thread with a compile process."""

    def __init__(self, device: Device, number: int, cache: Path | None = None) -> None:
        self.name = f"{socket.gethostname()}/compiler{number}"
        self._worker = CompileWorker(device, cache)
        self._thread = _Thread("compile")

    async def ready(self) -> None:
        """Return once the process is up."""
        await self._thread.call(self._worker.ready)

    async def compile(self, builds: tuple[Build, ...]) -> tuple[Binary, ...] | Rejected:
        """Compile every build."""
        return await self._thread.call(lambda: self._worker.compile(builds))

    async def close(self) -> None:
        """End the compile process."""
        await self._thread.close(self._worker.close)


class ThreadBench:
    """A bench: a thread with the child process that alone touches the device."""

    def __init__(self, backend: Backend, index: int) -> None:
        self.node = socket.gethostname()
        self._bench = DeviceBench(backend, index)
        self._thread = _Thread("bench")
        self._warm = False

    @property
    def name(self) -> str:
        """The bench's."""
        return self._bench.name

    @property
    def waits_for(self) -> str:
        """Which process has had the device for long."""
        return self._bench.waits_for

    async def ready(self) -> str:
        """Open a GPU the first time; a thread is never restarted."""
        if not self._warm:
            self._warm = True
            await self._thread.call(self._bench.warm_up)
        return ""

    async def prepare(self, setup: BenchSetup) -> BaselinePrepared:
        """Make oracle and baseline ready."""
        return await self._thread.call(lambda: self._bench.prepare(setup))

    async def measure(self, work: MeasureWork) -> AsyncIterator[TrialFinished]:
        """Yield one outcome for each candidate; the thread goes on to the next meanwhile."""
        loop = asyncio.get_running_loop()
        outcomes: asyncio.Queue[TrialFinished | None] = asyncio.Queue()

        def measure_all() -> None:
            for candidate in work.candidates:
                finished = self._bench.run(candidate, work.cutoffs)
                loop.call_soon_threadsafe(outcomes.put_nowait, finished)

        measuring = asyncio.create_task(self._thread.call(measure_all))
        measuring.add_done_callback(lambda _: outcomes.put_nowait(None))
        try:
            while (finished := await outcomes.get()) is not None:
                yield finished
            await measuring
        finally:
            measuring.cancel()

    async def confirm(self, work: ConfirmWork) -> ConfirmationSampled:
        """Time finalists and baseline in a fresh process."""
        return await self._thread.call(lambda: self._bench.confirm(work))

    async def examine(self, work: ExamineWork) -> WinnersExamined:
        """Run winners under the checkers."""
        return await self._thread.call(lambda: self._bench.examine(work))

    async def close(self) -> None:
        """End the child and free the device."""
        await self._thread.close(self._bench.close)
