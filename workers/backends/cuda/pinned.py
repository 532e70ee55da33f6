"""Files in pinned host memory, copied to a CUDA device at full bus speed.

Contents and oracles stay here, outside device memory, until they are needed there.
"""

import ctypes
from collections import OrderedDict
from pathlib import Path

from workers.backends.cuda.driver import TO_DEVICE, Cuda

_CAPACITY = 4 << 30


class PinnedFiles:
    """Files by path; a path always holds the same bytes. Evicts the least recently used."""

    def __init__(self, cuda: Cuda, stream: int, capacity: int = _CAPACITY) -> None:
        self._cuda, self._stream, self._capacity = cuda, stream, capacity
        self._files: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._total = 0

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return self._pinned(path)[1]

    def copy(self, path: str, to: int) -> None:
        """Queue the copy of a file to device memory."""
        host, size = self._pinned(path)
        self._cuda.runtime.memcpyAsync(to, host, size, TO_DEVICE, self._stream)

    def close(self) -> None:
        """Free the memory."""
        while self._files:
            self._evict()

    def _pinned(self, path: str) -> tuple[int, int]:
        if path in self._files:
            self._files.move_to_end(path)
            return self._files[path]
        size = Path(path).stat().st_size
        while self._files and self._total + size > self._capacity:
            self._evict()
        host: int = self._cuda.runtime.hostAlloc(max(size, 1), 0)
        with Path(path).open("rb") as file:
            read = file.readinto((ctypes.c_char * size).from_address(host))
        if read != size:
            self._cuda.runtime.freeHost(host)
            raise OSError(f"{path}: read {read} of {size} bytes")
        self._files[path] = (host, size)
        self._total += size
        return host, size

    def _evict(self) -> None:
        self._cuda.runtime.streamSynchronize(self._stream)
        _, (host, size) = self._files.popitem(last=False)
        self._cuda.runtime.freeHost(host)
        self._total -= size
