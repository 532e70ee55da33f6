"""Launches of an exported kernel whose arguments are written into blocks that are kept.

A block holds the arguments of one launch as the driver reads them. The driver copies them before
the launch call returns, so a block is used again; each thread takes one of its own.
"""

import math
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.plan import KernelStep, MemsetStep
from workers.backends.cuda.attributes import AttributedLaunch
from workers.backends.cuda.driver import ON_DEVICE, Cuda
from workers.loader.port import BoundCell

_SLOT = 16
"""Arguments are aligned to this many bytes, which suits every type."""


class CudaLaunches:
    """The launches of one shape: functions by step, and addresses of variables by argument."""

    def __init__(
        self,
        cuda: Cuda,
        bound: BoundCell,
        functions: Sequence[int],
        variables: Mapping[str, int],
    ) -> None:
        self._cuda, self.bound = cuda, bound
        sizes = {**bound.sizes, **bound.scratch}
        self._copies = [(name, target, sizes[name]) for name, target in variables.items()]
        self._steps = [
            _Memset(cuda, step, sizes[step.argument])
            if isinstance(step, MemsetStep)
            else _Kernel(cuda, step, function, bound.widths)
            for step, function in zip(bound.cell.steps, functions, strict=True)
        ]

    def launch(self, given: Mapping[str, int | bytes], stream: int) -> None:
        """Put the launches into a stream of the current device.

        Args:
            given: by argument, the address of an array, 0, or the bytes of what is passed by value.
            stream: its address.
        """
        for name, target, size in self._copies:
            self._cuda.runtime.memcpyAsync(target, given[name], size, ON_DEVICE, stream)
        for step in self._steps:
            step.launch(given, stream)


class _Memset:
    def __init__(self, cuda: Cuda, step: MemsetStep, size: int) -> None:
        self._set, self._name, self._what = cuda.runtime.memsetAsync, step.argument, step.byte
        self._size = size

    def launch(self, given: Mapping[str, int | bytes], stream: int) -> None:
        self._set(given[self._name], self._what, self._size, stream)


class _Block:
    """Room for a launch's arguments from ``start`` on, and a table of their addresses."""

    def __init__(self, size: int, places: Sequence[int]) -> None:
        held = np.zeros(size + _SLOT, np.uint8)
        self.room, self.start = held.data, -held.ctypes.data % _SLOT
        begin = held.ctypes.data + self.start
        self._addresses = np.array([begin + place for place in places or [0]], np.uint64)
        self.table: int = self._addresses.ctypes.data


class _Kernel:
    """A step's launch of ``function``; ``widths`` are the bytes of what is passed by value."""

    def __init__(
        self, cuda: Cuda, step: KernelStep, function: int, widths: Mapping[str, int]
    ) -> None:
        self._cuda, self._step, self._function = cuda, step, function
        self._attributed = step.dependent or math.prod(step.cluster) > 1
        self._sizes = (*step.grid, *step.block, step.shared_bytes)
        layout, self._places, end = "=", [], 0
        for name in step.arguments:
            width = widths.get(name)
            used = 8 if width is None else width
            room = -(-used // _SLOT) * _SLOT
            layout += f"{'Q' if width is None else f'{width}s'}{room - used}x"
            self._places.append(end)
            end += room
        self._layout, self._free = struct.Struct(layout), list[_Block]()

    def launch(self, given: Mapping[str, int | bytes], stream: int) -> None:
        try:
            block = self._free.pop()
        except IndexError:
            block = _Block(self._layout.size, self._places)
        step, driver = self._step, self._cuda.driver
        values = [given[name] for name in step.arguments]
        self._layout.pack_into(block.room, block.start, *values)
        if self._attributed:
            AttributedLaunch(self._function, step, stream)(block.table)
        elif step.cooperative:
            driver.launchCooperativeKernel(self._function, *self._sizes, stream, block.table)
        else:
            driver.launchKernel(self._function, *self._sizes, stream, block.table, 0)
        self._free.append(block)
