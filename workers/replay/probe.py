"""Which bytes a captured launch reads and writes: found by changing them and launching again.

A byte is written if it does not keep what it held before the launch, whatever that was. A range is
read if changing it changes any result elsewhere, or crashes the launch. How far a range is read is
found by bisection: the end is the first byte from which changes make no difference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.drafts.captured import Extent, Memory
from workers.interposer.recording import Pointer
from workers.replay.port import Change, Poison, Replay, ReplayFailed, Window

Bytes = NDArray[np.uint8]

_FLIPS = (0x55, 0xAA)
"""Patterns that bytes are combined with by exclusive or: a byte differs after each, and a byte that
a launch sets to some value differs from at least one of the two results."""

_REPEATS = 2
"""Launches that tell whether results vary by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Memory from one pointer to the next in the same buffer, or to its end."""

    buffer: int
    start: int
    end: int
    parameters: tuple[int, ...]


def regions(pointers: Sequence[Pointer], sizes: Sequence[int]) -> tuple[Region, ...]:
    """The regions behind the pointers; equal pointers share one."""
    owners: dict[tuple[int, int], list[int]] = {}
    for pointer in pointers:
        owners.setdefault((pointer.buffer, pointer.offset), []).append(pointer.parameter)
    places = sorted(owners)
    found = []
    for index, (buffer, start) in enumerate(places):
        following = places[index + 1] if index + 1 < len(places) else (buffer + 1, 0)
        end = following[1] if following[0] == buffer else sizes[buffer]
        parameters = tuple(dict.fromkeys(owners[buffer, start]))
        found.append(Region(buffer=buffer, start=start, end=end, parameters=parameters))
    return tuple(found)


class Probe:
    """Probes one launch. Results that vary from launch to launch by themselves are ignored.

    Only what the launch writes is read back, and poisons are made beside the device: a captured
    allocation may be far larger than what the launch touches.

    Args:
        replay: the launch.
        before: contents of the buffers before it.
        after: what the application found after it.
    """

    def __init__(self, replay: Replay, before: Sequence[bytes], after: Sequence[bytes]) -> None:
        self._replay = replay
        self._before = [_bytes(contents) for contents in before]
        self._windows: list[Window] = []
        self.crashes = 0
        runs = [list(map(_bytes, replay.run())) for _ in range(_REPEATS)]
        self._reference = runs[0]
        self._stable = [
            np.logical_and.reduce([run[index] == first for run in runs[1:]])
            for index, first in enumerate(self._reference)
        ]
        captured = [_bytes(contents) for contents in after]
        differ = [found != wanted for found, wanted in zip(self._reference, captured, strict=True)]
        self.outcome = "exact"
        if any(bytes_.any() for bytes_ in differ):
            self.outcome = "different" if all(m.all() for m in self._stable) else "varies"
        self._written = [
            (now != then) | ~stable
            for now, then, stable in zip(self._reference, self._before, self._stable, strict=True)
        ]

    def memory(self, found: Sequence[Region], addresses: Sequence[int]) -> dict[int, Memory]:
        """What the launch does with each region, by parameter."""
        for region in found:
            self._find_written(region)
        told = {}
        for region in found:
            crashes = self.crashes
            read = self._read(region)
            places = np.flatnonzero(self._written[region.buffer][region.start : region.end])
            written = (int(places[0]), int(places[-1]) + 1) if places.size else None
            memory = Memory(
                read=read,
                written=written,
                dense=written is not None and places.size == written[1] - written[0],
                fault=self.crashes > crashes,
                address=addresses[region.buffer] + region.start,
                replayed=True,
            )
            told.update(dict.fromkeys(region.parameters, memory))
        return told

    def changed(
        self, changes: Sequence[Change | Poison]
    ) -> list[tuple[Bytes, Bytes, NDArray[np.bool_]]]:
        """What is written, with changes and without, and which bytes differ; by region.

        Raises:
            ReplayFailed: the launch crashed.
        """
        found = []
        shown = self._replay.run(changes, self._windows)
        for window, now in zip(self._windows, map(_bytes, shown), strict=True):
            place = slice(window.start, window.end)
            then = self._reference[window.buffer][place]
            compared = self._stable[window.buffer][place] & self._written[window.buffer][place]
            found.append((now, then, (now != then) & compared))
        return found

    def _find_written(self, region: Region) -> None:
        """Find what the launch overwrites, also with the very bytes that were there."""
        place = slice(region.start, region.end)
        held, written = self._before[region.buffer][place], self._written[region.buffer][place]
        whole = [Window(region.buffer, region.start, region.end)]
        for flip in _FLIPS:
            poison = Poison(region.buffer, region.start, region.end, flip)
            try:
                (after,) = self._replay.run([poison], whole)
            except ReplayFailed:
                self.crashes += 1
                break
            written |= _bytes(after) != held ^ np.uint8(flip)
        if (places := np.flatnonzero(written)).size:
            end = region.start + int(places[-1]) + 1
            self._windows.append(Window(region.buffer, region.start, end))

    def _read(self, region: Region) -> Extent | None:
        start, end = region.start, region.end
        if not self._matters(region.buffer, start, end):
            return None
        low, high = start, end  # changes from low on matter, from high on they do not
        while high - low > 1:
            middle = (low + high) // 2
            if self._matters(region.buffer, middle, end):
                low = middle
            else:
                high = middle
        last = high
        low, high = start, last  # changes up to low do not matter, up to high they do
        if self._matters(region.buffer, start, min(last, start + 16)):
            return 0, last - start
        while high - low > 1:
            middle = (low + high) // 2
            if self._matters(region.buffer, start, middle):
                high = middle
            else:
                low = middle
        return low - start, last - start

    def _matters(self, buffer: int, start: int, end: int) -> bool:
        """Whether changing these bytes changes a result, or crashes the launch."""
        for flip in self._flips(self._before[buffer][start:end]):
            try:
                seen = self.changed([Poison(buffer, start, end, flip)])
            except ReplayFailed:
                self.crashes += 1
                return True
            if any(differs.any() for _, _, differs in seen):
                return True
        return False

    def _flips(self, held: Bytes) -> Iterator[int]:
        """How to change contents; zeros first, since they are valid as indices."""
        if held.any():
            yield 0
        yield from _FLIPS


def _bytes(contents: bytes) -> Bytes:
    return np.frombuffer(contents, np.uint8)
