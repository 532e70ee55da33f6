"""Times that no kernel can have: less than the memory's pins, or than an empty launch, allow.

Owns those bounds for one device and experiment. What a time is compared with is for
:mod:`workers.bench.session`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.device import Device
from tuner.experiment.model import Cache
from tuner.trial import Code
from workers.devices.port import DeviceFailure, Rotation

_PINS = 0.95
"""The share of the pins' rate that nothing can be faster than, the clock's own error allowed."""
_EMPTY = 0.5
"""The share of an empty launch that nothing can be faster than, whatever the clocks were then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What must be moved at least, in bytes by shape, where it is known; an empty launch in ns."""

    device: Device
    least_bytes: Mapping[int, int]
    launch_ns: float = 0.0

    def refuse(self, shape: int, cache: Cache, rotation: Rotation, median_ns: float) -> None:
        """Judge the median time of a launch.

        What may still lie in the last-level cache, from before a burst or after it, need not have
        been moved; so hot times are held against an empty launch alone.

        Raises:
            DeviceFailure: it cannot be.
        """
        if median_ns < _EMPTY * self.launch_ns:
            detail = f"{median_ns:.0f} ns, where an empty launch takes {self.launch_ns:.0f}"
            raise DeviceFailure(Code.IMPOSSIBLE_TIME, detail)
        pins, moved = self.device.memory_bytes_per_second, self.least_bytes.get(shape, 0)
        if cache == "hot" or not pins or rotation.sets * moved < self.device.l2_bytes:
            return
        cached = 2 * self.device.l2_bytes
        least_ns = _PINS * (moved - cached / rotation.launches) / pins * 1e9
        if median_ns < least_ns:
            detail = (
                f"{median_ns:.0f} ns for cost.bytes of {moved}: "
                f"the memory's pins need {least_ns:.0f}"
            )
            raise DeviceFailure(Code.IMPOSSIBLE_TIME, detail)
