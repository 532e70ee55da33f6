"""What a device can do at most, as measured by kernels that do nothing else.

Beside it a kernel's time says how much is left. Measured once for each device and epoch, the same
way as any candidate; the memory's pin bandwidth, which nothing can beat, is
:attr:`tuner.device.Device.memory_bytes_per_second`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Rates per second and one time.

    ``copy_bytes_per_second`` counts bytes read and bytes written by a copy of more than the caches
    hold; ``launch_ns`` is an empty kernel's time; ``products`` has the operations per second of a
    plain matrix product, by element type. A better product exists for every device: it is for
    comparison, not a limit.
    """

    copy_bytes_per_second: float
    launch_ns: float
    products: tuple[tuple[str, float], ...] = ()

    def least_ns(self, moved: int | None) -> float | None:
        """The time of a copy that moves as many bytes, or of an empty launch if that is longer."""
        if moved is None:
            return None
        return max(self.launch_ns, moved / self.copy_bytes_per_second * 1e9)

    def __str__(self) -> str:
        products = [f"{_rate(rate, 'flop/s')} ({dtype})" for dtype, rate in self.products]
        multiplies = f"multiplies matrices at {', '.join(products)}, " if products else ""
        return (
            f"copies {_rate(self.copy_bytes_per_second, 'B/s')}, {multiplies}"
            f"launches nothing in {self.launch_ns / 1e3:.3g} µs"
        )


def _rate(rate: float, unit: str) -> str:
    return f"{rate / 1e12:.3g} T{unit}" if rate >= 1e12 else f"{rate / 1e9:.3g} G{unit}"
