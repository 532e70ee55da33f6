"""The CUDA driver through CuPy's thin wrappers: its import, its errors by code, its devices."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.trial import Code
from workers.backends.cuda.architectures import BASE_ALIGN, DTYPES
from workers.backends.cuda.installation import cupy_problem
from workers.devices.port import DeviceFailure

_INSUFFICIENT_DRIVER = 35
_NO_DEVICE = 100
_MEMORY_CLOCK_RATE, _MEMORY_BUS_WIDTH = 36, 37
"""The driver's numbers of two device attributes."""

_ROOM_BYTES = 256 << 20
"""With less free memory, another process is using the device."""

TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
"""The directions of a copy."""

_MAX_THREADS_ATTRIBUTE = 0
_DYNAMIC_SHARED_ATTRIBUTE = 8

_STICKY = {
    700: Code.ILLEGAL_ADDRESS,
    702: Code.HANG,
    709: Code.CRASH,
    710: Code.TRAP,
    714: Code.CRASH,
    715: Code.TRAP,
    716: Code.ILLEGAL_ADDRESS,
    717: Code.ILLEGAL_ADDRESS,
    718: Code.ILLEGAL_ADDRESS,
    719: Code.TRAP,
}
"""Illegal address, time-out, destroyed context, assertion, stack, instruction, misaligned address,
address space, program counter, launch failure: no later call of the process succeeds."""

_PASSING = {
    1: Code.LAUNCH_FAILED,
    2: Code.OUT_OF_MEMORY,
    9: Code.LAUNCH_FAILED,
    98: Code.LAUNCH_FAILED,
    200: Code.LAUNCH_FAILED,
    209: Code.LAUNCH_FAILED,
    218: Code.LAUNCH_FAILED,
    500: Code.LAUNCH_FAILED,
    701: Code.REGISTERS,
    720: Code.GRID,
    801: Code.LAUNCH_FAILED,
    912: Code.GRID,
    **dict.fromkeys(range(900, 910), Code.LAUNCH_FAILED),
}
"""Invalid value, memory, configuration, function, image, no binary for this device, PTX, name not
found, out of resources, too large a cooperative launch, not supported, too large a cluster, stream
capture: later calls succeed."""


def classified(status: int, words: str) -> DeviceFailure:
    """The failure of a status code; an unknown one is a crash, and sticky."""
    if status in _PASSING:
        return DeviceFailure(_PASSING[status], words)
    return DeviceFailure(_STICKY.get(status, Code.CRASH), words, sticky=True)


@dataclass(frozen=True, slots=True)
class Cuda:
    """CuPy's ``runtime`` and ``driver`` modules; both speak to the current device."""

    runtime: ModuleType
    driver: ModuleType

    @contextlib.contextmanager
    def translated(self, code: Code | None = None) -> Iterator[None]:
        """Turn the driver's errors into device failures; ``code`` overrides a passing one's."""
        try:
            yield
        except (self.runtime.CUDARuntimeError, self.driver.CUDADriverError) as error:
            failure = classified(error.status, str(error))
            if code is not None and not failure.sticky:
                failure.code = code
            raise failure from None

    def function(self, module: int, symbol: str, shared_bytes: int = 0) -> int:
        """A kernel of a loaded module, prepared for so much dynamic shared memory or more.

        Other shapes may launch the same kernel with more, so what it is prepared for only grows.
        """
        with self.translated():
            function: int = self.driver.moduleGetFunction(module, symbol)
            prepared = self.driver.funcGetAttribute(_DYNAMIC_SHARED_ATTRIBUTE, function)
        if shared_bytes > prepared:
            with self.translated(Code.SHARED_MEMORY):
                self.driver.funcSetAttribute(function, _DYNAMIC_SHARED_ATTRIBUTE, shared_bytes)
        return function

    def max_threads(self, function: int) -> int:
        """The threads per block that this kernel's registers and launch bounds allow."""
        with self.translated():
            threads: int = self.driver.funcGetAttribute(_MAX_THREADS_ATTRIBUTE, function)
        return threads


def import_cuda() -> Cuda:
    """CuPy's wrappers.

    Raises:
        EnvironmentProblem: CuPy is missing or does not load.
    """
    try:
        from cupy_backends.cuda.api import driver, runtime
    except ImportError as error:
        raise cupy_problem(error) from None
    return Cuda(runtime, driver)


