"""OpenCL devices through pyopencl: PoCL on a CPU, or any other platform.

Owns contexts, buffers, launches and profiling events. Outputs always go to the supervisor, which
compares them. Dynamic shared memory is the kernel's last argument, a ``__local`` pointer.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from tuner.errors import EnvironmentProblem
from tuner.experiment.arguments import item_bytes
from tuner.experiment.model import Cache
from tuner.plan import Binary, CellPlan, KernelStep, MemsetStep, Scratch
from tuner.trial import Code
from workers.backends.opencl.branches import BranchHistory
from workers.backends.opencl.memory import (
    Bytes,
    DeviceRegion,
    HostRegion,
    LocalMemory,
    Region,
    canary,
    translated,
)
from workers.backends.opencl.platforms import described, opencl_devices
from workers.comparison import Expected
from workers.devices.port import (
    GUARD_BYTES,
    Damage,
    DeviceFailure,
    Inspection,
    LateWrite,
    OtherContents,
    OwnInputs,
    Rotation,
    Staged,
    StagedBuffer,
    StagedValue,
    check_launch,
    unobserved,
)
from workers.variations import numbers, varied

_COLD_BYTES = 16 << 20
_POLL_SECONDS = 0.0005
_COLD_SETS = 16


def count_devices() -> int:
    """How many devices there are; raises as :func:`opencl_devices`."""
    return len(opencl_devices())


def open_device(index: int) -> "OpenCLDevice":
    """Open a device by its place in :func:`opencl_devices`."""
    found = opencl_devices()
    if not 0 <= index < len(found):
        raise EnvironmentProblem(f"no OpenCL device {index}: there are {len(found)}")
    return OpenCLDevice(found[index], index)


class OpenCLDevice:
    """One device, its context and one in-order queue with profiling."""

    def __init__(self, handle: Any, index: int) -> None:
        import pyopencl as cl

        self.cl = cl
        self.handle = handle
        self.device = described(handle, cl)
        name = f"opencl-{handle.platform.name.strip()}-{self.device.name}-{index}"
        self.identity = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
        with translated(cl):
            self.context = cl.Context([handle])
            self.queue = cl.CommandQueue(
                self.context, properties=cl.command_queue_properties.PROFILING_ENABLE
            )
            shared = (cl, self.context, self.queue, self.device.multiprocessors)
            self.locals, self._branches = LocalMemory(*shared), BranchHistory(*shared)

    def rotation(self, size: int, cache: Cache, warmup: int, repeats: int) -> Rotation:
        """Cold rotates over twice the last-level cache, within a cap; hot restores each launch."""
        if cache == "hot":
            return Rotation(sets=1, warmup=warmup, bursts=repeats)
        wanted = min(2 * self.device.l2_bytes, _COLD_BYTES)
        sets = max(2, min(_COLD_SETS, -(-wanted // max(size, 1))))
        return Rotation(sets=sets, warmup=-(-warmup // sets), bursts=-(-repeats // sets))

    def forget_branches(self) -> None:
        """Let the processor forget which way the branches of kernels went."""
        with translated(self.cl):
            self._branches.forget()

    def vitals(self) -> None:
        """``None``: OpenCL reports no clocks and temperatures."""

    def stage(self, arguments: Sequence[Staged], sets: int) -> "OpenCLBufferSets":
        """Allocate and fill the buffers of one shape."""
        with translated(self.cl):
            return OpenCLBufferSets(self, arguments, sets)

    def load(self, binaries: Sequence[Binary]) -> "OpenCLModule":
        """Create one program per binary."""
        cl = self.cl
        with translated(cl):
            return OpenCLModule(
                (cl.Program(self.context, [self.handle], [binary.code]).build(), binary)
                for binary in binaries
            )

    def bind(
        self, module: "OpenCLModule", cell: CellPlan, buffer_sets: "OpenCLBufferSets"
    ) -> "OpenCLLaunchable":
        """Check the launches, allocate scratch, set every argument of every set."""
        with translated(self.cl):
            return OpenCLLaunchable(self, module, cell, buffer_sets)

    def region(self, size: int, align: int, guard: Bytes, **access: bool) -> Region:
        """Guarded memory; ``access`` is that of a :class:`HostRegion`, and of no other."""
        if self.device.is_cpu:
            return HostRegion(self.cl, self.context, size, align, guard, **access)
        base = self.device.base_align
        return DeviceRegion(self.cl, self.context, self.queue, size, base, guard)

    def close(self) -> None:
        """Wait for the queue; the driver frees the rest."""
        with contextlib.suppress(self.cl.Error):
            self.queue.finish()


class OpenCLModule:
    """The programs of one candidate, in the order of its builds."""

    def __init__(self, programs: Iterable[tuple[Any, Binary]]) -> None:
        self.programs = list(programs)

    def release(self) -> None:
        """Drop the programs."""
        self.programs.clear()


Regions = list[dict[str, Region]]
"""Buffers by set and name."""


class OpenCLBufferSets:
    """Buffers of one shape: ``regions[set][name]``; scratch buffers of launchables likewise."""

    def __init__(self, owner: OpenCLDevice, arguments: Sequence[Staged], sets: int) -> None:
        self._owner = owner
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
                b.name: owner.region(
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
                buffer.name: self._owner.region(
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
        with translated(self._owner.cl):
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
        with translated(self._owner.cl):
            self._owner.queue.finish()
            self._owner.locals.spoil()
            self._exchange(sets, other)
            for index in set(sets):
                for buffer in self._buffers:
                    if buffer.kind == "inout":
                        self.regions[index][buffer.name].write(self._held(index, buffer.name))
                if poison is not None:
                    for _, region in self._poisoned(index):
                        region.fill(poison)

    def inspect(self, set_index: int, expected: Mapping[str, Expected]) -> Inspection:  # noqa: ARG002 (compared by the supervisor)
        """Check guards and inputs, and return the outputs."""
        regions = self.regions[set_index]
        with translated(self._owner.cl):
            outputs = {
                buffer.name: regions[buffer.name].read().tobytes()
                for buffer in self._buffers
                if buffer.kind in ("out", "inout")
            }
            return Inspection(damage=self._damage(set_index), outputs=outputs, comparisons={})

    def touched(self, sets: Sequence[int]) -> Damage | None:
        """The first change to these sets since :meth:`restore`."""
        assert self._poison is not None
        with translated(self._owner.cl):
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


class OpenCLLaunchable:
    """A cell's steps as closures over the queue, one list per buffer set."""

    def __init__(
        self,
        owner: OpenCLDevice,
        module: OpenCLModule,
        cell: CellPlan,
        buffer_sets: OpenCLBufferSets,
    ) -> None:
        self._owner, self._buffer_sets = owner, buffer_sets
        program, binary = module.programs[cell.build]
        symbols = dict(binary.symbols)
        self._scratch = buffer_sets.attach(cell.scratch)
        try:
            self._steps = [
                [self._step(step, program, symbols, own | scratch) for step in cell.steps]
                for own, scratch in zip(buffer_sets.regions, self._scratch, strict=True)
            ]
        except (DeviceFailure, owner.cl.Error):
            buffer_sets.detach(self._scratch)
            raise

    def trigger_compile(self, set_index: int) -> None:
        """Launch step by step; a kernel that runs is compiled."""
        status = self._owner.cl.command_execution_status
        with translated(self._owner.cl):
            for step in self._steps[set_index]:
                self._owner.queue.finish()
                event = step()
                self._owner.queue.flush()
                while event.command_execution_status > status.RUNNING:
                    time.sleep(_POLL_SECONDS)

    def burst(
        self,
        order: Sequence[int],
        begins: Callable[[], None] = unobserved,
        late: LateWrite | None = None,  # noqa: ARG002 (no step launches dependently)
    ) -> tuple[float, ...]:
        """Launch in order; a launch lasts from its first step's start to its last step's end.

        None starts before all are queued, so that no step waits for the host.
        """
        cl, queue = self._owner.cl, self._owner.queue
        with translated(cl):
            gate = cl.UserEvent(self._owner.context)
            cl.enqueue_barrier(queue, wait_for=[gate])
            try:
                events = [[step() for step in self._steps[index]] for index in order]
                begins()
            finally:
                gate.set_status(cl.command_execution_status.COMPLETE)
            queue.finish()
            return tuple(float(run[-1].profile.end - run[0].profile.start) for run in events)

    def release(self) -> None:
        """Free the kernels and the scratch buffers."""
        self._steps.clear()
        self._buffer_sets.detach(self._scratch)

    def _step(
        self,
        step: KernelStep | MemsetStep,
        program: Any,
        symbols: Mapping[str, str],
        regions: Mapping[str, Region],
    ) -> Any:
        cl, queue = self._owner.cl, self._owner.queue
        if isinstance(step, MemsetStep):
            buffer, byte = regions[step.argument].buffer, np.uint8(step.byte)
            size = buffer.size
            return lambda: cl.enqueue_fill_buffer(queue, buffer, byte, 0, size)
        check_launch(step, self._owner.device)
        kernel = cl.Kernel(program, symbols[step.entry])
        arguments = [
            regions[name].buffer if name in regions else self._buffer_sets.values[name]
            for name in step.arguments
        ]
        if step.shared_bytes:
            arguments.append(cl.LocalMemory(step.shared_bytes))
        if kernel.num_args != len(arguments):
            raise DeviceFailure(
                Code.LAUNCH_FAILED,
                f"{step.entry} takes {kernel.num_args} arguments, given {len(arguments)}",
            )
        kernel.set_args(*arguments)
        size = tuple(g * b for g, b in zip(step.grid, step.block, strict=True))
        return lambda: cl.enqueue_nd_range_kernel(queue, kernel, size, step.block)
