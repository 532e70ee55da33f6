"""Buffer sets on an OpenCL device: restored before launches, inspected after them.

Outputs always go to the supervisor, which compares them.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from tuner.experiment.arguments import item_bytes
from tuner.plan import Scratch
from workers.backends.opencl.driver import OpenCL
from workers.backends.opencl.regions import Bytes, LocalMemory, Region, canary
from workers.comparison import Expected
from workers.devices.port import (
    GUARD_BYTES,
    WHOLE,
    Damage,
    Inspection,
    OtherContents,
    OwnInputs,
    Parts,
    Staged,
    StagedBuffer,
    StagedValue,
)
from workers.variations import numbers, varied

MakeRegion = Callable[..., Region]
"""Size, alignment and guard bytes → memory: see :class:`HostRegion`."""

Regions = list[dict[str, Region]]
"""Buffers by set and name."""


class OpenCLBufferSets:
    """Buffers of one shape: ``regions[set][name]``; scratch buffers of launchables likewise."""

    def __init__(
        self,
        opencl: OpenCL,
        region: MakeRegion,
        local_memory: LocalMemory,
        arguments: Sequence[Staged],
        sets: int,
    ) -> None:
        self._opencl, self._region, self._local_memory = opencl, region, local_memory
        self._buffers = [a for a in arguments if isinstance(a, StagedBuffer)]
        self._guard = canary(GUARD_BYTES, int.from_bytes(os.urandom(8), "little"))
        self._files: dict[str, Bytes] = {}
        self._others: dict[int, dict[str, Bytes]] = {}
        """What sets hold in place of the files, by set and buffer."""
        self._scratch: list[Regions] = []
        self._poison: int | None = None
        self.values = {
            a.name: np.frombuffer(a.packed, np.uint8)
            for a in arguments
            if isinstance(a, StagedValue)
        }
        self.regions: Regions = [
            {
                b.name: region(
                    b.size, b.align, self._guard, is_input=b.kind == "in", read_only=b.read_only
                )
                for b in self._buffers
            }
            for _ in range(sets)
        ]
        self.refill({b.name: b.contents for b in self._buffers if b.contents is not None})

    @property
    def sets(self) -> int:
        """How many buffer sets there are."""
        return len(self.regions)

    def attach(self, scratch: Sequence[Scratch]) -> Regions:
        """Allocate scratch buffers for every set, until :meth:`detach`."""
        made: Regions = [
            {
                buffer.name: self._region(
                    max(1, buffer.elements) * item_bytes(buffer.dtype),
                    buffer.align,
                    self._guard,
                )
                for buffer in scratch
            }
            for _ in self.regions
        ]
        for region in (region for regions in made for region in regions.values()):
            region.mend()
        self._scratch.append(made)
        return made

    def detach(self, made: Regions) -> None:
        """Free scratch buffers. Safe to call twice."""
        self._scratch = [other for other in self._scratch if other is not made]

    def refill(self, contents: Mapping[str, str]) -> None:
        """Write new contents into every set and restore the guards."""
        self._others = {}
        for name, path in contents.items():
            self._files[name] = np.fromfile(path, np.uint8)
        with self._opencl.translated():
            for regions in (one for group in (self.regions, *self._scratch) for one in group):
                for name, region in regions.items():
                    region.mend()
                    if name in self._files:
                        region.write(self._files[name])

    def restore(
        self,
        sets: Sequence[int],
        poison: int | None,
        other: OtherContents | OwnInputs | None = None,
    ) -> None:
        """Restore ``inout`` buffers, poison ``out`` and scratch ones, and local memory."""
        self._poison = poison
        with self._opencl.translated():
            self._opencl.queue.finish()
            self._local_memory.spoil()
            self._exchange(sets, other)
            for index in set(sets):
                for buffer in self._buffers:
                    if buffer.kind == "inout":
                        self.regions[index][buffer.name].write(self._held(index, buffer.name))
                if poison is not None:
                    for _, region in self._poisoned(index):
                        region.fill(poison)

    def inspect(
        self,
        set_index: int,
        expected: Mapping[str, Expected],  # noqa: ARG002 (compared by the supervisor)
        parts: Parts = WHOLE,
    ) -> Inspection:
        """Check guards and inputs, and return the outputs."""
        regions = self.regions[set_index]
        with self._opencl.translated():
            outputs = {
                b.name: regions[b.name].read()[slice(*parts.get(b.name, (0, b.size)))].tobytes()
                for b in self._buffers
                if b.kind in ("out", "inout")
            }
            return Inspection(damage=self._damage(set_index), outputs=outputs, comparisons={})

    def touched(self, sets: Sequence[int]) -> Damage | None:
        """The first change to these sets since :meth:`restore`."""
        assert self._poison is not None
        with self._opencl.translated():
            for index in sets:
                if damage := self._damage(index):
                    return replace(damage, where="idle")
                held: list[tuple[str, Region, Bytes | int]] = [
                    (name, region, self._poison) for name, region in self._poisoned(index)
                ]
                held += [
                    (b.name, self.regions[index][b.name], self._held(index, b.name))
                    for b in self._buffers
                    if b.kind == "inout"
                ]
                for name, region, before in held:
                    wrong = np.flatnonzero(region.read() != before)
                    if wrong.size:
                        return Damage(argument=name, where="idle", offset=int(wrong[0]))
        return None

    def release(self) -> None:
        """Free every buffer."""
        self.regions.clear()
        self._scratch.clear()
        self._files.clear()

    def _held(self, index: int, name: str) -> Bytes:
        """What a buffer of a set holds before a launch."""
        return self._others.get(index, {}).get(name, self._files[name])

    def _exchange(self, sets: Sequence[int], other: OtherContents | OwnInputs | None) -> None:
        """End the other contents of sets, and write those that they hold now."""
        before, self._others = self._others, {}
        for index, name in ((index, name) for index, held in before.items() for name in held):
            self.regions[index][name].write(self._files[name])
        if isinstance(other, OtherContents):
            held = {name: np.fromfile(path, np.uint8) for name, path in other.contents.items()}
            self._others = {other.set_index: held}
        elif other is not None:
            for buffer in (buffer for buffer in self._buffers if buffer.varies):
                found = numbers(buffer, other, self.sets)
                for index in sets:
                    contents = varied(self._files[buffer.name], buffer, found[index])
                    self._others.setdefault(index, {})[buffer.name] = contents
        for index, held in self._others.items():
            for name, contents in held.items():
                self.regions[index][name].write(contents)

    def _poisoned(self, index: int) -> Iterator[tuple[str, Region]]:
        """The buffers of a set that are poisoned."""
        for buffer in self._buffers:
            if buffer.kind in ("out", "scratch"):
                yield buffer.name, self.regions[index][buffer.name]
        for scratch in self._scratch:
            yield from scratch[index].items()

    def _damage(self, index: int) -> Damage | None:
        regions = self.regions[index]
        scratch = [item for group in self._scratch for item in group[index].items()]
        for name, region in (*regions.items(), *scratch):
            if (broken := region.broken()) is not None:
                where: Literal["front", "back"] = "front" if broken[0] == "front" else "back"
                return Damage(argument=name, where=where, offset=broken[1])
        for buffer in self._buffers:
            if buffer.kind in ("in", "constant"):
                held = self._held(index, buffer.name)
                wrong = np.flatnonzero(regions[buffer.name].read() != held)
                if wrong.size:
                    return Damage(argument=buffer.name, where="input", offset=int(wrong[0]))
        return None
