"""Replays captured launches on a CUDA device: raw parameters, buffers aligned as they were."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.plan import KernelStep
from workers.backends.cuda.attributes import launcher
from workers.backends.cuda.driver import (
    ON_DEVICE,
    TO_DEVICE,
    TO_HOST,
    Cuda,
    import_cuda,
    select,
)
from workers.replay.port import Change, ReplayLaunch, Window

_ALIGN = 512
"""New buffers keep their address modulo this: no vector access and no texture asks for more."""

_SLACK = 512
"""Bytes behind a buffer that an access beyond its end may reach without a fault."""


def open_replay(index: int) -> "CudaReplay":
    """A replay device by its place among the visible ones.

    Raises:
        EnvironmentProblem: no CuPy, no driver, no such device, or no room on it.
    """
    cuda = import_cuda()
    select(cuda, index)
    return CudaReplay(cuda)


class CudaReplay:
    """Port :class:`workers.replay.port.ReplayDevice`. Never times, so it launches directly."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._module = 0
        self._allocated: list[int] = []

    def open(self, launch: ReplayLaunch, image: bytes, buffers: Sequence[bytes]) -> None:
        """Load the image, allocate each buffer twice (one keeps the contents), fill parameters."""
        self._free()
        with self._cuda.translated():
            self._module = self._cuda.driver.moduleLoadData(image + b"\0")
        function = self._cuda.function(self._module, launch.symbol, launch.shared_bytes)
        self._launch = launcher(self._cuda.driver, function, _step(launch), 0)
        self._sizes = [len(contents) for contents in buffers]
        with self._cuda.translated():
            self._kept = [self._filled(contents) for contents in buffers]
            self._used = [
                self._place(size, address % _ALIGN)
                for size, address in zip(self._sizes, launch.addresses, strict=True)
            ]
        self._parameters = [_words(bytes.fromhex(raw)) for raw in launch.parameters]
        for pointer in launch.pointers:
            address = np.array(self._used[pointer.buffer] + pointer.offset, np.uint64)
            raw = self._parameters[pointer.parameter].view(np.uint8)
            raw[pointer.at : pointer.at + 8] = address.reshape(1).view(np.uint8)
        places = [parameter.ctypes.data for parameter in self._parameters]
        self._table = np.array(places or [0], np.uint64)

    def run(self, changes: Sequence[Change], windows: Sequence[Window]) -> list[bytes]:
        """Restore, change, launch, wait, read back."""
        runtime = self._cuda.runtime
        with self._cuda.translated():
            for used, kept, size in zip(self._used, self._kept, self._sizes, strict=True):
                runtime.memcpy(used, kept, size, ON_DEVICE)
            for change in changes:
                data = np.frombuffer(change.data, np.uint8)
                place = self._used[change.buffer] + change.start
                runtime.memcpy(place, data.ctypes.data, data.size, TO_DEVICE)
            self._launch(self._table.ctypes.data)
            runtime.deviceSynchronize()
            return [
                self._read(self._used[window.buffer] + window.start, window.end - window.start)
                for window in windows
            ]

    def _filled(self, contents: bytes) -> int:
        data = np.frombuffer(contents, np.uint8)
        place = self._place(data.size, 0)
        self._cuda.runtime.memcpy(place, data.ctypes.data, data.size, TO_DEVICE)
        return place

    def _place(self, size: int, remainder: int) -> int:
        """A new buffer at an address with this remainder."""
        allocated: int = self._cuda.runtime.malloc(size + 2 * _ALIGN + _SLACK)
        self._allocated.append(allocated)
        return -(-allocated // _ALIGN) * _ALIGN + remainder

    def _read(self, place: int, size: int) -> bytes:
        data = np.empty(size, np.uint8)
        self._cuda.runtime.memcpy(data.ctypes.data, place, size, TO_HOST)
        return data.tobytes()

    def _free(self) -> None:
        with self._cuda.translated():
            while self._allocated:
                self._cuda.runtime.free(self._allocated.pop())
            if self._module:
                self._cuda.driver.moduleUnload(self._module)
                self._module = 0


def _step(launch: ReplayLaunch) -> KernelStep:
    """The launch as a step of a plan."""
    return KernelStep(
        entry=launch.symbol,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        cooperative=launch.cooperative,
        cluster=launch.cluster,
        arguments=(),
    )


def _words(raw: bytes) -> NDArray[np.uint64]:
    """The bytes in memory aligned to eight, as the driver reads them."""
    padded = raw.ljust(-(-max(1, len(raw)) // 8) * 8, b"\0")
    return np.frombuffer(padded, np.uint64).copy()
