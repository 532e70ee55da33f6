"""What a capture tells of one kernel: launches, scalars, memory behind pointers.

:mod:`workers.replay.derive` makes it of a recording, :mod:`tuner.drafts.captured_spec` drafts a
spec of it.
"""

from dataclasses import dataclass

from tuner.drafts.guesses import Guess
from tuner.plan import Dim3

Extent = tuple[int, int]
"""First byte and the byte after the last, from where the pointer points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one launch does with the memory behind a pointer.

    ``dense``: every byte of ``written`` is. ``fault``: changed contents crashed the launch, as
    changed indices and pointers do. ``address`` is the pointer's in the application. ``replayed``:
    found by replay; otherwise only what changed is known, and reads reach to the buffer's end.
    """

    read: Extent | None
    written: Extent | None
    dense: bool
    fault: bool
    address: int
    replayed: bool

    @property
    def kind(self) -> str:
        """``in``, ``out``, ``inout``, or ``unused``; written in part is ``inout``."""
        if self.written is None:
            return "in" if self.read else "unused"
        return "inout" if self.read or not self.dense or self.written[0] else "out"

    @property
    def bytes(self) -> int:
        """How far the launch reaches."""
        return max((extent[1] for extent in (self.read, self.written) if extent), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedShape:
    """Launches with equal geometry and scalars: how many, and the memory of one, if captured.

    ``scalars`` has the raw bytes of every parameter without pointers, ``memory`` what is behind
    those with one, by parameter index. ``replay`` tells how the replay compared: ``exact``,
    ``varies`` (launches differ from each other), ``different``, ``failed: …``, or ``none``.
    """

    count: int
    grid: Dim3
    block: Dim3
    shared_bytes: int
    cooperative: bool
    cluster: Dim3 | None = None
    scalars: dict[int, bytes]
    memory: dict[int, Memory]
    replay: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedKernel:
    """A kernel of a capture; the most frequent shape is first.

    ``symbol`` is its name in the image; ``sizes`` of its parameters in bytes; ``types`` the element
    type of each pointer and scalar that has one; ``pointers`` has the indices of the parameters
    that are pointers, null ones included. ``unsupported`` says what no spec can express.
    """

    symbol: str
    sizes: tuple[int, ...]
    types: dict[int, Guess]
    pointers: frozenset[int]
    shapes: tuple[CapturedShape, ...]
    unsupported: tuple[str, ...] = ()
