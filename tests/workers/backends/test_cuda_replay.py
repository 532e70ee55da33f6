"""CUDA's replay over a driver in host memory: raw parameters, pointers, alignment, leaks."""

import numpy as np
import pytest

from tests.workers.backends.fake_cuda import DirectDriver, fake_cuda, view
from tuner.trial import Code
from workers.backends.cuda.replay import CudaReplay
from workers.devices.port import DeviceFailure
from workers.interposer.recording import Pointer
from workers.replay.port import Change, ReplayLaunch, Window

WHOLE = [Window(0, 0, 32)]
ADDRESS = 0x7F0000000000 + 48


@pytest.fixture
def device():
    cuda, runtime, _ = fake_cuda()
    runtime.deviceSynchronize = lambda: None
    driver = DirectDriver(runtime)
    driver.seen = []

    def add(grid, block, table):
        x, out = (int(driver.argument(table, place)) for place in (0, 2))
        count, scale = (
            view(int(view(table + 8, 1, "u8")[0]), 12)[:4],
            view(int(view(table + 8, 1, "u8")[0]), 12)[4:],
        )
        count, scale = count.view(np.int32)[0], scale.view(np.float64)[0]
        driver.seen.append((grid, block, x % 512, out - x))
        view(out, count, "f4")[:] = view(x, count, "f4") * scale

    driver.kernels["add"] = add
    return CudaReplay(type(cuda)(runtime, driver)), runtime, driver


def launch(symbol="add"):
    struct = np.int32(3).tobytes() + np.float64(2).tobytes()
    return ReplayLaunch(
        symbol=symbol,
        grid=(7, 1, 1),
        block=(32, 2, 1),
        shared_bytes=0,
        cooperative=False,
        parameters=("00" * 8, struct.hex(), "11" * 8),
        pointers=(
            Pointer(parameter=0, at=0, buffer=0, offset=0),
            Pointer(parameter=2, at=0, buffer=0, offset=16),
        ),
        addresses=(ADDRESS,),
    )


def test_parameters_are_raw_bytes_with_pointers_into_aligned_buffers(device):
    replay, runtime, driver = device
    held = np.arange(8, dtype=np.float32)
    replay.open(launch(), b"image", [held.tobytes()])
    for _ in range(2):
        (found,) = replay.run([], WHOLE)
        assert np.frombuffer(found, np.float32).tolist() == [0, 1, 2, 3, 0, 2, 4, 7]
    (found,) = replay.run([Change(0, 4, np.float32(10).tobytes())], WHOLE)
    assert np.frombuffer(found, np.float32).tolist() == [0, 10, 2, 3, 0, 20, 4, 7]
    assert replay.run([], [Window(0, 20, 24)]) == [np.float32(2).tobytes()]
    assert set(driver.seen) == {((7, 1, 1), (32, 2, 1), ADDRESS % 512, 16)}
    before = len(runtime.allocations)
    replay.open(launch(), b"image", [held.tobytes()])
    assert len(runtime.allocations) == before


def test_an_unknown_kernel_is_a_failure(device):
    replay, _, _ = device
    with pytest.raises(DeviceFailure) as failed:
        replay.open(launch("absent"), b"image", [bytes(32)])
    assert failed.value.code == Code.LAUNCH_FAILED
