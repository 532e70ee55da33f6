"""Launches a cell on a CUDA device: arguments bound once, launches captured as a graph, replayed.

Owns one candidate's functions, argument tables and graphs. A checked launch and a timed burst take
the same path: a graph of one launch or of many.
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tuner.device import Device
from tuner.plan import Binary, CellPlan, KernelStep, MemsetStep
from tuner.trial import Code
from workers.backends.cuda.attributes import driver_library, launcher
from workers.backends.cuda.checks import Checks
from workers.backends.cuda.driver import ON_DEVICE, Cuda, classified
from workers.backends.cuda.memory import CudaBufferSets
from workers.backends.cuda.slab import Slab
from workers.backends.cuda.streams import KeptGraphs, Streams
from workers.devices.port import DeviceFailure, LateWrite, check_launch, unobserved

_NOT_SUPPORTED = 801

_GRAPHS = 4
"""Graphs kept per launchable: the checked launch, the hot burst, the last cold orders."""

_IDLE_SECONDS = 0.005
_WARM_NS = 2_000_000
_COLD_SECONDS = 0.5
_THAW_NS = 50_000_000
"""Idle GPUs lower their clocks: warm up after 5 ms of idling, longer after half a second."""

_REPEAT_SECONDS = 0.004
"""Replays queued at once where energy is measured: long beside one reading of the counter."""

_LATE_NS, _LATE_SHARE, _LATE_BURSTS = 50_000, 0.05, 6
"""Work so long after the stop event on so many bursts in a row of one launchable is no delay of the
host; three in a row were, for 3 honest configurations of 384 on an H100."""


def warm_up_ns(idle_seconds: float) -> int:
    """How long to keep the device busy after so much idling."""
    if idle_seconds > _COLD_SECONDS:
        return _THAW_NS
    return _WARM_NS if idle_seconds > _IDLE_SECONDS else 0


@dataclass(frozen=True, slots=True)
class KeptVariable:
    """Where a variable of a module is, where its first value was copied to, and its bytes."""

    address: int
    aside: int
    size: int


class CudaModule:
    """The binaries of one candidate, loaded in the order of its builds."""

    def __init__(self, cuda: Cuda, binaries: Sequence[Binary]) -> None:
        self._cuda = cuda
        self.symbols = [dict(binary.symbols) for binary in binaries]
        self.persists = any(binary.persists for binary in binaries)
        self.handles: list[int] = []
        self.lasting: list[list[KeptVariable]] = []
        with cuda.translated():
            for binary in binaries:
                self.handles.append(cuda.driver.moduleLoadData(binary.code))
                self.lasting.append([self._keep(name, size) for name, size in binary.lasting])

    def _keep(self, name: str, size: int) -> "KeptVariable":
        """Copy a variable of the last binary aside, as it is when loaded."""
        address: int = self._cuda.driver.moduleGetGlobal(self.handles[-1], name)
        aside: int = self._cuda.runtime.malloc(size)
        self._cuda.runtime.memcpy(aside, address, size, ON_DEVICE)
        return KeptVariable(address, aside, size)

    def release(self) -> None:
        """Unload them."""
        with self._cuda.translated():
            for variable in itertools.chain.from_iterable(self.lasting):
                self._cuda.runtime.free(variable.aside)
            self.lasting.clear()
            while self.handles:
                self._cuda.driver.moduleUnload(self.handles.pop())


class LateWork:
    """Detects a launchable whose work continues after the stop event of its bursts."""

    def __init__(self) -> None:
        self._late = 0

    def check(self, outlasted_ns: float, total_ns: float) -> None:
        """Record how long the device was still busy after a burst of ``total_ns``.

        Raises:
            DeviceFailure: too long, on several bursts in a row.
        """
        late = outlasted_ns > _LATE_NS + _LATE_SHARE * total_ns
        self._late = self._late + 1 if late else 0
        if self._late == _LATE_BURSTS:
            self._late = 0
            detail = f"work went on for {outlasted_ns:.0f} ns after the last launch had ended"
            raise DeviceFailure(Code.IMPOSSIBLE_TIME, detail)


class Clock:
    """Times graphs: streams, the two events of a burst, and when the device was last active."""

    def __init__(self, cuda: Cuda, device: Device, streams: Streams, checks: Checks) -> None:
        self._cuda, self._checks = cuda, checks
        self.streams = streams
        self._blocks = 2 * device.multiprocessors
        self._start: int = cuda.runtime.eventCreate()
        self._stop: int = cuda.runtime.eventCreate()
        self._active = -math.inf
        self._reset_persisting = driver_library().cuCtxResetPersistingL2Cache

    def time(
        self, graph: int, begins: Callable[[], None], *, cold: bool, persists: bool
    ) -> tuple[float, float]:
        """Replay a graph once on a warm device.

        The device begins once all is queued, so that no delay of the host is timed: of 14,000
        bursts on an H200, half of them beside 24 busy processes, none took 6 µs more than the
        median, though the host was late by up to 4 ms. Before a cold replay, what the last restore
        wrote is driven out of the cache. Persisting lines are reset only for code that
        ``persists``, before its first burst: like direct launches
        (:mod:`workers.backends.cuda.streams`), a handful of resets slows all later graphs.

        Returns:
            Nanoseconds between its start and its end, and how long the device was busy after it.
        """
        runtime = self._cuda.runtime
        if persists and (status := self._reset_persisting()) not in (0, _NOT_SUPPORTED):
            raise classified(status, "resetting persisting cache lines failed")
        if warm_up := warm_up_ns(time.monotonic() - self._active):
            self._checks.busy(warm_up, self._blocks)
        if cold:
            self._checks.sweep()
        self._checks.hold()
        runtime.eventRecord(self._start, self.streams.run)
        runtime.graphLaunch(graph, self.streams.run)
        runtime.eventRecord(self._stop, self.streams.run)
        begins()
        self._checks.go()
        runtime.eventSynchronize(self._stop)
        stopped = time.monotonic()
        runtime.deviceSynchronize()
        self._active = time.monotonic()
        milliseconds: float = runtime.eventElapsedTime(self._start, self._stop)
        return milliseconds * 1e6, (self._active - stopped) * 1e9

    def repeat(self, graph: int, go_on: Callable[[int], bool]) -> None:
        """Replay a graph until ``go_on`` says no, given how many replays have ended.

        The next ones are queued before it is asked, so that the device never waits for the host.
        """
        runtime, stream = self._cuda.runtime, self.streams.run
        began = time.monotonic()
        runtime.graphLaunch(graph, stream)
        runtime.streamSynchronize(stream)
        at_once = max(1, int(_REPEAT_SECONDS / (time.monotonic() - began)))

        def queue(event: int) -> None:
            for _ in range(at_once):
                runtime.graphLaunch(graph, stream)
            runtime.eventRecord(event, stream)

        ended, running, waiting = 1, self._start, self._stop
        queue(running)
        while True:
            queue(waiting)
            runtime.eventSynchronize(running)
            ended += at_once
            if not go_on(ended):
                break
            running, waiting = waiting, running
        runtime.deviceSynchronize()
        self._active = time.monotonic()

    def close(self) -> None:
        """Destroy the events."""
        self._cuda.runtime.eventDestroy(self._start)
        self._cuda.runtime.eventDestroy(self._stop)


class CudaLaunchable:
    """A cell's steps on buffer sets: per step a table of argument addresses, a row for each set."""

    def __init__(
        self,
        cuda: Cuda,
        device: Device,
        clock: Clock,
        module: CudaModule,
        cell: CellPlan,
        buffer_sets: CudaBufferSets,
    ) -> None:
        self._cuda, self._device, self._clock, self._buffer_sets = cuda, device, clock, buffer_sets
        self._handle = module.handles[cell.build]
        self._symbols = module.symbols[cell.build]
        self._lasting = module.lasting[cell.build]
        self._persists = module.persists
        self._late_work = LateWork()
        self._graphs = KeptGraphs(cuda, clock.streams, _GRAPHS)
        self._constants: list[tuple[str, int]] = []
        self._kept: list[NDArray[np.uint64] | NDArray[np.uint8]] = []
        with cuda.translated():
            self._scratch = buffer_sets.attach(cell.scratch)
        try:
            self._bind_constants()
            self._steps = [self._bound(step) for step in cell.steps]
            if cell.dependent_steps:
                with cuda.translated():
                    buffer_sets.make_aside(self._scratch)
        except DeviceFailure as failure:
            if not failure.sticky:
                buffer_sets.detach(self._scratch)
            raise

    def trigger_compile(self, set_index: int) -> None:
        """Do nothing: loaded code is compiled."""

    def burst(
        self,
        order: Sequence[int],
        begins: Callable[[], None] = unobserved,
        late: LateWrite | None = None,
    ) -> tuple[float, ...]:
        """Replay one graph of all launches; the mean nanoseconds of a launch.

        Constants are copied to the module first: other launchables of it have other contents.
        Variables that launches change are reset before each launch of a timing, so that a memo is
        of no use: see :class:`workers.devices.port.Module`.
        """
        order = tuple(order)
        with self._cuda.translated():
            graph = self._prepared(order, late)
            touched = len(order) * self._buffer_sets.bytes_per_set
            total, outlasted = self._clock.time(
                graph, begins, cold=touched > self._device.l2_bytes, persists=self._persists
            )
        self._persists = False
        self._late_work.check(outlasted, total)
        return (total / len(order),)

    def repeat(self, order: Sequence[int], go_on: Callable[[int], bool]) -> None:
        """Replay the graph of a burst until ``go_on`` says no."""
        order = tuple(order)
        with self._cuda.translated():
            graph = self._prepared(order, None)
            self._clock.repeat(graph, lambda replays: go_on(replays * len(order)))

    def release(self) -> None:
        """Free the graphs and the scratch buffers."""
        with self._cuda.translated():
            self._graphs.close()
            self._buffer_sets.detach(self._scratch)

    def _prepared(self, order: tuple[int, ...], late: LateWrite | None) -> int:
        """The graph of a burst, with the module's constants as they are for this launchable."""
        graph = self._graphs.get((order, late), partial(self._launch, order, late))
        for name, address in self._constants:
            self._buffer_sets.copy(name, address)
        return graph

    def _bind_constants(self) -> None:
        for buffer in self._buffer_sets.buffers.values():
            if buffer.kind == "constant":
                name = buffer.symbol or buffer.name
                symbol = self._symbols.get(name, name)
                with self._cuda.translated():
                    address: int = self._cuda.driver.moduleGetGlobal(self._handle, symbol)
                self._constants.append((buffer.name, address))

    def _bound(self, step: KernelStep | MemsetStep) -> Callable[[int], None]:
        """A function that launches this step on a set."""
        if isinstance(step, MemsetStep):
            return partial(self._memset, step.argument, step.byte, self._size(step.argument))
        check_launch(step, self._device)
        function = self._cuda.function(self._handle, self._symbols[step.entry], step.shared_bytes)
        threads = math.prod(step.block)
        if threads > (most := self._cuda.max_threads(function)):
            raise DeviceFailure(
                Code.THREADS, f"a block of {threads} threads; {step.entry} can have {most}"
            )
        table = self._table(step.arguments)
        row, first = table.strides[0], table.ctypes.data
        launch = launcher(self._cuda.driver, function, step, self._clock.streams.capture)
        return lambda index: launch(first + index * row)

    def _table(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """Addresses of the arguments' values: a row per set, as the driver reads them."""
        sets = self._buffer_sets.sets
        pointers = np.zeros((sets, max(len(names), 1)), np.uint64)
        places = (pointers.ctypes.data + 8 * np.arange(pointers.size)).astype(np.uint64)
        table = places.reshape(pointers.shape)
        self._kept += [pointers, table]
        for column, name in enumerate(names):
            if name in self._buffer_sets.values:
                value = np.frombuffer(self._buffer_sets.values[name].ljust(8, b"\0"), np.uint8)
                table[:, column] = value.ctypes.data
                self._kept.append(value)
            else:
                owner = self._owner(name)
                pointers[:, column] = [owner.address(index, name) for index in range(sets)]
        return table

    def _owner(self, name: str) -> Slab | CudaBufferSets:
        return self._scratch if name in self._scratch.layout.offsets else self._buffer_sets

    def _size(self, name: str) -> int:
        sizes = self._scratch.layout.sizes
        return sizes[name] if name in sizes else self._buffer_sets.buffers[name].size

    def _memset(self, name: str, byte: int, size: int, index: int) -> None:
        place = self._owner(name).address(index, name)
        self._cuda.runtime.memsetAsync(place, byte, size, self._clock.streams.capture)

    def _reset(self) -> None:
        """Give the module's variables their first values."""
        for kept in self._lasting:
            stream = self._clock.streams.capture
            self._cuda.runtime.memcpyAsync(kept.address, kept.aside, kept.size, ON_DEVICE, stream)

    def _launch(self, order: tuple[int, ...], late: LateWrite | None) -> None:
        for place, index in enumerate(order, 1):
            if len(order) > 1 or self._buffer_sets.sets == 1:
                self._reset()
            for number, step in enumerate(self._steps):
                if late is not None and place == len(order) and number == late.step:
                    stream = self._clock.streams.capture
                    self._buffer_sets.write_late(index, self._scratch, late.stale, stream)
                step(index)
