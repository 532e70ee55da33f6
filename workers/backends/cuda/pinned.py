"""Files in pinned host memory, copied to a CUDA device at full bus speed.

Contents and oracles stay here, outside device memory, until they are needed there.
"""

import ctypes
import os
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workers.backends.cuda.driver import TO_DEVICE, Cuda

_CAPACITY = 4 << 30


@dataclass(frozen=True, slots=True, order=True)
class _Block:
    """Pinned memory: bytes, and where they begin."""

    size: int
    host: int


class PinnedFiles:
    """Files by path; a path always holds the same bytes. Evicts the least recently used.

    Pinning memory takes as long as copying it several times, so that of forgotten files is kept.
    """

    def __init__(self, cuda: Cuda, stream: int, capacity: int = _CAPACITY) -> None:
        self._cuda, self._stream, self._capacity = cuda, stream, capacity
        self._files: OrderedDict[str, tuple[_Block, int]] = OrderedDict()
        self._spare: list[_Block] = []
        self._total = 0

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return self._pinned(path)[1]

    def copy(self, path: str, to: int) -> None:
        """Queue the copy of a file to device memory."""
        block, size = self._pinned(path)
        self._cuda.runtime.memcpyAsync(to, block.host, size, TO_DEVICE, self._stream)

    def forget(self, paths: Iterable[str]) -> None:
        """Use the memory of these files for others."""
        for path in paths:
            if path in self._files:
                self._spare.append(self._files.pop(path)[0])

    def close(self) -> None:
        """Free the memory."""
        self.forget([*self._files])
        while self._spare:
            self._free()

    def _pinned(self, path: str) -> tuple[_Block, int]:
        if path in self._files:
            self._files.move_to_end(path)
            return self._files[path]
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            block = self._block(max(size, 1))
            read = file.readinto((ctypes.c_char * size).from_address(block.host))
        if read != size:
            self._spare.append(block)
            raise OSError(f"{path}: read {read} of {size} bytes")
        self._files[path] = block, size
        return self._files[path]

    def _block(self, size: int) -> _Block:
        """The smallest spare block of this size at least, or a new one where there is room."""
        while not (fitting := [block for block in self._spare if block.size >= size]):
            if not self._total or self._total + size <= self._capacity:
                block = _Block(size, self._cuda.runtime.hostAlloc(size, 0))
                self._total += size
                return block
            if self._spare:
                self._free()
            else:
                self.forget([next(iter(self._files))])
        self._spare.remove(min(fitting))
        self._cuda.runtime.streamSynchronize(self._stream)  # it may yet be copied
        return min(fitting)

    def _free(self) -> None:
        """Free a spare block."""
        block = self._spare.pop()
        self._cuda.runtime.streamSynchronize(self._stream)
        self._cuda.runtime.freeHost(block.host)
        self._total -= block.size
