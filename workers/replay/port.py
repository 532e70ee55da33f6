"""The port of replay: one captured launch on a device, run again with bytes of its memory changed.

Runs inside the replay process, since a changed index or pointer crashes a kernel; decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

Size = tuple[int, int, int]
Index = Annotated[int, Field(ge=0)]


class ReplayFailed(Exception):
    """A launch failed, crashed or hung; the next one finds a fresh process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerPlace:
    """The eight bytes at ``at`` of a parameter point to byte ``offset`` of a buffer."""

    parameter: Index
    at: Index
    buffer: Index
    offset: Index


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
    parameters: tuple[str, ...]
    pointers: tuple[PointerPlace, ...]
    addresses: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes that a buffer holds from ``start`` on instead of the captured ones."""

    buffer: int
    start: int
    data: bytes


class ReplayDevice(Protocol):
    """One device with at most one launch on it. All methods raise ``DeviceFailure``."""

    def open(self, launch: ReplayLaunch, image: bytes, buffers: Sequence[bytes]) -> None:
        """Load the image (cubin, fatbin or PTX) and fill the buffers; the last launch is freed."""
        ...

    def run(self, changes: Sequence[Change]) -> list[bytes]:
        """Restore all buffers, make the changes, launch, wait; return all buffers."""
        ...


class Replay(Protocol):
    """One captured launch that can be run again and again."""

    def run(self, changes: Sequence[Change] = ()) -> list[bytes]:
        """The buffers after one launch that began with the captured contents and these changes.

        Raises:
            ReplayFailed: the launch failed, crashed or hung.
        """
        ...
