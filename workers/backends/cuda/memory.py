"""Buffer sets on a CUDA device: guarded, exactly aligned, restored in one copy.

A slab holds the sets side by side, and an image of a set before a launch: contents, guards, poison.
Restoring copies the image over sets; inspecting compares a set with it. A launch can write there
as well, so a digest tells whether one did.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.experiment.arguments import item_bytes
from tuner.plan import Scratch
from tuner.trial import Code
from workers.backends.cuda.architectures import BASE_ALIGN
from workers.backends.cuda.checks import MODES, Checks, LateCopy, Stretch
from workers.backends.cuda.driver import ON_DEVICE, TO_DEVICE, TO_HOST, Cuda
from workers.backends.cuda.pinned import PinnedFiles
from workers.comparison import Expected
from workers.devices.port import (
    GUARD_BYTES,
    Damage,
    DeviceFailure,
    Inspection,
    OtherContents,
    OwnInputs,
    Staged,
    StagedBuffer,
    StagedValue,
)
from workers.elements import is_row_major

_IMAGE_CHANGED = "writes outside its buffers: what other launches are to find has changed"
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

    def read(self, set_index: int, name: str) -> bytes:
        """A buffer of a set."""
        data = np.empty(self.layout.sizes[name], np.uint8)
        place = self.address(set_index, name)
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


class CudaBufferSets:
    """The arguments of one shape in a slab, and the scratch slabs of its launchables."""

    def __init__(
        self,
        cuda: Cuda,
        checks: Checks,
        pinned: PinnedFiles,
        arguments: Sequence[Staged],
        sets: int,
    ) -> None:
        self._cuda, self._checks, self._pinned, self._sets = cuda, checks, pinned, sets
        self.buffers = {a.name: a for a in arguments if isinstance(a, StagedBuffer)}
        self.values = {a.name: a.packed for a in arguments if isinstance(a, StagedValue)}
        self._scratch: list[Slab] = []
        self._poison: int | None = None
        self._contents: dict[str, str] = {}
        self._paths: set[str] = set()
        self._digest: int | None = None
        self._mixed = False
        with cuda.translated():
            layout = laid_out([(b.name, b.size, b.align) for b in self.buffers.values()])
            self._slab = Slab(cuda, checks, pinned, layout, sets)
        self.refill({b.name: b.contents for b in self.buffers.values() if b.contents is not None})

    @property
    def sets(self) -> int:
        """How many buffer sets there are."""
        return self._sets

    @property
    def bytes_per_set(self) -> int:
        """Bytes that a set takes, guards included."""
        return self._slab.layout.stride

    def address(self, set_index: int, name: str) -> int:
        """The address of a buffer of a set."""
        return self._slab.address(set_index, name)

    def attach(self, scratch: Sequence[Scratch]) -> Slab:
        """Allocate scratch buffers for every set, restored and guarded like the others."""
        sizes = [(s.name, s.elements * item_bytes(s.dtype), s.align) for s in scratch]
        slab = Slab(self._cuda, self._checks, self._pinned, laid_out(sizes), self._sets)
        if self._poison is not None:
            _poison(slab, self._poison)
        self._scratch.append(slab)
        return slab

    def copy(self, name: str, to: int) -> None:
        """Copy an argument's contents to another place on the device; in stream order."""
        self._slab.copy(name, to)

    def make_aside(self, scratch: Slab) -> None:
        """Allocate what :meth:`write_late` needs."""
        self._slab.make_aside()
        scratch.make_aside()

    def write_late(self, set_index: int, scratch: Slab, stale: str, stream: int) -> None:
        """Make a set stale, and have a kernel that lets the next one begin write it late."""
        settled = {b.name for b in self.buffers.values() if b.kind == "constant"}
        names = [name for name in self.buffers if name not in settled]
        copies = [
            self._slab.outdate(set_index, names, stale, stream),
            scratch.outdate(set_index, list(scratch.layout.offsets), stale, stream),
        ]
        self._checks.write_late(copies, stream)

    def detach(self, slab: Slab) -> None:
        """Undo :meth:`attach`."""
        self._scratch.remove(slab)
        slab.release()

    def refill(self, contents: Mapping[str, str]) -> None:
        """Write contents (argument → path) and guards to the image, unless it holds them.

        Raises:
            DeviceFailure: a launch changed the image, which is mended.
        """
        wanted = self._contents | dict(contents)
        self._paths.update(wanted.values())
        with self._cuda.translated():
            known = self._digest is not None and not self._mixed
            changed = known and self._slab.digest(list(self._contents)) != self._digest
            if wanted != self._contents or changed or not known:
                self._slab.mend()
                for name, path in wanted.items():
                    self._slab.write(name, path)
                self._contents, self._digest = wanted, self._slab.digest(list(wanted))
        self._mixed = False
        if changed:
            raise DeviceFailure(Code.OUT_OF_BOUNDS, _IMAGE_CHANGED)

    def restore(
        self,
        sets: Sequence[int],
        poison: int | None,
        other: OtherContents | OwnInputs | None = None,
    ) -> None:
        """Restore these sets, with outputs and scratch poisoned.

        The image holds what the set that is inspected does until the next time, if that is other
        than the rest.

        Raises:
            DeviceFailure: as for :meth:`refill`, if there are ``other`` contents.
        """
        if self._mixed:
            self.refill({})
        with self._cuda.translated():
            self._checks.spoil()
            if poison is None:
                self._restore_around_outputs(sets[0])
                return
            if poison != self._poison:
                self._poison = poison
                for buffer in self.buffers.values():
                    if buffer.kind in ("out", "scratch"):
                        self._slab.fill(buffer.name, poison)
                for slab in self._scratch:
                    _poison(slab, poison)
            for slab in (self._slab, *self._scratch):
                slab.restore(sets)
            if other is not None:
                self.refill({})
                self._mixed = True
            if isinstance(other, OtherContents):
                for name, path in other.contents.items():
                    self._slab.write(name, path)
                self._slab.restore([other.set_index])
            elif other is not None:
                for buffer in self.buffers.values():
                    if buffer.varies:
                        self._slab.vary(sets, buffer, other)

    def inspect(self, set_index: int, expected: Mapping[str, Expected]) -> Inspection:
        """Check for damage, compare expected outputs, return those that cannot be compared here."""
        inputs = [b.name for b in self.buffers.values() if b.kind == "in"]
        outputs, comparisons = {}, {}
        with self._cuda.translated():
            damage = self._slab.damage(set_index, inputs)
            for slab in self._scratch:
                damage = damage or slab.damage(set_index, ())
            for buffer in self.buffers.values():
                if buffer.kind not in ("out", "inout"):
                    continue
                wanted = expected.get(buffer.name)
                elsewhere = wanted is None or wanted.mode not in MODES or wanted.returned
                if wanted is None or elsewhere or not is_row_major(buffer.shape, buffer.strides):
                    outputs[buffer.name] = self._slab.read(set_index, buffer.name)
                    continue
                self._paths.update(filter(None, (wanted.path, wanted.bounds)))
                comparisons[buffer.name] = self._checks.compare(
                    self.address(set_index, buffer.name),
                    buffer,
                    wanted,
                    self._poison if buffer.kind == "out" else None,
                )
        return Inspection(damage=damage, outputs=outputs, comparisons=comparisons)

    def touched(self, sets: Sequence[int]) -> Damage | None:
        """The first change to these sets, or to their scratch, since they were restored."""
        with self._cuda.translated():
            return next(filter(None, (s.touched(sets) for s in (self._slab, *self._scratch))), None)

    def release(self) -> None:
        """Free every buffer, and the pinned memory of what it held and was compared with."""
        with self._cuda.translated():
            self._slab.release()
        self._pinned.forget(self._paths)

    def _restore_around_outputs(self, set_index: int) -> None:
        """Restore a set except its outputs, which the image keeps until the next poison."""
        self._poison = None
        for buffer in self.buffers.values():
            if buffer.kind in ("out", "scratch"):
                self._slab.keep(set_index, buffer.name)
        self._slab.restore([set_index])


def _poison(slab: Slab, byte: int) -> None:
    for name in slab.layout.offsets:
        slab.fill(name, byte)
