"""The port of replay: one captured launch on a device, run again with bytes of its memory changed.

Runs inside the replay process, since a changed index or pointer crashes a kernel; decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
from pydantic import Field

from workers.interposer.recording import Pointer

Size = tuple[int, int, int]
Index = Annotated[int, Field(ge=0)]


class ReplayFailed(Exception):
    """A launch failed, crashed or hung; the next one finds a fresh process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayLaunch:
    """A launch: kernel by its name in the image, geometry, and parameters as raw hexadecimal bytes.

    ``addresses`` are those of the buffers in the application: new ones are aligned alike.
    """

    symbol: str
    grid: Size
    block: Size
    shared_bytes: int
    cooperative: bool
    cluster: Size = (1, 1, 1)
    parameters: tuple[str, ...]
    pointers: tuple[Pointer, ...]
    addresses: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes that a buffer holds from ``start`` on instead of the captured ones."""

    buffer: int
    start: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Poison:
    """Bytes of a buffer that are combined with ``flip`` by exclusive or; zeros if it is 0."""

    buffer: Index
    start: Index
    end: Index
    flip: Annotated[int, Field(ge=0, lt=256)]

    def change(self, contents: bytes) -> Change:
        """The same as a change of a buffer with these contents."""
        held = np.frombuffer(contents, np.uint8)[self.start : self.end]
        data = held ^ np.uint8(self.flip) if self.flip else np.zeros_like(held)
        return Change(self.buffer, self.start, data.tobytes())


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes of a buffer that are read back."""

    buffer: Index
    start: Index
    end: Index


class ReplayDevice(Protocol):
    """One device with at most one launch on it. All methods raise ``DeviceFailure``."""

    def open(self, launch: ReplayLaunch, image: bytes, buffers: Sequence[bytes]) -> None:
        """Load the image (cubin, fatbin or PTX) and fill the buffers; the last launch is freed."""

    def run(self, changes: Sequence[Change], windows: Sequence[Window]) -> list[bytes]:
        """Restore all buffers, make the changes, launch, wait; return what the windows show."""


class Replay(Protocol):
    """One captured launch that can be run again and again."""

    def run(
        self, changes: Sequence[Change | Poison] = (), windows: Sequence[Window] | None = None
    ) -> list[bytes]:
        """What windows show after one launch on the captured contents with these changes.

        By default all buffers. Poisons cost no transfer between processes.

        Raises:
            ReplayFailed: the launch failed, crashed or hung.
        """

    def close(self) -> None:
        """Let go of the device."""
