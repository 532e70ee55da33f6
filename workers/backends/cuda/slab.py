"""Device memory for sets of guarded, exactly aligned buffers, restored in one copy.

A slab holds the sets side by side, and an image of a set before a launch: contents, guards, poison.
Restoring copies the image over sets; inspecting compares a set with it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from workers.backends.cuda.architectures import BASE_ALIGN
from workers.backends.cuda.checks import Checks, LateCopy, Stretch
from workers.backends.cuda.driver import ON_DEVICE, TO_DEVICE, TO_HOST, Cuda
from workers.backends.cuda.pinned import PinnedFiles
from workers.devices.port import GUARD_BYTES, Damage, OwnInputs, StagedBuffer

_ITEM = 8
"""The largest element; what is rotated by a multiple of it keeps its elements."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets of buffers within a set; all other bytes are guards.

    ``stride`` is the size of a set, ``unit`` the alignment of its start: a multiple of twice every
    buffer's alignment, so that addresses are aligned to exactly what was promised in every set.
    """

    offsets: dict[str, int]
    sizes: dict[str, int]
    stride: int
    unit: int

    def guards(self) -> list[tuple[str, Literal["front", "back"], Stretch]]:
        """The guards before and after each buffer, in the order of the buffers."""
        found: list[tuple[str, Literal["front", "back"], Stretch]] = []
        before = 0
        for number, (name, start) in enumerate(self.offsets.items(), 1):
            end = start + self.sizes[name]
            room = GUARD_BYTES if number < len(self.offsets) else self.stride - end
            found.append((name, "front", Stretch(before, start - before, backwards=True)))
            found.append((name, "back", Stretch(end, room)))
            before = end + room
        return found


def laid_out(buffers: Sequence[tuple[str, int, int]]) -> Layout:
    """Lay out buffers, given as name, size and alignment in bytes (a power of two)."""
    unit = max([2 * BASE_ALIGN, *(2 * align for _, _, align in buffers)])
    offsets, end = {}, 0
    for name, size, align in buffers:
        least = end + GUARD_BYTES
        offsets[name] = -(-(least - align) // (2 * align)) * 2 * align + align
        end = offsets[name] + size + GUARD_BYTES
    stride = -(-end // unit) * unit
    return Layout(offsets, {name: size for name, size, _ in buffers}, stride, unit)


class Slab:
    """Device memory for ``sets`` sets of one layout, and their image."""

    def __init__(
        self, cuda: Cuda, checks: Checks, pinned: PinnedFiles, layout: Layout, sets: int
    ) -> None:
        self._cuda, self._checks, self._pinned = cuda, checks, pinned
        self.layout, self._sets = layout, sets
        self._memory: int = cuda.runtime.malloc(layout.stride * (sets + 1) + layout.unit)
        self.image: int = -(-self._memory // layout.unit) * layout.unit
        self._base: int = self.image + layout.stride
        self._aside = 0
        self._canary = np.frombuffer(os.urandom(layout.unit + GUARD_BYTES), np.uint8)
        self._guards = layout.guards()
        self.mend()

    def address(self, set_index: int, name: str) -> int:
        """The address of a buffer of a set."""
        return self._start(set_index) + self.layout.offsets[name]

    def mend(self) -> None:
        """Write the image's guards."""
        for _, _, stretch in self._guards:
            self._cuda.runtime.memcpy(
                self.image + stretch.offset, self._canary.ctypes.data, stretch.length, TO_DEVICE
            )

    def write(self, name: str, path: str) -> None:
        """Set a buffer of the image to the contents of a file; in stream order."""
        if (size := self._pinned.size(path)) != self.layout.sizes[name]:
            raise ValueError(f"{path}: {size} bytes for {name} of {self.layout.sizes[name]}")
        self._pinned.copy(path, self._in_image(name))

    def fill(self, name: str, byte: int) -> None:
        """Set every byte of a buffer of the image."""
        self._cuda.runtime.memset(self._in_image(name), byte, self.layout.sizes[name])

    def keep(self, set_index: int, name: str) -> None:
        """Copy a buffer of a set into the image."""
        place, size = self.address(set_index, name), self.layout.sizes[name]
        self._cuda.runtime.memcpy(self._in_image(name), place, size, ON_DEVICE)

    def copy(self, name: str, to: int) -> None:
        """Copy a buffer of the image to another place on the device."""
        self._cuda.runtime.memcpy(to, self._in_image(name), self.layout.sizes[name], ON_DEVICE)

    def read(self, set_index: int, name: str, part: tuple[int, int] | None = None) -> bytes:
        """A buffer of a set, or a part of it."""
        start, stop = part or (0, self.layout.sizes[name])
        data = np.empty(stop - start, np.uint8)
        place = self.address(set_index, name) + start
        self._cuda.runtime.memcpy(data.ctypes.data, place, data.nbytes, TO_HOST)
        return data.tobytes()

    def restore(self, sets: Sequence[int]) -> None:
        """Copy the image over these sets; in stream order."""
        if self.layout.offsets:
            self._checks.restore(self._base, self.image, self.layout.stride, sets, self._sets)

    def vary(self, sets: Sequence[int], buffer: StagedBuffer, own: OwnInputs) -> None:
        """Have these sets hold inputs of their own in a buffer; in stream order.

        As the image does for the one that is inspected.
        """
        offset, stride = self.layout.offsets[buffer.name], self.layout.stride
        places = self._base, self.image, stride
        self._checks.vary(*places, sets, self._sets, buffer, offset, own)
        if own.set_index is not None:
            self.keep(own.set_index, buffer.name)

    def make_aside(self) -> None:
        """Allocate the memory that :meth:`outdate` needs."""
        if not self._aside and self.layout.stride:
            self._aside = self._cuda.runtime.malloc(self.layout.stride)

    def outdate(self, set_index: int, names: Sequence[str], stale: str, stream: int) -> LateCopy:
        """Keep a set aside and change these buffers of it; what copies it back.

        Stale buffers hold zeros, or their contents rotated by half of the elements.
        """
        runtime, start, stride = self._cuda.runtime, self._start(set_index), self.layout.stride
        if not self._aside:
            return LateCopy(start, start, 0)
        runtime.memcpyAsync(self._aside, start, stride, ON_DEVICE, stream)
        for name in names:
            size, offset = self.layout.sizes[name], self.layout.offsets[name]
            if stale == "zeros":
                runtime.memsetAsync(start + offset, 0, size, stream)
                continue
            half = size // 2 // BASE_ALIGN * BASE_ALIGN or size // 2 // _ITEM * _ITEM
            for to, source, length in ((0, half, size - half), (size - half, 0, half)):
                if length:
                    place = start + offset + to
                    kept = self._aside + offset + source
                    runtime.memcpyAsync(place, kept, length, ON_DEVICE, stream)
        return LateCopy(start, self._aside, stride)

    def damage(self, set_index: int, inputs: Sequence[str]) -> Damage | None:
        """The first change to a guard, or else to one of these buffers."""
        if not self.layout.offsets:
            return None
        stretches = self._stretches(inputs)
        found = self._checks.damage(self._start(set_index), self.image, stretches)
        if found is None:
            return None
        place, distance = found
        if place < len(self._guards):
            name, where, _ = self._guards[place]
            return Damage(argument=name, where=where, offset=distance + 1)
        name = inputs[place - len(self._guards)]
        return Damage(argument=name, where="input", offset=distance)

    def touched(self, sets: Sequence[int]) -> Damage | None:
        """The first change to these sets since they were restored."""
        if not self.layout.offsets or not sets:
            return None
        stride = self.layout.stride
        whole = [Stretch(index * stride, stride, image=0) for index in sets]
        found = self._checks.damage(self._base, self.image, whole)
        if found is None:
            return None
        _, place = found
        offsets, sizes = self.layout.offsets, self.layout.sizes
        ahead = [name for name, start in offsets.items() if place < start + sizes[name]]
        return Damage(argument=[*ahead, *reversed(offsets)][0], where="idle", offset=place)

    def digest(self, names: Sequence[str]) -> int:
        """A digest of the image's guards and of these buffers."""
        return self._checks.digest(self.image, self._stretches(names)) if self._guards else 0

    def release(self) -> None:
        """Free the memory."""
        self._cuda.runtime.free(self._memory)
        self._cuda.runtime.free(self._aside)

    def _stretches(self, names: Sequence[str]) -> list[Stretch]:
        offsets, sizes = self.layout.offsets, self.layout.sizes
        guards = [stretch for _, _, stretch in self._guards]
        return guards + [Stretch(offsets[name], sizes[name]) for name in names]

    def _start(self, set_index: int) -> int:
        return self._base + set_index * self.layout.stride

    def _in_image(self, name: str) -> int:
        return self.image + self.layout.offsets[name]
