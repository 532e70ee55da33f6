"""What the GPU tests share: an open device, staged buffers, kernels from a string, a child."""

import ctypes
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

import numpy as np

from tuner.device import Device
from tuner.plan import Binary, Build, CellPlan, KernelStep
from workers.backends.cuda.compiler import open_compiler
from workers.backends.cuda.device import open_device
from workers.backends.cuda.driver import TO_DEVICE, import_cuda
from workers.bench.deadlines import Deadlines
from workers.bench.protocol import RunBurst
from workers.bench.supervisor import Supervisor
from workers.comparison import Expected
from workers.devices.port import DeviceFailure, Staged, StagedBuffer
from workers.devices.staging import staged_scalar
from workers.elements import dtype_name

N = 10_007
"""Elements that :meth:`Rig.doubling` stages."""

_USED = """
from workers.backends.cuda.driver import import_cuda
free, total = import_cuda().runtime.memGetInfo()
print(total - free)
"""


def buffer(name, kind, data, align=None) -> tuple[StagedBuffer, np.ndarray]:
    """A dense buffer of this array's shape and type, and its contents."""
    staged = StagedBuffer(
        name=name,
        kind=kind,
        dtype=dtype_name(data.dtype),
        shape=data.shape,
        strides=tuple(step // data.itemsize for step in data.strides),
        size=data.nbytes,
        align=align or data.itemsize,
        symbol=name if kind == "constant" else None,
    )
    return staged, data


def kernel(arguments, entry="run", grid=(1, 1, 1), block=(256, 1, 1), **more) -> KernelStep:
    return KernelStep(entry=entry, grid=grid, block=block, arguments=tuple(arguments), **more)


def binary_of(device: Device, source: str, entry: str = "run") -> Binary:
    build = Build(language="cuda", file="k.cu", source=source, entries=(entry,))
    compiled = open_compiler(device).compile(build)
    assert isinstance(compiled, Binary), compiled
    return compiled


def with_files(folder: Path, arguments) -> list[Staged]:
    """Arguments with their contents in files of the folder."""
    found: list[Staged] = []
    for argument in arguments:
        if not isinstance(argument, tuple):
            found.append(argument)
            continue
        staged, data = argument
        contents = None
        if staged.kind in ("in", "inout", "constant"):
            contents = tempfile.mkstemp(dir=folder)[1]
            data.tofile(contents)
        values = {name: getattr(staged, name) for name in StagedBuffer.__dataclass_fields__}
        found.append(StagedBuffer(**{**values, "contents": contents}))
    return found


class Rig:
    """An open device."""

    def __enter__(self) -> "Rig":
        self.device = open_device(0)
        return self

    def __exit__(self, *error: object) -> None:
        self.device.close()

    def stage(self, folder, arguments, sets):
        return self.device.stage(with_files(folder, arguments), sets)

    def doubling(self, folder):
        """Three buffer sets of ``out``, ``x`` and ``n`` for a kernel that doubles; and ``x``."""
        data = np.random.default_rng(0).standard_normal(N).astype(np.float32)
        arguments = [
            buffer("out", "out", np.empty(N, np.float32)),
            buffer("x", "in", data),
            staged_scalar("n", "int32", N),
        ]
        return self.stage(folder, arguments, sets=3), data

    def expected(self, folder, values, **more) -> Expected:
        path = tempfile.mkstemp(dir=folder)[1]
        values.tofile(path)
        return Expected(path=path, dtype=str(values.dtype), mode="close", **more)

    def write(self, buffer_sets, name, data) -> None:
        """Put these bytes where a launch of the first set would."""
        raw = np.ascontiguousarray(data)
        import_cuda().runtime.memcpy(
            buffer_sets.address(0, name),
            raw.ctypes.data_as(ctypes.c_void_p).value,
            raw.nbytes,
            TO_DEVICE,
        )


def outcome_in_child(folder: Path, source: str, deadline: float) -> DeviceFailure | None:
    """What becomes of one checked launch of ``run(out, x, n)`` in a child of its own."""
    supervisor = Supervisor("cuda", 0, Deadlines(), folder)
    n = 4096
    try:
        device, _ = supervisor.describe()
        module = supervisor.load([binary_of(device, source)])
        buffer_sets = supervisor.stage(
            with_files(
                folder,
                [
                    buffer("out", "out", np.empty(n, np.float32)),
                    buffer("x", "in", np.zeros(n, np.float32)),
                    staged_scalar("n", "int32", n),
                ],
            ),
            2,
        )
        step = kernel(("out", "x", "n"), grid=(n // 256, 1, 1))
        launchable = supervisor.bind(module, CellPlan(build=0, steps=(step,)), buffer_sets)
        shot = RunBurst(
            launchable=launchable, order=(0, 1), poison=0xFF, deadline=deadline, inspect=0
        )
        deque(supervisor.run_bursts([shot]), maxlen=0)
    except DeviceFailure as failure:
        return failure
    finally:
        supervisor.close()
    return None


def used_bytes() -> int:
    """Device memory in use by anyone, told by a process of its own, whose share is always alike."""
    asked = [sys.executable, "-c", _USED]
    return int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def holders() -> set[str]:
    """Processes that hold memory of a device."""
    asked = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    return set(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split())
