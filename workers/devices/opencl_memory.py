"""Guarded buffers for OpenCL: canaries at both ends, aligned to exactly what is promised.

On a CPU device the memory is ours and the buffer lies over it, so that any alignment can be had and
nothing is copied. Elsewhere a buffer is a part of a larger one, which starts on a multiple of the
device's base alignment: the only alignment such a device can give.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workers.devices.port import GUARD_BYTES

Bytes = NDArray[np.uint8]


class Region(Protocol):
    """``size`` bytes of device memory between two guards."""

    buffer: Any

    def write(self, contents: Bytes) -> None:
        """Set the bytes between the guards."""
        ...

    def fill(self, byte: int) -> None:
        """Set every byte between the guards."""
        ...

    def read(self) -> Bytes:
        """The bytes between the guards; a view or a copy, not to be written to."""
        ...

    def mend(self) -> None:
        """Write both guards again."""
        ...

    def broken(self) -> tuple[str, int] | None:
        """The first changed guard byte, as (``front`` or ``back``, distance from the payload)."""
        ...


def canary(length: int, seed: int) -> Bytes:
    """Guard bytes that no kernel writes by chance."""
    return np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8)


class HostRegion:
    """Host memory under a buffer, for CPU devices."""

    def __init__(self, cl: Any, context: Any, size: int, align: int, guard: Bytes) -> None:
        raw = np.empty(size + 2 * (GUARD_BYTES + 2 * align), np.uint8)
        start = -raw.ctypes.data % (2 * align) + align
        while start < GUARD_BYTES:
            start += 2 * align
        self._front = raw[start - GUARD_BYTES : start]
        self._payload = raw[start : start + size]
        self._back = raw[start + size : start + size + GUARD_BYTES]
        self._guard = guard
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        self.buffer = cl.Buffer(context, flags, hostbuf=self._payload)

    def write(self, contents: Bytes) -> None:
        """Set the bytes between the guards."""
        self._payload[:] = contents

    def fill(self, byte: int) -> None:
        """Set every byte between the guards."""
        self._payload[:] = byte

    def read(self) -> Bytes:
        """The bytes between the guards."""
        return self._payload

    def mend(self) -> None:
        """Write both guards again."""
        self._front[:] = self._guard
        self._back[:] = self._guard

    def broken(self) -> tuple[str, int] | None:
        """The first changed guard byte, if any."""
        return first_break(self._front, self._back, self._guard)


class DeviceRegion:
    """A part of a device buffer, for devices with memory of their own."""

    def __init__(
        self, cl: Any, context: Any, queue: Any, size: int, base_align: int, guard: Bytes
    ) -> None:
        self._cl, self._queue, self._guard, self._size = cl, queue, guard, size
        self._start = -(-GUARD_BYTES // base_align) * base_align
        self._arena = cl.Buffer(context, cl.mem_flags.READ_WRITE, self._start + size + GUARD_BYTES)
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
        """Write both guards again."""
        self._copy_in(self._start - GUARD_BYTES, self._guard)
        self._copy_in(self._start + self._size, self._guard)

    def broken(self) -> tuple[str, int] | None:
        """The first changed guard byte, if any."""
        front = self._copy_out(self._start - GUARD_BYTES, GUARD_BYTES)
        back = self._copy_out(self._start + self._size, GUARD_BYTES)
        return first_break(front, back, self._guard)

    def _copy_in(self, offset: int, contents: Bytes) -> None:
        self._cl.enqueue_copy(self._queue, self._arena, contents, dst_offset=offset)

    def _copy_out(self, offset: int, size: int) -> Bytes:
        host = np.empty(size, np.uint8)
        self._cl.enqueue_copy(self._queue, host, self._arena, src_offset=offset)
        return host


def first_break(front: Bytes, back: Bytes, guard: Bytes) -> tuple[str, int] | None:
    """The changed guard byte nearest to the payload, front before back; distances count from 1."""
    for where, found in (("front", front), ("back", back)):
        wrong = np.flatnonzero(found != guard)
        if wrong.size:
            nearest = GUARD_BYTES - int(wrong[-1]) if where == "front" else int(wrong[0]) + 1
            return where, nearest
    return None
