"""What a kernel's binary and its times say without a profiler.

Owns the wording for briefs and reports. Knows neither compilers nor devices.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from tuner.plan import Usage

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
