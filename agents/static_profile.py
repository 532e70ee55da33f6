"""What a kernel's binary and its times say without a profiler.

Owns the wording for briefs and reports. Runs no compiler and touches no device.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from tuner.backends.registry import traits_of
from tuner.candidate import Candidate
from tuner.device import Device
from tuner.plan import CellPlan, KernelStep, Usage
from tuner.space.occupancy import occupancy

_MOST_KINDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticProfile:
    """Resource usage and occupancy of a kernel's first launch; ``None`` where unknown."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    usage: Usage | None = None
    occupancy: float | None = None

    def __str__(self) -> str:
        usage = self.usage or Usage()
        amounts = (
            (usage.registers, "registers per thread"),
            (usage.spill_bytes, "bytes spilled"),
            (usage.static_shared_bytes or None, "bytes of static shared memory"),
        )
        parts = [f"{amount} {unit}" for amount, unit in amounts if amount is not None]
        if self.occupancy is not None:
            parts.append(f"occupancy {100 * self.occupancy:.0f} %")
        if usage.mix:
            kinds = ", ".join(f"{count} {kind}" for kind, count in usage.mix[:_MOST_KINDS])
            parts.append(f"instructions in the code: {kinds}")
        return "; ".join(parts)


UNKNOWN = StaticProfile()


def roofline(
    floors: Iterable[float | None], times: Iterable[float | None]
) -> tuple[float, float] | None:
    """Lowest and highest share of the possible speed over the shapes; ``None`` if unknown."""
    shares = [floor / time for floor, time in zip(floors, times, strict=True) if floor and time]
    return (min(shares), max(shares)) if shares else None


def static_profile(candidate: Candidate, device: Device) -> StaticProfile:
    """Of the first launch on the first shape that it can serve."""
    for cell in candidate.plan.cells:
        if not isinstance(cell, CellPlan):
            continue
        for step in cell.steps:
            if not isinstance(step, KernelStep):
                continue
            usage = dict(candidate.binaries[cell.build].usage).get(step.entry)
            rules = traits_of(device.backend).allocation
            if usage is None or usage.registers is None or rules is None:
                return StaticProfile(usage=usage)
            shared = (usage.static_shared_bytes or 0) + step.shared_bytes
            threads = math.prod(step.block)
            fraction = occupancy(device, threads, usage.registers, shared)
            return StaticProfile(usage=usage, occupancy=fraction)
    return UNKNOWN
