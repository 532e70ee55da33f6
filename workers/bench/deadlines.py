"""How long requests to a bench child may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long the child may take, in seconds.

    A launch may take ``max(launch, factor × baseline)``, or longer where buffers are filled before
    it, ``filled`` bytes a second: files are read and, for a GPU, pinned. A first launch that
    compiles may take ``first``, a request that launches nothing ``control``. In a burst one launch
    may take that long; each other ``factor`` times as long as the baseline, and ``slower`` times as
    long as the kernel's slowest one so far. So a hang costs little more than one launch's deadline,
    and a kernel that is hopelessly slow little more than that. On a busy GPU a trap was told only
    after more than a second.
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

    def other(self, baseline_ns: float) -> float:
        """For each launch of a burst but one, given the baseline's time."""
        return self.factor * baseline_ns * 1e-9

    def burst(self, one: float, other: float | None, launches: int, seen_ns: float) -> float:
        """For a burst, given the seconds of one launch, and of each other if these may take less.

        ``seen_ns`` is the kernel's slowest launch so far, 0 if unknown.
        """
        others = min(one, one if other is None else other)
        if seen_ns:
            others = min(others, self.slower * seen_ns * 1e-9)
        return one + others * (launches - 1)
