"""The process that a checker watches: ``python -m workers.checkers.launcher JOB …``.

Launches each candidate once, and nothing else. Every buffer is an allocation of its own, as long as
its contents and no longer, and what the kernel should write is left as the allocator gives it: so a
checker sees each access beyond the end and each use of what nobody wrote.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tuner.experiment.arguments import item_bytes
from tuner.plan import Binary, CellPlan, KernelStep, MemsetStep
from workers.backends.cuda.driver import TO_DEVICE, Cuda, import_cuda, select
from workers.backends.cuda.launch import scalar_bytes
from workers.backends.opencl.compiler import OpenCLCompiler
from workers.backends.opencl.device import OpenCLDevice, opencl_devices
from workers.backends.opencl.memory import Bytes, Region
from workers.checkers.job import JOB, Job


class _Exact:
    """An OpenCL buffer without guards."""

    def __init__(self, cl: Any, context: Any, queue: Any, size: int) -> None:
        self._cl, self._queue = cl, queue
        self.buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)

    def write(self, contents: Bytes) -> None:
        self._cl.enqueue_copy(self._queue, self.buffer, contents)

    def mend(self) -> None:
        """There is nothing to mend."""

    def fill(self, byte: int) -> None:
        raise NotImplementedError

    def read(self) -> Bytes:
        raise NotImplementedError

    def broken(self) -> tuple[str, int] | None:
        raise NotImplementedError


_NO_PROMISES = tuple(f"-D{word}=" for word in ("restrict", "__restrict", "__restrict__"))


class _ExactDevice(OpenCLDevice):
    def region(
        self,
        size: int,
        align: int,  # noqa: ARG002 (as it comes)
        guard: Bytes,  # noqa: ARG002 (none here)
        *,
        sealed: bool,  # noqa: ARG002 (the checker watches all)
    ) -> Region:
        """Memory without guards."""
        return _Exact(self.cl, self.context, self.queue, size)


def launch_opencl(job: Job) -> None:
    """Compile from source for the first device there is, which is the checker's, and launch.

    Without ``restrict``, a mere promise: Oclgrind 21.10 does not know what its own compiler makes
    of one where a function is inlined.
    """
    device = _ExactDevice(opencl_devices()[0], 0)
    build = replace(job.build, options=(*job.build.options, *_NO_PROMISES))
    binary = OpenCLCompiler(device.handle).compile(build)
    if not isinstance(binary, Binary):
        raise SystemExit(f"does not compile for {device.device.name}: {binary.detail}")
    case = device.stage([*job.buffers, *job.scalars, *job.nulls], 1)
    device.bind(device.load([binary]), job.cell, case).burst((0,))


def launch_cuda(job: Job) -> None:
    """Load the very code that was benched, and launch."""
    cuda = import_cuda()
    select(cuda, job.index)
    module = cuda.driver.moduleLoadData(Path(job.code).read_bytes())
    sizes = {buffer.name: buffer.size for buffer in job.buffers}
    sizes |= {s.name: max(1, s.elements) * item_bytes(s.dtype) for s in job.cell.scratch}
    addresses = {name: cuda.runtime.malloc(size) for name, size in sizes.items()}
    for buffer in job.buffers:
        if buffer.contents is None:
            continue
        where = addresses[buffer.name]
        if buffer.kind == "constant":
            where = cuda.driver.moduleGetGlobal(module, buffer.symbol or buffer.name)
        data = np.fromfile(buffer.contents, np.uint8)
        cuda.runtime.memcpy(where, data.ctypes.data, data.nbytes, TO_DEVICE)
    scalars = {s.name: int.from_bytes(scalar_bytes(s), "little") for s in job.scalars}
    values = {**addresses, **scalars, **{null.name: 0 for null in job.nulls}}
    _run(cuda, module, job.cell, dict(job.symbols), values, sizes)
    cuda.runtime.deviceSynchronize()


def _run(
    cuda: Cuda,
    module: int,
    cell: CellPlan,
    symbols: dict[str, str],
    values: dict[str, int],
    sizes: dict[str, int],
) -> None:
    for step in cell.steps:
        if isinstance(step, MemsetStep):
            size = sizes[step.argument]
            cuda.runtime.memset(values[step.argument], step.byte, size)
            continue
        assert isinstance(step, KernelStep)
        function = cuda.function(module, symbols[step.entry], step.shared_bytes)
        held = np.array([values[name] for name in step.arguments] or [0], np.uint64)
        table = (held.ctypes.data + 8 * np.arange(held.size)).astype(np.uint64)
        geometry = (function, *step.grid, *step.block, step.shared_bytes, 0)
        if step.cooperative:
            cuda.driver.launchCooperativeKernel(*geometry, table.ctypes.data)
        else:
            cuda.driver.launchKernel(*geometry, table.ctypes.data, 0)
        cuda.runtime.deviceSynchronize()


def main() -> None:
    """Do the jobs that the command line names."""
    for path in sys.argv[1:]:
        job = JOB.validate_json(Path(path).read_bytes())
        {"opencl": launch_opencl, "cuda": launch_cuda}[job.backend](job)


if __name__ == "__main__":
    main()
