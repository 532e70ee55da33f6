"""Refuses impossible times: faster than memory or an empty launch allow, or than the host saw."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.device import Device
from tuner.experiment.model import Cache
from tuner.trial import Code
from workers.devices.port import DeviceFailure, Rotation

_PINS = 0.95
"""Share of the pins' bandwidth that no kernel exceeds; leaves room for the clock's error."""
_EMPTY = 0.5
"""Share of an empty launch's time that no kernel falls below; leaves room for changed clocks."""

CLOCKS_DIFFER, CLOCK_NS = 0.01, 100_000
"""How far a device's clock may run ahead of the host's: a share, and nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bytes that must be moved, by shape, where known; an empty launch in nanoseconds."""

    device: Device
    least_bytes: Mapping[int, int]
    launch_ns: float = 0.0

    def refuse(self, shape: int, cache: Cache, rotation: Rotation, median_ns: float) -> None:
        """Check the median time of a launch.

        Data that was in the last-level cache need not have been moved, so hot times are compared
        with an empty launch only.

        Raises:
            DeviceFailure: the time is impossible.
        """
        if median_ns < _EMPTY * self.launch_ns:
            detail = f"{median_ns:.0f} ns, where an empty launch takes {self.launch_ns:.0f}"
            raise DeviceFailure(Code.IMPOSSIBLE_TIME, detail)
        pins, moved = self.device.memory_bytes_per_second, self.least_bytes.get(shape, 0)
        if cache == "hot" or not pins or rotation.sets * moved < self.device.l2_bytes:
            return
        cached = 2 * self.device.l2_bytes
        least_ns = _PINS * (moved - cached / rotation.sets) / pins * 1e9
        if median_ns < least_ns:
            detail = (
                f"{median_ns:.0f} ns for cost.bytes of {moved}: "
                f"the memory's pins need {least_ns:.0f}"
            )
            raise DeviceFailure(Code.IMPOSSIBLE_TIME, detail)


def refuse_implausible(times: Sequence[float], launches: int, host_ns: float) -> None:
    """Check a burst's times against the host's clock.

    Raises:
        DeviceFailure: they are no times, or sum up to more than passed on the host.
    """
    if len(times) not in (1, launches) or not all(math.isfinite(t) and t > 0 for t in times):
        raise DeviceFailure(Code.IMPOSSIBLE_TIME, f"the device reports times of {times[:3]} ns")
    total = sum(times) * launches / len(times)
    if not total <= host_ns * (1 + CLOCKS_DIFFER) + CLOCK_NS:
        detail = (
            f"the device reports {total:.0f} ns for launches that took {host_ns:.0f} on the host"
        )
        raise DeviceFailure(Code.IMPOSSIBLE_TIME, detail)