def count_devices() -> int:
    """How many CUDA devices this process sees.

    Raises:
        EnvironmentProblem: no CuPy, no driver, one too old, or no device.
    """
    cuda = import_cuda()
    try:
        count: int = cuda.runtime.getDeviceCount()
    except cuda.runtime.CUDARuntimeError as error:
        raise EnvironmentProblem(_why_none(cuda, error)) from None
    return count


def select(cuda: Cuda, index: int) -> Device:
    """Make a device current, create its context and describe it.

    Raises:
        EnvironmentProblem: there is no such device, or it has no room.
    """
    count = count_devices()
    if not 0 <= index < count:
        raise EnvironmentProblem(f"no CUDA device {index}: {count} visible")
    try:
        cuda.runtime.setDevice(index)
        free, total = cuda.runtime.memGetInfo()
        properties = cuda.runtime.getDeviceProperties(index)
    except cuda.runtime.CUDARuntimeError as error:
        raise EnvironmentProblem(
            f"CUDA device {index} cannot be opened ({error}); another process may fill it or hold "
            "it exclusively: see nvidia-smi"
        ) from None
    if free < _ROOM_BYTES:
        raise EnvironmentProblem(
            f"CUDA device {index} has {free >> 20} of {total >> 20} MiB free: another process "
            "fills it (see nvidia-smi)"
        )
    pins = _pin_bandwidth(cuda, index)
    return replace(
        described(properties, cuda.runtime.driverGetVersion()), memory_bytes_per_second=pins
    )


def _pin_bandwidth(cuda: Cuda, index: int) -> float:
    """Memory clock × two edges × bus width; 0 where the driver does not tell."""
    try:
        kilohertz: int = cuda.runtime.deviceGetAttribute(_MEMORY_CLOCK_RATE, index)
        bits: int = cuda.runtime.deviceGetAttribute(_MEMORY_BUS_WIDTH, index)
    except cuda.runtime.CUDARuntimeError:
        return 0.0
    return 2.0 * kilohertz * 1000 * bits / 8


def described(properties: dict[str, Any], driver_version: int) -> Device:
    """A device from ``getDeviceProperties`` and the driver's version number."""
    capability = 10 * properties["major"] + properties["minor"]
    block = properties["maxThreadsDim"]
    grid = properties["maxGridSize"]
    return Device(
        backend="cuda",
        name=properties["name"].decode(),
        arch=f"sm_{capability}",
        is_cpu=False,
        driver=f"CUDA {driver_version // 1000}.{driver_version % 1000 // 10}",
        max_threads_per_block=properties["maxThreadsPerBlock"],
        max_block=(block[0], block[1], block[2]),
        max_grid=(grid[0], grid[1], grid[2]),
        warp_size=properties["warpSize"],
        multiprocessors=properties["multiProcessorCount"],
        max_shared_bytes_per_block=properties["sharedMemPerBlockOptin"],
        shared_bytes_per_multiprocessor=properties["sharedMemPerMultiprocessor"],
        registers_per_multiprocessor=properties["regsPerMultiprocessor"],
        max_registers_per_block=properties["regsPerBlock"],
        max_registers_per_thread=255,
        max_threads_per_multiprocessor=properties["maxThreadsPerMultiProcessor"],
        max_blocks_per_multiprocessor=properties["maxBlocksPerMultiProcessor"],
        l2_bytes=properties["l2CacheSize"],
        memory_bytes=properties["totalGlobalMem"],
        compute_capability=capability,
        base_align=BASE_ALIGN,
        dtypes=DTYPES,
    )


def identity(cuda: Cuda, index: int) -> str:
    """A device's name on this host whatever is visible: its bus and, for slices, its UUID."""
    bus: str = cuda.runtime.deviceGetPCIBusId(index)
    uuid: bytes = cuda.runtime.getDeviceProperties(index).get("uuid", b"")
    return f"cuda-{bus.replace(':', '-')}-{uuid.hex()}"


def _why_none(cuda: Cuda, error: Any) -> str:
    if error.status == _NO_DEVICE:
        return "no CUDA device is visible: look at nvidia-smi and at CUDA_VISIBLE_DEVICES"
    if error.status == _INSUFFICIENT_DRIVER:
        with contextlib.suppress(cuda.runtime.CUDARuntimeError):
            has = cuda.runtime.driverGetVersion()
            needs = cuda.runtime.runtimeGetVersion()
            if has:
                return (
                    f"the NVIDIA driver serves CUDA {has // 1000}.{has % 1000 // 10}, this CuPy "
                    f"needs {needs // 1000}.{needs % 1000 // 10}: update the driver"
                )
        return "no NVIDIA driver on this machine (libcuda.so.1 does not load)"
    return f"no CUDA device: {error}"
