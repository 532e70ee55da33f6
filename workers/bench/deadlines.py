"""How long requests to a bench child may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long the child may take, in seconds.

    A launch may take ``max(launch, factor × baseline)``, or longer where buffers are filled before
    it, ``filled`` bytes a second: files are read and, for a GPU, pinned. A first launch that
    compiles may take ``first``, a request that launches nothing ``control``. In a burst, every
    launch but one may take ``slower`` times as long as the kernel's slowest one so far, so that a
    hang costs little more than one launch's deadline. On a busy GPU a trap was told only after more
    than a second.
    """

    launch: float = 3.0
    factor: float = 200.0
    slower: float = 10.0
    first: float = 20.0
    control: float = 60.0
    filled: float = 2.0**28

    def of(self, baseline_ns: float, size: int = 0) -> float:
        """For one launch, given the baseline's time and the bytes of the buffers."""
        return max(self.launch, self.factor * baseline_ns * 1e-9, size / self.filled)

    def burst(self, slowest: float, launches: int, seen_ns: float) -> float:
        """For a burst; ``seen_ns`` is the kernel's slowest launch so far, 0 if unknown."""
        others = min(slowest, self.slower * seen_ns * 1e-9) if seen_ns else slowest
        return slowest + others * (launches - 1)
