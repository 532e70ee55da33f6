"""CUDA in an application's process: its arrays and tensors, launches on its current stream.

Owns no device, no stream and no buffer of the application: it makes a device current for a launch
and puts the caller's back. Work space comes from the allocator of the caller's library, so that
launches can be captured in a graph.
"""

import contextlib
import math
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from tuner.device import Device
from tuner.errors import SpecError
from tuner.plan import Binary, KernelStep, MemsetStep
from workers.backends.cuda.attributes import AttributedLaunch
from workers.backends.cuda.driver import ON_DEVICE, Cuda, described, import_cuda
from workers.loader.port import ArrayView, BoundCell

_SLOT = 16
"""Arguments by value are aligned to this many bytes, which suits every type."""


def open_runtime() -> "CudaRuntime":
    """Raises :class:`EnvironmentProblem` where CuPy is missing."""
    return CudaRuntime(import_cuda())


class CudaRuntime:
    """Sees CuPy arrays, PyTorch tensors, and other arrays through their protocols."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._devices: dict[int, Device] = {}

    def view(self, given: object) -> ArrayView | None:
        """See :class:`workers.loader.port.Runtime`."""
        if _is_tensor(given):
            return _tensor(given)
        if not hasattr(given, "__cuda_array_interface__"):
            if not hasattr(given, "__dlpack__") or isinstance(given, np.ndarray):
                return None
            import cupy

            given = cupy.from_dlpack(given)
        return _array(given)

    def place(self, arrays: Mapping[str, ArrayView], stream: object) -> "CudaPlace":
        """See :class:`workers.loader.port.Runtime`."""
        runtime = self._cuda.runtime
        found: dict[int, str] = {}
        for name, view in arrays.items():
            if view.size:
                found.setdefault(runtime.pointerGetAttributes(view.address).device, name)
        if len(found) > 1:
            (one, first), (other, second), *_ = found.items()
            raise SpecError(
                f"argument '{first}' is on device {one} and '{second}' on {other}: move one of them"
            )
        index: int = next(iter(found), runtime.getDevice())
        if index not in self._devices:
            properties = runtime.getDeviceProperties(index)
            self._devices[index] = described(properties, runtime.driverGetVersion())
        tensors = [view.given for view in arrays.values() if _is_tensor(view.given)]
        torch: Any = sys.modules["torch"] if tensors else None
        address = _stream(stream, index, torch)
        return CudaPlace(self._cuda, index, self._devices[index], address, torch)


class CudaCode:
    """A loaded module and its functions by entry and dynamic shared memory."""

    def __init__(self, cuda: Cuda, binary: Binary) -> None:
        self._cuda = cuda
        self._symbols = dict(binary.symbols)
        self._module: int = cuda.driver.moduleLoadData(binary.code)
        self._functions: dict[tuple[str, int], int] = {}

    def function(self, step: KernelStep) -> int:
        """The function of a launch."""
        key = step.entry, step.shared_bytes
        if key not in self._functions:
            symbol = self._symbols[step.entry]
            self._functions[key] = self._cuda.function(self._module, symbol, step.shared_bytes)
        return self._functions[key]

    def variable(self, name: str) -> int:
        """The address of a variable of the module."""
        address: int = self._cuda.driver.moduleGetGlobal(
            self._module, self._symbols.get(name, name)
        )
        return address


class CudaPlace:
    """A device and a stream of the application; ``torch`` if its tensors are used."""

    def __init__(self, cuda: Cuda, index: int, device: Device, stream: int, torch: Any) -> None:
        self._cuda, self._index, self._stream, self._torch = cuda, index, stream, torch
        self.device = device
        self.key = index

    def load(self, binary: Binary) -> CudaCode:
        """Load a module into the device's primary context."""
        with self._current(), self._cuda.translated():
            return CudaCode(self._cuda, binary)

    def launch(self, code: CudaCode, bound: BoundCell) -> None:
        """Copy constants, then launch each step on the stream."""
        runtime = self._cuda.runtime
        with self._current(), self._cuda.translated():
            kept = {name: self._scratch(size) for name, size in bound.scratch.items()}
            addresses = {name: address for name, (_, address) in kept.items()}
            addresses |= {name: view.address for name, view in bound.arrays.items()}
            sizes = {**bound.sizes, **bound.scratch}
            for name, variable in bound.constants.items():
                target, size = code.variable(variable), sizes[name]
                runtime.memcpyAsync(target, addresses[name], size, ON_DEVICE, self._stream)
            for step in bound.cell.steps:
                if isinstance(step, MemsetStep):
                    place, size = addresses[step.argument], sizes[step.argument]
                    runtime.memsetAsync(place, step.byte, size, self._stream)
                else:
                    self._launch(code.function(step), step, addresses, bound)

    def _launch(
        self, function: int, step: KernelStep, addresses: Mapping[str, int], bound: BoundCell
    ) -> None:
        parts, places, end = [], [], 0
        for name in step.arguments:
            data = bound.values.get(name)
            if data is None:
                data = (0 if name in bound.nulls else addresses[name]).to_bytes(8, sys.byteorder)
            places.append(end)
            parts.append(data.ljust(-(-len(data) // _SLOT) * _SLOT, b"\0"))
            end += len(parts[-1])
        held = np.zeros(end + _SLOT, np.uint8)
        start = -held.ctypes.data % _SLOT
        held[start : start + end] = np.frombuffer(b"".join(parts), np.uint8)
        table = np.array([held.ctypes.data + start + place for place in places or [0]], np.uint64)
        arguments: int = table.ctypes.data
        if step.dependent or math.prod(step.cluster) > 1:
            AttributedLaunch(function, step, self._stream)(arguments)
            return
        sizes = (*step.grid, *step.block, step.shared_bytes, self._stream)
        if step.cooperative:
            self._cuda.driver.launchCooperativeKernel(function, *sizes, arguments)
        else:
            self._cuda.driver.launchKernel(function, *sizes, arguments, 0)

    def _scratch(self, size: int) -> tuple[object, int]:
        """Work space and its address, from an allocator that orders reuse by the stream."""
        if self._torch is not None:
            stream = self._torch.cuda.ExternalStream(self._stream, device=self._index)
            with self._torch.cuda.stream(stream):
                tensor = self._torch.empty(
                    max(1, size), dtype=self._torch.uint8, device=f"cuda:{self._index}"
                )
            return tensor, tensor.data_ptr()
        import cupy

        # CuPy's own current stream needs no switch, and none of the warnings that come with one.
        own = cupy.cuda.get_current_stream(self._index).ptr == self._stream
        with (
            contextlib.nullcontext() if own else cupy.cuda.ExternalStream(self._stream, self._index)
        ):
            memory = cupy.cuda.alloc(max(1, size))
        return memory, memory.ptr

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        runtime = self._cuda.runtime
        before = runtime.getDevice()
        if before == self._index:
            yield
            return
        runtime.setDevice(self._index)
        try:
            yield
        finally:
            runtime.setDevice(before)


def _is_tensor(given: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.Tensor)


def _tensor(given: Any) -> ArrayView:
    if given.device.type != "cuda":
        raise SpecError(f"is on {given.device}: move it to the GPU with .cuda()")
    return _viewed(
        given, given.data_ptr(), tuple(given.shape), tuple(given.stride()), given.element_size()
    )


def _array(given: Any) -> ArrayView:
    told = given.__cuda_array_interface__
    address, read_only = told["data"]
    item = np.dtype(told["typestr"]).itemsize
    shape = tuple(told["shape"])
    steps = told.get("strides")
    if steps is None:
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    else:
        strides = tuple(step // item for step in steps)
    return _viewed(given, address or 0, shape, strides, item, writable=not read_only)


def _viewed(
    given: Any,
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    item: int,
    *,
    writable: bool = True,
) -> ArrayView:
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    dtype = getattr(given, "dtype", None) or np.dtype(given.__cuda_array_interface__["typestr"])
    return ArrayView(
        given=given,
        base=0,
        address=address,
        size=0 if 0 in shape else (last + 1) * item,
        dtype=_type_name(dtype),
        shape=shape,
        strides=strides,
        writable=writable,
    )


@cache
def _type_name(dtype: object) -> str:
    """The format's name of an element type of NumPy or PyTorch."""
    return str(dtype).removeprefix("torch.").removesuffix("fn")


def _stream(given: object, index: int, torch: Any) -> int:
    """The address of a stream: the given one, else the caller's current one."""
    if given is None:
        if torch is not None:
            current: int = torch.cuda.current_stream(index).cuda_stream
            return current
        import cupy

        address: int = cupy.cuda.get_current_stream(index).ptr
        return address
    found = next(
        (getattr(given, name) for name in ("cuda_stream", "ptr") if hasattr(given, name)), given
    )
    if not isinstance(found, int):
        raise SpecError("stream: pass a stream of CuPy or PyTorch, or the address of one")
    return found
