"""The OpenCL driver through pyopencl: a device's context and queue, and its errors by code."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tuner.trial import Code
from workers.backends.opencl.platforms import described
from workers.devices.port import DeviceFailure

_CODES = {
    -4: Code.OUT_OF_MEMORY,
    -5: Code.LAUNCH_FAILED,
    -6: Code.OUT_OF_MEMORY,
    -53: Code.LAUNCH_FAILED,
    -54: Code.THREADS,
    -55: Code.THREADS,
    -63: Code.GRID,
}
"""By the driver's status: allocation, resources, host memory, work dimension, sizes."""


@contextmanager
def translated(cl: Any) -> Iterator[None]:
    """Turn the driver's errors into device failures, by status code."""
    try:
        yield
    except cl.Error as error:
        code = _CODES.get(error.code, Code.LAUNCH_FAILED)
        raise DeviceFailure(code, str(error)[:1000]) from error


class OpenCL:
    """One device with its context and one in-order queue with profiling."""

    def __init__(self, handle: Any) -> None:
        import pyopencl as cl

        self.cl = cl
        self.handle = handle
        self.device = described(handle, cl)
        with self.translated():
            self.context = cl.Context([handle])
            self.queue = cl.CommandQueue(
                self.context, properties=cl.command_queue_properties.PROFILING_ENABLE
            )

    def translated(self) -> AbstractContextManager[None]:
        """See :func:`translated`."""
        return translated(self.cl)
