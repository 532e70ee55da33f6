"""CUDA in an application's process: its arrays and tensors, launches on its current stream.

Owns no device, no stream and no buffer of the application: it makes a device current for a launch
and puts the caller's back. Work space comes from the allocator of the caller's library, so that
launches can be captured in a graph.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tuner.device import Device
from tuner.errors import SpecError
from tuner.experiment.arguments import row_major, spanned
from tuner.plan import Binary, KernelStep
from workers.backends.cuda.argument_blocks import CudaLaunches
from workers.backends.cuda.driver import Cuda, described, import_cuda
from workers.loader.port import ArrayView, BoundCell

_KEPT_LAYOUTS = 4096
"""Distinct extents of arrays whose sizes are remembered."""

_AS_IT_IS = contextlib.nullcontext()


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
        loaded: Any = sys.modules.get("cupy")
        if loaded is not None and isinstance(given, loaded.ndarray):
            return _cupy_array(given)
        if not hasattr(given, "__cuda_array_interface__"):
            if not hasattr(given, "__dlpack__") or isinstance(given, np.ndarray):
                return None
            import cupy

            return _cupy_array(cupy.from_dlpack(given))
        return _array(given)

    def place(self, arrays: Mapping[str, ArrayView], stream: object) -> "CudaPlace":
        """See :class:`workers.loader.port.Runtime`."""
        runtime = self._cuda.runtime
        found: dict[int, str] = {}
        for name, view in arrays.items():
            if view.size:
                home = view.home
                if home is None:
                    home = runtime.pointerGetAttributes(view.address).device
                found.setdefault(home, name)
        if len(found) > 1:
            (one, first), (other, second), *_ = found.items()
            raise SpecError(
                f"argument '{first}' is on device {one} and '{second}' on {other}: move one of them"
            )
        index: int = next(iter(found), runtime.getDevice())
        if index not in self._devices:
            properties = runtime.getDeviceProperties(index)
            self._devices[index] = described(properties, runtime.driverGetVersion())
        torch: Any = sys.modules.get("torch")
        if torch is not None and not any(_is_tensor(view.given) for view in arrays.values()):
            torch = None
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

    def bind(self, code: CudaCode, bound: BoundCell) -> CudaLaunches:
        """The launches with room for their arguments."""
        with self._current(), self._cuda.translated():
            functions = [
                code.function(step) if isinstance(step, KernelStep) else 0
                for step in bound.cell.steps
            ]
            variables = {name: code.variable(symbol) for name, symbol in bound.constants.items()}
        return CudaLaunches(self._cuda, bound, functions, variables)

    def launch(
        self,
        launches: CudaLaunches,
        arrays: Mapping[str, ArrayView],
        values: Mapping[str, bytes],
    ) -> None:
        """Copy constants, then launch each step on the stream."""
        given: dict[str, int | bytes] = dict(values)
        for name, view in arrays.items():
            given[name] = view.address
        with self._current(), self._cuda.translated():
            kept = []
            for name, size in launches.bound.scratch.items():
                memory, given[name] = self._scratch(size)
                kept.append(memory)
            launches.launch(given, self._stream)

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

    def _current(self) -> AbstractContextManager[None]:
        """Makes the device current, if it is not."""
        before: int = self._cuda.runtime.getDevice()
        return _AS_IT_IS if before == self._index else self._switched(before)

    @contextlib.contextmanager
    def _switched(self, before: int) -> Iterator[None]:
        self._cuda.runtime.setDevice(self._index)
        try:
            yield
        finally:
            self._cuda.runtime.setDevice(before)


def _is_tensor(given: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.Tensor)


def _tensor(given: Any) -> ArrayView:
    if given.device.type != "cuda":
        raise SpecError(f"is on {given.device}: move it to the GPU with .cuda()")
    shape, strides, dtype = tuple(given.shape), tuple(given.stride()), _type_name(given.dtype)
    size = _size(shape, strides, given.element_size())
    return ArrayView(
        given, 0, given.data_ptr(), size, dtype, shape, strides, home=given.get_device()
    )


def _cupy_array(given: Any) -> ArrayView:
    shape, item, memory = given.shape, given.itemsize, given.data
    strides = tuple([step // item for step in given.strides])
    size, dtype = _size(shape, strides, item), _type_name(given.dtype)
    return ArrayView(given, 0, memory.ptr, size, dtype, shape, strides, home=memory.device_id)


def _array(given: Any) -> ArrayView:
    told = given.__cuda_array_interface__
    address, read_only = told["data"]
    item = np.dtype(told["typestr"]).itemsize
    shape, steps = tuple(told["shape"]), told.get("strides")
    strides = row_major(shape) if steps is None else tuple([step // item for step in steps])
    dtype = getattr(given, "dtype", None) or np.dtype(told["typestr"])
    size = _size(shape, strides, item)
    return ArrayView(given, 0, address or 0, size, _type_name(dtype), shape, strides, not read_only)


@lru_cache(maxsize=_KEPT_LAYOUTS)
def _size(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> int:
    """Bytes from the first element to the end of the last one; strides are in elements."""
    return spanned(shape, strides) * item


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
