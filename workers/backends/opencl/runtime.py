"""OpenCL in an application's process: its arrays and buffers, launches on its queue."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from tuner.device import Device
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.arguments import spanned
from tuner.plan import Binary, KernelStep, MemsetStep
from workers.backends.opencl.driver import translated
from workers.backends.opencl.platforms import described
from workers.elements import dtype_name
from workers.loader.port import ArrayView, BoundCell


def open_runtime() -> "OpenCLRuntime":
    """Raises :class:`EnvironmentProblem` where pyopencl is missing."""
    try:
        import pyopencl as cl
        import pyopencl.array as arrays
    except ImportError as error:
        raise EnvironmentProblem(
            f"OpenCL needs pyopencl, which does not import ({error})"
        ) from None
    return OpenCLRuntime(cl, arrays)


class OpenCLRuntime:
    """Sees ``pyopencl.array.Array`` and ``pyopencl.Buffer``; addresses are offsets in a buffer.

    A sub-buffer is a part of the buffer that it was made of.
    """

    def __init__(self, cl: Any, arrays: Any) -> None:
        self._cl, self._arrays = cl, arrays
        self._described = cache(lambda device: described(device, cl))
        self._type_name = cache(dtype_name)

    def view(self, given: object) -> ArrayView | None:
        """See :class:`workers.loader.port.Runtime`."""
        if isinstance(given, self._arrays.Array):
            return self._array(given)
        if isinstance(given, self._cl.Buffer):
            base, address = self._location(given, 0)
            return ArrayView(
                given=given,
                base=base,
                address=address,
                size=given.size,
                dtype="",
                shape=(),
                strides=(),
            )
        return None

    def _array(self, given: Any) -> ArrayView:
        item = given.dtype.itemsize
        strides = tuple(step // item for step in given.strides)
        base, address = self._location(given.base_data, given.offset)
        return ArrayView(
            given=given,
            base=base,
            address=address,
            size=spanned(given.shape, strides) * item,
            dtype=self._type_name(given.dtype),
            shape=tuple(given.shape),
            strides=strides,
        )

    def _location(self, buffer: Any, offset: int) -> tuple[int, int]:
        """Base and address; this is odd in memory of the host, whose own alignment is not known."""
        if buffer is None:
            return 0, offset
        whole, begin = _whole(buffer)
        start = begin + offset
        foreign = buffer.flags & self._cl.mem_flags.USE_HOST_PTR
        return whole.int_ptr, start | 1 if foreign else start

    def place(self, arrays: Mapping[str, ArrayView], stream: object) -> "OpenCLPlace":
        """See :class:`workers.loader.port.Runtime`."""
        queues = (getattr(view.given, "queue", None) for view in arrays.values())
        queue = stream or next(filter(None, queues), None)
        if not isinstance(queue, self._cl.CommandQueue):
            raise SpecError("stream: pass a pyopencl.CommandQueue, which these arrays do not have")
        for name, view in arrays.items():
            data = view.given.base_data if view.dtype else view.given
            if data is not None and data.context != queue.context:
                raise SpecError(f"argument '{name}' is in another context than the queue")
        return OpenCLPlace(self._cl, queue, self._described(queue.device))


class OpenCLPlace:
    """A queue of the application."""

    def __init__(self, cl: Any, queue: Any, device: Device) -> None:
        self._cl, self._queue = cl, queue
        self.device = device
        self.key = (queue.context, queue.device)

    def load(self, binary: Binary) -> Any:
        """A program in the application's context."""
        queue = self._queue
        with translated(self._cl):
            return self._cl.Program(queue.context, [queue.device], [binary.code]).build()

    def bind(self, code: Any, bound: BoundCell) -> tuple[Any, BoundCell]:
        """Both: a kernel object keeps its arguments, so that each launch makes its own."""
        return code, bound

    def launch(
        self,
        launches: tuple[Any, BoundCell],
        arrays: Mapping[str, ArrayView],
        values: Mapping[str, bytes],
    ) -> None:
        """Enqueue each step after the one before, also in a queue that is out of order."""
        cl, queue = self._cl, self._queue
        code, bound = launches
        with translated(cl):
            given = {name: np.frombuffer(data, np.uint8) for name, data in values.items()}
            buffers = {name: self._region(name, view) for name, view in arrays.items()}
            for name, size in bound.scratch.items():
                flags = cl.mem_flags.READ_WRITE
                buffers[name] = cl.Buffer(queue.context, flags, max(1, size))
            sizes = {**bound.sizes, **bound.scratch}
            event = None
            for step in bound.cell.steps:
                after = [event] if event else None
                if isinstance(step, MemsetStep):
                    buffer, byte = buffers[step.argument], np.uint8(step.byte)
                    size = sizes[step.argument]
                    event = cl.enqueue_fill_buffer(queue, buffer, byte, 0, size, wait_for=after)
                else:
                    event = self._enqueue(code, step, {**given, **buffers}, after)

    def _enqueue(self, code: Any, step: KernelStep, given: Mapping[str, Any], after: Any) -> Any:
        arguments = [given[name] for name in step.arguments]
        kernel = self._cl.Kernel(code, step.entry)
        kernel.set_args(*arguments)
        size = tuple(g * b for g, b in zip(step.grid, step.block, strict=True))
        return self._cl.enqueue_nd_range_kernel(
            self._queue, kernel, size, step.block, wait_for=after
        )

    def _region(self, name: str, view: ArrayView) -> Any:
        """The buffer from the first element on."""
        if not view.dtype:
            return view.given
        data, offset = view.given.base_data, view.given.offset
        if not offset or data is None:
            return data
        whole, begin = _whole(data)
        start = begin + offset
        if start % self.device.base_align:
            raise SpecError(
                f"argument '{name}' begins {start} bytes into its buffer, and OpenCL takes only "
                f"multiples of {self.device.base_align} here: pass a copy"
            )
        return whole.get_sub_region(start, data.size - offset)


def _whole(buffer: Any) -> tuple[Any, int]:
    """The buffer that a sub-buffer is a part of, or itself, and the byte at which it begins.

    OpenCL makes no part of a sub-buffer.
    """
    whole = buffer.associated_memobject
    return (buffer, 0) if whole is None else (whole, buffer.offset)
