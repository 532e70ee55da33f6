"""OpenCL's adapter."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

from tuner.device import Device
from tuner.plan import Build
from workers.backends.opencl import checkers
from workers.backends.opencl.compiler import open_compiler
from workers.backends.opencl.device import count_devices, open_device
from workers.backends.opencl.runtime import open_runtime
from workers.backends.port import BackendAdapter, CeilingKernels
from workers.devices.port import DeviceBackend

_CEILINGS = Path(__file__).with_name("ceilings.cl")


def ceilings(device: Device, side: int) -> CeilingKernels:
    """Products of float32; none on a processor, where compiling them takes seconds."""
    dtypes = () if device.is_cpu else ("float32",)
    return CeilingKernels(
        build=Build(
            language="opencl",
            file=_CEILINGS.name,
            source=_CEILINGS.read_text(),
            entries=("copy", "nothing", *(f"product_{dtype}" for dtype in dtypes)),
        ),
        products=dict.fromkeys(dtypes, ((side // 64, side // 16, 1), (4, 4, 1))),
    )


ADAPTER = BackendAdapter(
    count_devices=count_devices,
    open_device=cast("Callable[[int], DeviceBackend]", open_device),
    open_compiler=open_compiler,
    empty_kernel="kernel void nothing() {}",
    device_for_target=None,
    checkers=checkers.oclgrind,
    checkers_missing=checkers.MISSING,
    open_under_checker=checkers.open_under_checker,
    profiler=None,
    counters_refused=None,
    ceilings=ceilings,
    open_runtime=open_runtime,
    occupants=None,
    open_replay=None,
)
