"""Launches a cell on an OpenCL device: its steps enqueued, timed by profiling events.

Dynamic shared memory is the kernel's last argument, a ``__local`` pointer.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.plan import Binary, CellPlan, KernelStep, MemsetStep
from tuner.trial import Code
from workers.backends.opencl.driver import OpenCL
from workers.backends.opencl.memory import OpenCLBufferSets
from workers.backends.opencl.regions import Region
from workers.devices.port import DeviceFailure, LateWrite, check_launch, unobserved

_POLL_SECONDS = 0.0005


class OpenCLModule:
    """The programs of one candidate, in the order of its builds."""

    def __init__(self, opencl: OpenCL, binaries: Sequence[Binary]) -> None:
        cl, context, handles = opencl.cl, opencl.context, [opencl.handle]
        self.programs = [
            (cl.Program(context, handles, [binary.code]).build(), binary) for binary in binaries
        ]

    def release(self) -> None:
        """Drop the programs."""
        self.programs.clear()


class OpenCLLaunchable:
    """A cell's steps as closures over the queue, one list per buffer set."""

    def __init__(
        self,
        opencl: OpenCL,
        module: OpenCLModule,
        cell: CellPlan,
        buffer_sets: OpenCLBufferSets,
    ) -> None:
        self._opencl, self._buffer_sets = opencl, buffer_sets
        program, binary = module.programs[cell.build]
        symbols = dict(binary.symbols)
        self._scratch = buffer_sets.attach(cell.scratch)
        try:
            self._steps = [
                [self._step(step, program, symbols, own | scratch) for step in cell.steps]
                for own, scratch in zip(buffer_sets.regions, self._scratch, strict=True)
            ]
        except (DeviceFailure, opencl.cl.Error):
            buffer_sets.detach(self._scratch)
            raise

    def trigger_compile(self, set_index: int) -> None:
        """Launch step by step; a kernel that runs is compiled."""
        status = self._opencl.cl.command_execution_status
        with self._opencl.translated():
            for step in self._steps[set_index]:
                self._opencl.queue.finish()
                event = step()
                self._opencl.queue.flush()
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
        cl, queue = self._opencl.cl, self._opencl.queue
        with self._opencl.translated():
            gate = cl.UserEvent(self._opencl.context)
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
        cl, queue = self._opencl.cl, self._opencl.queue
        if isinstance(step, MemsetStep):
            buffer, byte = regions[step.argument].buffer, np.uint8(step.byte)
            size = buffer.size
            return lambda: cl.enqueue_fill_buffer(queue, buffer, byte, 0, size)
        check_launch(step, self._opencl.device)
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
