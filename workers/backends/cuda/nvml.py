"""A GPU's state from NVIDIA's management library: clocks, power, temperature, throttling.

Optional: unknown without the library, the driver or the permission.
"""

import math
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from uuid import UUID

from tuner.process_stat import process_stat
from tuner.telemetry import Vitals
from workers.devices.occupants import PROCESSES, Occupant, of_other_users

_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of the reasons that invalidate a timing; idle or fixed clocks do not."""


FRESH_SECONDS = 0.05
"""A state so old is current: the driver updates power and throttling every 20 to 100 ms, and asking
takes longer than a short burst."""

_LIST_SECONDS, _LIST_SHARE = 1.0, 0.01
"""Interval between two listings of a GPU's processes, and the share of the time that they may take:
one took 40 ms on an H200."""


def parent_of(pid: int) -> int | None:
    """The parent of a process, ``None`` if there is no such process here."""
    found = process_stat(pid)
    return None if found is None else found.parent


def children_of(pid: int) -> int:
    """How many children a process has, as far as that can be read."""
    try:
        return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    except OSError:
        return 0


def count_others(
    pids: Collection[int],
    parent: Callable[[int], int | None] = parent_of,
    children: Callable[[int], int] = children_of,
) -> int:
    """How many processes on a GPU are neither this one nor another child of its parent.

    In a container the driver may list the host's process ids: then the parent's children are among
    them under other ids.
    """
    own = os.getpid()
    family = parent(own)
    if own not in pids:
        return max(0, len(pids) - max(1, children(family) if family else 0))
    return sum(pid != own and parent(pid) != family for pid in pids)


def occupants(identity: str, processes: Path = PROCESSES) -> tuple[Occupant, ...]:
    """Other users' processes on a GPU, or on a slice of one; none where the library does not tell.

    Args:
        identity: the device's, which ends with its UUID in hexadecimal digits.
        processes: where the host lists its processes.
    """
    try:
        import pynvml

        name = UUID(identity.rpartition("-")[2])
        pynvml.nvmlInit()
        handle = _by_uuid(pynvml, str(name))
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:  # no library, no driver, no permission, or no UUID
        return ()
    return of_other_users((process.pid for process in found), processes)


def _by_uuid(pynvml: Any, uuid: str) -> Any:
    """The handle of a GPU, or of a MIG slice."""
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())
    except pynvml.NVMLError:
        return pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}".encode())


class Nvml:
    """One GPU, by its PCI bus id."""

    def __init__(self, bus: str) -> None:
        self._nvml: Any = None
        self._others, self._list_at = 0, -math.inf
        self._last: tuple[float, Vitals | None] = -math.inf, None
        self._split: bool | None = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
        except Exception:
            return
        self._nvml = pynvml

    def read(self) -> Vitals | None:
        """The GPU's state now, or a moment ago; ``None`` if unknown."""
        read_at, found = self._last
        if time.monotonic() - read_at >= FRESH_SECONDS:
            found = self._read()
            self._last = time.monotonic(), found
        return found

    def millijoules(self) -> float | None:
        """The GPU's energy since the driver was loaded; ``None`` if unknown, or split by MIG."""
        nvml = self._nvml
        if nvml is None or self._is_split():
            return None
        try:
            return float(nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except nvml.NVMLError:
            return None

    def _is_split(self) -> bool:
        """Whether the GPU is split into slices, which share its counter."""
        if self._split is None:
            try:
                current, _ = self._nvml.nvmlDeviceGetMigMode(self._handle)
            except self._nvml.NVMLError:  # a GPU that cannot be split
                current = 0
            self._split = bool(current)
        return self._split

    def _read(self) -> Vitals | None:
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            bits = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
            return Vitals(
                sm_mhz=int(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
                memory_mhz=int(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_MEM)),
                watts=nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000,
                celsius=int(nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)),
                throttled=tuple(word for bit, word in _REASONS.items() if bits & bit),
                others=self._count(),
            )
        except nvml.NVMLError:
            return None

    def _count(self) -> int:
        if (began := time.monotonic()) >= self._list_at:
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
            self._others = count_others([process.pid for process in found])
            ended = time.monotonic()
            self._list_at = ended + max(_LIST_SECONDS, (ended - began) / _LIST_SHARE)
        return self._others
