"""The loader's CUDA side over host memory: how arrays are seen, and what launches are given."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from tests.workers.backends.fake_cuda import DEVICE, FakeDriver, binary, fake_cuda, view
from tuner.errors import SpecError
from tuner.plan import CellPlan, KernelStep, MemsetStep
from workers.backends.cuda.runtime import CudaPlace, CudaRuntime
from workers.loader.port import BoundCell

STREAM = 77


@dataclass
class HostArray:
    """A NumPy array that passes for one on a device."""

    array: np.ndarray
    read_only: bool = False

    @property
    def dtype(self):
        return self.array.dtype

    @property
    def __cuda_array_interface__(self):
        told = self.array.__array_interface__
        return {**told, "data": (told["data"][0], self.read_only), "version": 3}


@pytest.fixture
def cuda():
    return fake_cuda()


def test_an_array_is_seen_with_its_type_extents_and_strides(cuda):
    runtime = CudaRuntime(cuda[0])
    whole = np.zeros((4, 6), np.float32)
    seen = runtime.view(HostArray(whole))
    assert (seen.dtype, seen.shape, seen.strides, seen.size) == ("float32", (4, 6), (6, 1), 96)
    assert seen.address == whole.ctypes.data
    seen = runtime.view(HostArray(whole[::2, 1:3], read_only=True))
    assert (seen.shape, seen.strides, seen.size, seen.writable) == ((2, 2), (12, 1), 56, False)
    assert runtime.view(HostArray(whole[:0])).size == 0
    for other in (whole, 3, "x"):
        assert runtime.view(other) is None


@pytest.mark.slow  # importing CuPy takes a second
def test_an_array_of_cupy_tells_its_device_and_is_not_asked_for_its_interface(cuda):
    cupy = pytest.importorskip("cupy")
    memory = cupy.cuda.UnownedMemory(4096, 96, None, device_id=3)
    whole = cupy.ndarray((4, 6), np.float32, cupy.cuda.MemoryPointer(memory, 0))
    seen = CudaRuntime(cuda[0]).view(whole[::2, 1:3])
    assert (seen.address, seen.dtype, seen.home) == (4096 + 4, "float32", 3)
    assert (seen.shape, seen.strides, seen.size) == ((2, 2), (12, 1), 56)


def test_a_launch_has_arrays_values_null_pointers_and_constants_in_their_places(cuda):
    wrapped, runtime, driver = cuda
    out, x, table, variable = (np.full(4, fill, np.float32) for fill in (9.0, 2.0, 5.0, 0.0))
    driver.globals["table"] = variable.ctypes.data

    def scale(_grid, block, taken):
        target, source, nothing = (FakeDriver.argument(taken, place) for place in (0, 1, 3))
        assert nothing == 0
        assert block == (4, 1, 1)
        factor = FakeDriver.argument(taken, 2, "f4")
        view(int(target), 4, "f4")[:] += factor * view(int(source), 4, "f4") + variable

    driver.kernels["scale"] = scale
    seen = CudaRuntime(wrapped)
    arrays = {"out": out, "x": x, "table": table}
    steps = (
        MemsetStep(argument="out", byte=0),
        KernelStep(
            entry="scale",
            grid=(1, 1, 1),
            block=(4, 1, 1),
            shared_bytes=65536,
            arguments=("out", "x", "factor", "none"),
        ),
    )
    views = {name: seen.view(HostArray(array)) for name, array in arrays.items()}
    bound = BoundCell(
        cell=CellPlan(build=0, steps=steps),
        widths={"factor": 4, "none": 8},
        sizes=dict.fromkeys(arrays, 16),
        scratch={},
        constants={"table": "table"},
    )
    runtime.getDevice = lambda: 0
    place = CudaPlace(wrapped, 0, DEVICE, STREAM, None)
    runtime.streamBeginCapture(STREAM)
    launches = place.bind(place.load(binary("scale")), bound)
    place.launch(launches, views, {"factor": np.float32(3).tobytes(), "none": bytes(8)})
    assert out.tolist() == [9.0] * 4  # only captured so far
    runtime.graphLaunch(runtime.streamEndCapture(STREAM), 0)
    assert out.tolist() == [11.0] * 4
    other = np.full(4, 4.0, np.float32)
    runtime.streamBeginCapture(STREAM)
    again = views | {"x": seen.view(HostArray(other))}
    place.launch(launches, again, {"factor": np.float32(1).tobytes(), "none": bytes(8)})
    runtime.graphLaunch(runtime.streamEndCapture(STREAM), 0)
    assert out.tolist() == [9.0] * 4  # what the call before left is gone
    assert driver.attributes[0][2] == 65536


def test_arrays_on_two_devices_are_refused_by_name(cuda):
    wrapped, runtime, _ = cuda
    first, second = np.zeros(4, np.float32), np.zeros(4, np.float32)
    homes = {first.ctypes.data: 0, second.ctypes.data: 1}
    runtime.pointerGetAttributes = lambda address: SimpleNamespace(device=homes[address])
    seen = CudaRuntime(wrapped)
    arrays = {"a": seen.view(HostArray(first)), "b": seen.view(HostArray(second))}
    with pytest.raises(SpecError, match="'a' is on device 0 and 'b' on 1: move one"):
        seen.place(arrays, STREAM)
