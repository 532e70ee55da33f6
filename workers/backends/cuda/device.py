"""CUDA devices: opening one, and the plan of its timing."""

import contextlib
from collections.abc import Sequence
from functools import cached_property

from tuner.device import Device
from tuner.experiment.model import Cache
from tuner.plan import Binary, CellPlan
from tuner.telemetry import Vitals
from workers.backends.cuda.checks import Checks
from workers.backends.cuda.driver import identity, import_cuda, select
from workers.backends.cuda.launch import Clock, CudaLaunchable, CudaModule
from workers.backends.cuda.memory import CudaBufferSets
from workers.backends.cuda.nvml import Nvml
from workers.backends.cuda.pinned import PinnedFiles
from workers.backends.cuda.streams import Streams
from workers.devices.port import DeviceFailure, Rotation, Staged

_COLD_BYTES = 160_000_000
_COLD_CACHES = 3
"""A cold burst touches at least so many bytes, and so many times the last-level cache."""

_MAX_SETS = 2048
"""More sets cost more to restore than a cold cache is worth."""

_HOT_SHARE = 2
"""One part in so many of the last-level cache holds the sets of a hot burst; the rest, at least one
set, is for the image from which they are restored."""

_SHARE = 64
"""One part in so many of a device's memory may hold sets beyond what a cold cache needs."""

_BURSTS = 5
"""Timed bursts of the usual hundred repeats; of fewer repeats there are fewer."""

_LEAST_LAUNCHES = 100
_LEAST_BYTES = 700_000_000
"""A burst has so many launches, or touches so many bytes, that its start costs little."""


def open_device(index: int) -> "CudaDevice":
    """Open a CUDA device by its place among the visible ones.

    Raises:
        EnvironmentProblem: no CuPy, no driver, no such device, or no room on it.
    """
    return CudaDevice(index)


def rotation_for(device: Device, size: int, cache: Cache, warmup: int, repeats: int) -> Rotation:
    """How to time a shape of ``size`` bytes: bursts of one graph, each long enough to be timed.

    Cold bursts touch more than the cache holds, if memory allows; hot ones stay within it. A set
    that cannot stay there while it is restored is timed cold either way.
    """
    size = max(size, 1)
    if cache == "cold" or _HOT_SHARE * size > device.l2_bytes:
        needed = -(-max(_COLD_BYTES, _COLD_CACHES * device.l2_bytes) // size)
        enough = min(_LEAST_LAUNCHES, -(-_LEAST_BYTES // size))
        room = device.memory_bytes // _SHARE // size
        sets = max(needed, min(enough, room))
    else:
        sets = min(_LEAST_LAUNCHES, device.l2_bytes // _HOT_SHARE // size)
    sets = max(1, min(_MAX_SETS, sets))
    bursts = max(min(_BURSTS, -(-_BURSTS * repeats // _LEAST_LAUNCHES)), -(-repeats // sets))
    return Rotation(sets=sets, warmup=-(-warmup // sets), bursts=bursts)


class CudaDevice:
    """One device and its primary context."""

    def __init__(self, index: int) -> None:
        self._cuda = import_cuda()
        self.device = select(self._cuda, index)
        self.identity = identity(self._cuda, index)
        self._nvml = Nvml(self._cuda.runtime.deviceGetPCIBusId(index))
        with self._cuda.translated():
            self._streams = Streams(self._cuda)
            self._pinned = PinnedFiles(self._cuda, self._streams.run)

    @cached_property
    def _checks(self) -> Checks:
        """Compiled for the first shape: who only asks which device this is does not wait."""
        with self._cuda.translated():
            return Checks(self._cuda, self.device, self._streams, self._pinned)

    @cached_property
    def _clock(self) -> Clock:
        with self._cuda.translated():
            return Clock(self._cuda, self.device, self._streams, self._checks)

    def rotation(self, size: int, cache: Cache, warmup: int, repeats: int) -> Rotation:
        """See :func:`rotation_for`."""
        return rotation_for(self.device, size, cache, warmup, repeats)

    def vitals(self) -> Vitals | None:
        """The state that NVML reports."""
        return self._nvml.read()

    def millijoules(self) -> float | None:
        """The energy counter that NVML reads."""
        return self._nvml.millijoules()

    def stage(self, arguments: Sequence[Staged], sets: int) -> CudaBufferSets:
        """Allocate and fill the buffers of one shape."""
        return CudaBufferSets(self._cuda, self._checks, self._pinned, arguments, sets)

    def load(self, binaries: Sequence[Binary]) -> CudaModule:
        """Load the binaries."""
        return CudaModule(self._cuda, binaries)

    def bind(
        self, module: CudaModule, cell: CellPlan, buffer_sets: CudaBufferSets
    ) -> CudaLaunchable:
        """Check the launches against the device, allocate scratch, set the arguments."""
        return CudaLaunchable(self._cuda, self.device, self._clock, module, cell, buffer_sets)

    def close(self) -> None:
        """Free the bench's own resources; the driver frees the rest with the process."""
        with contextlib.suppress(DeviceFailure), self._cuda.translated():
            if "_clock" in self.__dict__:
                self._clock.close()
            if "_checks" in self.__dict__:
                self._checks.close()
            self._pinned.close()
            self._streams.close()
