"""Measured ceilings of a device: copy bandwidth, launch time, matrix products.

Measured once per device and epoch, like a candidate. The hard limit, the memory's pin bandwidth, is
:attr:`tuner.device.Device.memory_bytes_per_second`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Rates per second, and the time of an empty launch.

    ``copy_bytes_per_second`` counts bytes read plus written by a copy larger than the caches;
    ``products`` has the operations per second of a plain matrix product by element type, which is
    for comparison and not a limit.
    """

    copy_bytes_per_second: float
    launch_ns: float
    products: tuple[tuple[str, float], ...] = ()

    def least_ns(self, moved: int | None) -> float | None:
        """The time to copy ``moved`` bytes, or of an empty launch if longer."""
        if moved is None:
            return None
        return max(self.launch_ns, moved / self.copy_bytes_per_second * 1e9)

    def __str__(self) -> str:
        products = [f"{_rate(rate, 'flop/s')} ({dtype})" for dtype, rate in self.products]
        multiplies = f"multiplies matrices at {', '.join(products)}, " if products else ""
        return (
            f"copies {_rate(self.copy_bytes_per_second, 'B/s')}, {multiplies}"
            f"an empty launch takes {self.launch_ns / 1e3:.3g} µs"
        )


def _rate(rate: float, unit: str) -> str:
    return f"{rate / 1e12:.3g} T{unit}" if rate >= 1e12 else f"{rate / 1e9:.3g} G{unit}"
