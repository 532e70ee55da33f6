"""Guarded buffers for OpenCL: guard zones at both ends, aligned to exactly what is promised.

On a CPU device a buffer uses host memory, so that it can have any alignment and nothing is copied.
Elsewhere it is a part of a larger buffer, aligned to the device's base alignment.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workers.backends.opencl.driver import OpenCL
from workers.devices.port import GUARD_BYTES, NOISE

Bytes = NDArray[np.uint8]

_PROT_NONE = 0
_SPOILED_BYTES, _SPOILED_GROUPS = 32 << 10, 4
_SPOILER = """
kernel void spoil(local uint *memory, uint words, uint noise)
{
    for (uint i = 0; i < words; i++)
        memory[i] = noise;
}
"""


class Region(Protocol):
    """``size`` bytes of device memory between two guards."""

    buffer: Any

    def write(self, contents: Bytes) -> None:
        """Set the bytes between the guards."""

    def fill(self, byte: int) -> None:
        """Set every byte between the guards."""

    def read(self) -> Bytes:
        """The bytes between the guards; a view or a copy, not to be written to."""

    def mend(self) -> None:
        """Restore both guards."""

    def broken(self) -> tuple[str, int] | None:
        """The first changed guard byte, as (``front`` or ``back``, distance from the payload)."""


def canary(length: int, seed: int) -> Bytes:
    """Random guard bytes, which no kernel writes by chance."""
    return np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8)


class HostRegion:
    """Host memory under a buffer, for CPU devices; everything around the buffer is guarded.

    An ``is_input`` ends less than ``2 * align`` bytes before a page that cannot be read: reading
    further crashes. ``read_only`` memory only :meth:`write` and :meth:`mend` open for writing.
    """

    def __init__(
        self,
        opencl: OpenCL,
        size: int,
        align: int,
        guard: Bytes,
        *,
        is_input: bool = False,
        read_only: bool = False,
    ) -> None:
        room = size + 2 * (GUARD_BYTES + 2 * align)
        self._pages = _Pages(room, read_only=read_only) if is_input or read_only else None
        raw = self._pages.memory if self._pages else np.empty(room, np.uint8)
        start = raw.size - size if self._pages else GUARD_BYTES + 2 * align
        start -= (raw.ctypes.data + start - align) % (2 * align)
        self._payload = raw[start : start + size]
        self._front, self._back = raw[:start], raw[start + size :]
        self._guards = np.resize(guard, self._front.size), np.resize(guard, self._back.size)
        flags = opencl.cl.mem_flags.READ_WRITE | opencl.cl.mem_flags.USE_HOST_PTR
        self.buffer = opencl.cl.Buffer(opencl.context, flags, hostbuf=self._payload)

    def write(self, contents: Bytes) -> None:
        """Set the bytes between the guards."""
        with self._writable():
            self._payload[:] = contents

    def fill(self, byte: int) -> None:
        """Set every byte between the guards."""
        with self._writable():
            self._payload[:] = byte

    def read(self) -> Bytes:
        """The bytes between the guards."""
        return self._payload

    def mend(self) -> None:
        """Restore both guards."""
        with self._writable():
            self._front[:], self._back[:] = self._guards

    def broken(self) -> tuple[str, int] | None:
        """The first changed guard byte, if any."""
        return first_break((self._front, self._back), self._guards)

    def _writable(self) -> AbstractContextManager[None]:
        return self._pages.writable() if self._pages else nullcontext()


class _Pages:
    """Whole pages of memory before one that cannot be read.

    With ``read_only`` they can be written within :meth:`writable` only.
    """

    def __init__(self, size: int, *, read_only: bool) -> None:
        self._length = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._mapped = mmap.mmap(-1, self._length + mmap.PAGESIZE)
        self.memory: Bytes = np.frombuffer(self._mapped, np.uint8)[: self._length]
        self._read_only = read_only
        self._protect = ctypes.CDLL(None, use_errno=True).mprotect
        self._allow(_PROT_NONE, self._length, mmap.PAGESIZE)

    @contextmanager
    def writable(self) -> Iterator[None]:
        """Open the pages for writing."""
        if not self._read_only:
            yield
            return
        self._allow(mmap.PROT_READ | mmap.PROT_WRITE, 0, self._length)
        try:
            yield
        finally:
            self._allow(mmap.PROT_READ, 0, self._length)

    def _allow(self, access: int, start: int, length: int) -> None:
        place = ctypes.c_void_p(self.memory.ctypes.data + start)
        if self._protect(place, ctypes.c_size_t(length), access):
            raise MemoryError(f"mprotect: {os.strerror(ctypes.get_errno())}")


class DeviceRegion:
    """A part of a device buffer, for devices with memory of their own."""

    def __init__(self, opencl: OpenCL, size: int, guard: Bytes) -> None:
        self._cl, self._queue, self._guard, self._size = opencl.cl, opencl.queue, guard, size
        base_align = opencl.device.base_align
        self._start = -(-GUARD_BYTES // base_align) * base_align
        flags, room = self._cl.mem_flags.READ_WRITE, self._start + size + GUARD_BYTES
        self._arena = self._cl.Buffer(opencl.context, flags, room)
        self.buffer = self._arena.get_sub_region(self._start, size)

    def write(self, contents: Bytes) -> None:
        """Set the bytes between the guards."""
        self._copy_in(self._start, contents)

    def fill(self, byte: int) -> None:
        """Set every byte between the guards."""
        pattern = np.uint8(byte)
        self._cl.enqueue_fill_buffer(self._queue, self._arena, pattern, self._start, self._size)

    def read(self) -> Bytes:
        """The bytes between the guards."""
        return self._copy_out(self._start, self._size)

    def mend(self) -> None:
        """Restore both guards."""
        self._copy_in(self._start - GUARD_BYTES, self._guard)
        self._copy_in(self._start + self._size, self._guard)

    def broken(self) -> tuple[str, int] | None:
        """The first changed guard byte, if any."""
        front = self._copy_out(self._start - GUARD_BYTES, GUARD_BYTES)
        back = self._copy_out(self._start + self._size, GUARD_BYTES)
        return first_break((front, back), (self._guard, self._guard))

    def _copy_in(self, offset: int, contents: Bytes) -> None:
        self._cl.enqueue_copy(self._queue, self._arena, contents, dst_offset=offset)

    def _copy_out(self, offset: int, size: int) -> Bytes:
        host = np.empty(size, np.uint8)
        self._cl.enqueue_copy(self._queue, host, self._arena, src_offset=offset)
        return host


class LocalMemory:
    """Fills local memory with noise, different each time.

    A kernel that counts on zeros, or on what an earlier launch left there, goes wrong.
    """

    def __init__(self, opencl: OpenCL) -> None:
        self._cl, self._queue = opencl.cl, opencl.queue
        self._groups = (_SPOILED_GROUPS * opencl.device.multiprocessors,)
        program = self._cl.Program(opencl.context, _SPOILER).build()
        self._kernel = self._cl.Kernel(program, "spoil")
        self._noise = NOISE

    def spoil(self) -> None:
        """Fill it, and wait for that."""
        cl, words = self._cl, np.uint32(_SPOILED_BYTES // 4)
        self._noise += 1
        self._kernel.set_args(cl.LocalMemory(_SPOILED_BYTES), words, np.uint32(self._noise))
        cl.enqueue_nd_range_kernel(self._queue, self._kernel, self._groups, (1,))
        self._queue.finish()


def first_break(found: tuple[Bytes, Bytes], guards: tuple[Bytes, Bytes]) -> tuple[str, int] | None:
    """The changed guard byte nearest to the payload, front before back; distances count from 1."""
    for where, part, guard in zip(("front", "back"), found, guards, strict=True):
        wrong = np.flatnonzero(part != guard)
        if wrong.size:
            nearest = part.size - int(wrong[-1]) if where == "front" else int(wrong[0]) + 1
            return where, nearest
    return None
