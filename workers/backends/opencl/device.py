"""OpenCL devices through pyopencl: PoCL on a CPU, or any other platform.

Owns how timings rotate through buffer sets, and what is made on a device.
"""

import contextlib
import re
from collections.abc import Sequence
from typing import Any

from tuner.errors import EnvironmentProblem
from tuner.experiment.model import Cache
from tuner.plan import Binary, CellPlan
from workers.backends.opencl.branches import BranchHistory
from workers.backends.opencl.driver import OpenCL
from workers.backends.opencl.launch import OpenCLLaunchable, OpenCLModule
from workers.backends.opencl.memory import OpenCLBufferSets
from workers.backends.opencl.platforms import opencl_devices
from workers.backends.opencl.regions import Bytes, DeviceRegion, HostRegion, LocalMemory, Region
from workers.devices.port import Rotation, Staged

_COLD_BYTES = 16 << 20
_COLD_SETS = 16


def count_devices() -> int:
    """How many devices there are; raises as :func:`opencl_devices`."""
    return len(opencl_devices())


def open_device(index: int) -> "OpenCLDevice":
    """Open a device by its place in :func:`opencl_devices`."""
    found = opencl_devices()
    if not 0 <= index < len(found):
        raise EnvironmentProblem(f"no OpenCL device {index}: there are {len(found)}")
    return OpenCLDevice(found[index], index)


class OpenCLDevice:
    """One device, and what is made on it."""

    def __init__(self, handle: Any, index: int) -> None:
        self.opencl = OpenCL(handle)
        self.device = self.opencl.device
        name = f"opencl-{handle.platform.name.strip()}-{self.device.name}-{index}"
        self.identity = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
        with self.opencl.translated():
            self._local_memory = LocalMemory(self.opencl)
            self._branches = BranchHistory(self.opencl)

    def rotation(self, size: int, cache: Cache, warmup: int, repeats: int) -> Rotation:
        """Cold rotates over twice the last-level cache, within a cap; hot restores each launch."""
        if cache == "hot":
            return Rotation(sets=1, warmup=warmup, bursts=repeats)
        wanted = min(2 * self.device.l2_bytes, _COLD_BYTES)
        sets = max(2, min(_COLD_SETS, -(-wanted // max(size, 1))))
        return Rotation(sets=sets, warmup=-(-warmup // sets), bursts=-(-repeats // sets))

    def forget_branches(self) -> None:
        """Let the processor forget which way the branches of kernels went."""
        with self.opencl.translated():
            self._branches.forget()

    def vitals(self) -> None:
        """``None``: OpenCL reports no clocks and temperatures."""

    def stage(self, arguments: Sequence[Staged], sets: int) -> OpenCLBufferSets:
        """Allocate and fill the buffers of one shape."""
        with self.opencl.translated():
            return OpenCLBufferSets(self.opencl, self.region, self._local_memory, arguments, sets)

    def load(self, binaries: Sequence[Binary]) -> OpenCLModule:
        """Create one program per binary."""
        with self.opencl.translated():
            return OpenCLModule(self.opencl, binaries)

    def bind(
        self, module: OpenCLModule, cell: CellPlan, buffer_sets: OpenCLBufferSets
    ) -> OpenCLLaunchable:
        """Check the launches, allocate scratch, set every argument of every set."""
        with self.opencl.translated():
            return OpenCLLaunchable(self.opencl, module, cell, buffer_sets)

    def region(self, size: int, align: int, guard: Bytes, **access: bool) -> Region:
        """Guarded memory; ``access`` is that of a :class:`HostRegion`, and of no other."""
        if self.device.is_cpu:
            return HostRegion(self.opencl, size, align, guard, **access)
        return DeviceRegion(self.opencl, size, guard)

    def close(self) -> None:
        """Wait for the queue; the driver frees the rest."""
        with contextlib.suppress(self.opencl.cl.Error):
            self.opencl.queue.finish()
