"""A stand-in for a device: launches are Python functions over the bytes of the buffers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tests.workers.interposer.recordings import captured_launch
from workers.interposer.recording import Launch
from workers.replay.port import Change, Poison, ReplayFailed, ReplayLaunch, Window

Kernel = Callable[..., None]
"""Takes a writable byte array for each pointer and the raw bytes of each other parameter."""


class StandIn:
    """Port ``Replay``: runs ``kernel`` on copies of the buffers."""

    def __init__(self, kernel: Kernel, launch: ReplayLaunch, buffers: Sequence[bytes]) -> None:
        self._kernel, self._launch, self._buffers = kernel, launch, buffers
        self.runs = 0

    def run(
        self, changes: Sequence[Change | Poison] = (), windows: Sequence[Window] | None = None
    ) -> list[bytes]:
        self.runs += 1
        buffers = [np.frombuffer(contents, np.uint8).copy() for contents in self._buffers]
        for one in changes:
            change = one if isinstance(one, Change) else one.change(self._buffers[one.buffer])
            data = np.frombuffer(change.data, np.uint8)
            buffers[change.buffer][change.start : change.start + data.size] = data
        arguments: list[object] = [bytes.fromhex(raw) for raw in self._launch.parameters]
        for pointer in self._launch.pointers:
            arguments[pointer.parameter] = buffers[pointer.buffer][pointer.offset :]
        try:
            with np.errstate(all="ignore"):
                self._kernel(*arguments)
        except IndexError:
            raise ReplayFailed("illegal address") from None
        if windows is None:
            return [buffer.tobytes() for buffer in buffers]
        return [buffers[w.buffer][w.start : w.end].tobytes() for w in windows]

    def close(self) -> None:
        pass


def opener(kernel: Kernel):
    """Opens a stand-in, as ``derive`` wants it."""
    return lambda launch, image, buffers: StandIn(kernel, launch, buffers)


def launched(folder: Path, kernel: Kernel, *arguments: object, **more: object) -> Launch:
    """A captured launch of ``kernel``: arrays are buffers, NumPy scalars are passed by value."""
    arrays = [a.copy() if isinstance(a, np.ndarray) else a.tobytes() for a in arguments]
    with np.errstate(all="ignore"):
        kernel(*(a.view(np.uint8) if isinstance(a, np.ndarray) else a for a in arrays))
    given = [
        (was.tobytes(), now.tobytes()) if isinstance(was, np.ndarray) else now
        for was, now in zip(arguments, arrays, strict=True)
    ]
    return captured_launch(folder, given, **more)
