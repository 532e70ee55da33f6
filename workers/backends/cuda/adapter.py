"""CUDA's adapter."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

from tuner.device import Device
from tuner.plan import Build
from workers.backends.cuda import checkers, ncu
from workers.backends.cuda.architectures import device_for
from workers.backends.cuda.compiler import open_compiler
from workers.backends.cuda.device import open_device
from workers.backends.cuda.driver import count_devices
from workers.backends.cuda.nvml import occupants
from workers.backends.cuda.replay import open_replay
from workers.backends.cuda.runtime import open_runtime
from workers.backends.port import BackendAdapter, CeilingKernels
from workers.devices.port import DeviceBackend

_CEILINGS = Path(__file__).with_name("ceilings.cu")
_TENSOR_CORES = 70
"""The first compute capability that has them."""


def ceilings(device: Device, side: int) -> CeilingKernels:
    """Products of float32, and of float16 where tensor cores are."""
    tiles = {"float32": 64}
    if device.compute_capability >= _TENSOR_CORES:
        tiles["float16"] = 128
    return CeilingKernels(
        build=Build(
            language="cuda",
            file=_CEILINGS.name,
            source=_CEILINGS.read_text(),
            entries=("copy", "nothing", *(f"product_{dtype}" for dtype in tiles)),
        ),
        products={
            dtype: ((side // tile, side // tile, 1), (256, 1, 1)) for dtype, tile in tiles.items()
        },
    )


ADAPTER = BackendAdapter(
    count_devices=count_devices,
    open_device=cast("Callable[[int], DeviceBackend]", open_device),
    open_compiler=open_compiler,
    empty_kernel="#include <cuda_fp16.h>\n__global__ void nothing() {}",
    device_for_target=device_for,
    checkers=checkers.compute_sanitizer,
    checkers_missing=checkers.MISSING,
    open_under_checker=checkers.open_under_checker,
    profiler=ncu.profiler,
    counters_refused=ncu.counters_refused,
    ceilings=ceilings,
    open_runtime=open_runtime,
    occupants=occupants,
    open_replay=open_replay,
)
