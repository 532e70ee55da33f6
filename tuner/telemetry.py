"""State of a device while it was timed: clocks, power, temperature, throttling."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """One reading: MHz, watts, degrees, throttle reasons, number of foreign processes."""

    sm_mhz: int
    memory_mhz: int
    watts: float
    celsius: int
    throttled: tuple[str, ...] = ()
    others: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The least, the median and the greatest of several readings."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, readings: Sequence[float]) -> "Spread":
        """Over at least one reading."""
        return cls(low=min(readings), median=median(readings), high=max(readings))

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.low:.0f}"
        return f"{self.low:.0f}–{self.high:.0f} (median {self.median:.0f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Summary of many readings, with the number of readings by throttle reason.

    ``others`` is the largest number of foreign processes seen on the device.
    """

    looks: int
    sm_mhz: Spread
    memory_mhz: Spread
    watts: Spread
    celsius: Spread
    throttled: tuple[tuple[str, int], ...]
    others: int

    @classmethod
    def of(cls, looks: Iterable[Vitals | None]) -> "Telemetry | None":
        """The summary; ``None`` without any reading."""
        seen = [look for look in looks if look is not None]
        if not seen:
            return None
        reasons = Counter(reason for look in seen for reason in look.throttled)
        return cls(
            looks=len(seen),
            sm_mhz=Spread.of([look.sm_mhz for look in seen]),
            memory_mhz=Spread.of([look.memory_mhz for look in seen]),
            watts=Spread.of([look.watts for look in seen]),
            celsius=Spread.of([look.celsius for look in seen]),
            throttled=tuple(sorted(reasons.items())),
            others=max(look.others for look in seen),
        )

    def __str__(self) -> str:
        reasons = (f"{reason} in {count} of {self.looks}" for reason, count in self.throttled)
        text = (
            f"SM {self.sm_mhz} MHz, memory {self.memory_mhz} MHz, {self.watts} W, "
            f"{self.celsius} °C; throttled: {', '.join(reasons) or 'never'}"
        )
        if not self.others:
            return text
        return f"{text}; {self.others} other process{'es' * (self.others > 1)} on the device"
