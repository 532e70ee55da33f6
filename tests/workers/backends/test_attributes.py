"""Launch attributes on CUDA: what the driver is told, and late writes that a launch must wait for.

The driver is a fake over host memory; a GPU runs ``tests/gpu/exploits/53_*``.
"""

import ctypes

import numpy as np
import pytest

from tests.workers.backends.fake_cuda import view
from tests.workers.backends.test_cuda import N, Rig, step, want
from tuner.backends.cuda import CHECKS_FOLDER
from tuner.plan import Scratch
from tuner.trial import Code
from workers.backends.cuda import attributes
from workers.backends.cuda.attributes import LaunchConfig
from workers.devices.port import DeviceFailure, LateWrite

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")


class Library:
    """``libcuda.so.1`` as far as one call of it: launches on the fake driver."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.status = 0
        self.seen: list[dict[int, object]] = []

    def cuLaunchKernelEx(self, config, function, table, extra) -> int:  # noqa: N802 (the driver's)
        given = ctypes.cast(config, ctypes.POINTER(LaunchConfig)).contents
        self.seen.append(
            {
                one.id: (one.value.size.x, one.value.size.y, one.value.size.z)
                if one.id == 4
                else one.value.flag
                for one in given.attributes[: given.count]
            }
        )
        if self.status:
            return self.status
        grid, block = ((s.x, s.y, s.z) for s in (given.grid, given.block))
        shared, stream = given.shared_bytes, given.stream
        self.rig.driver.launchKernel(function.value, *grid, *block, shared, stream, table.value, 0)
        return 0


@pytest.fixture(scope="module")
def compiled_checks(tmp_path_factory):
    """Where the children of a bench share the compiled checks."""
    return tmp_path_factory.mktemp("checks")


@pytest.fixture
def rig(tmp_path, monkeypatch, compiled_checks):
    monkeypatch.setenv(CHECKS_FOLDER, str(compiled_checks))
    return Rig(tmp_path)


@pytest.fixture
def library(rig, monkeypatch):
    found = Library(rig)
    monkeypatch.setattr("workers.backends.cuda.attributes.driver_library", lambda: found)
    return found


def test_the_structures_are_as_the_driver_reads_them():
    assert ctypes.sizeof(LaunchConfig) == 56
    places = {name: getattr(LaunchConfig, name).offset for name, *_ in LaunchConfig._fields_}
    assert places == {
        "grid": 0,
        "block": 12,
        "shared_bytes": 24,
        "stream": 32,
        "attributes": 40,
        "count": 48,
    }
    attribute = LaunchConfig._fields_[4][1]._type_
    assert (ctypes.sizeof(attribute), attribute.value.offset) == (72, 8)


def test_a_launch_tells_the_driver_its_attributes(rig, library):
    launchable = rig.bind(step(dependent=True), step(cluster=(2, 1, 1), grid=(4, 1, 1)), step())
    rig.buffer_sets.restore([0, 1, 2], 0xAB)
    launchable.burst((0, 1))
    assert library.seen == [{6: 1}, {4: (2, 1, 1)}] * 2
    assert len(rig.launched) == 6


def test_a_refused_launch_is_classified_and_the_capture_is_abandoned(rig, library):
    launchable = rig.bind(step(cluster=(8, 1, 1), grid=(8, 1, 1)))
    library.status = 912
    with pytest.raises(DeviceFailure) as failure:
        launchable.burst((0,))
    assert (failure.value.code, failure.value.sticky) == (Code.GRID, False)
    assert rig.runtime.capturing is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cluster": (3, 1, 1), "grid": (4, 1, 1)}, "no multiple of 3"),
        ({"cluster": (4, 4, 1), "grid": (4, 4, 1)}, "blocks per cluster"),
    ],
)
def test_a_cluster_over_the_limits_is_refused_by_name(rig, library, more, words):
    with pytest.raises(DeviceFailure, match=words):
        rig.bind(step(**more))


@pytest.mark.parametrize("stale", ["zeros", "rotated"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_launch_that_does_not_wait_finds_stale_memory(rig, library, stale, waits):
    def kernel(grid, block, table):
        if waits:
            rig.driver.wait()
        rig.double(grid, block, table)
        rig.driver.wait()

    rig.driver.kernels["double"] = kernel
    launchable = rig.bind(
        step(dependent=True),
        scratch=(Scratch(name="part", dtype="float32", elements=8, align=4),),
    )
    rig.buffer_sets.restore([0, 1], 0xAB)
    launchable.burst((1, 0), late=LateWrite(step=0, stale=stale))
    oracle = want(rig, 2.0 * rig.data.astype(np.float64), rtol=1e-6)
    seen = rig.buffer_sets.inspect(0, oracle)
    assert seen.damage is None
    assert (seen.comparisons["out"].failures == 0) == waits
    assert rig.buffer_sets.inspect(1, oracle).comparisons["out"].failures == 0


def test_what_an_earlier_step_wrote_is_written_late_too(rig, library):
    def second(grid, block, table):
        stale.append(view(int(rig.driver.argument(table, 0)), N, "f4").copy())
        rig.driver.wait()

    stale: list[np.ndarray] = []
    rig.driver.kernels["spoil"] = second
    launchable = rig.bind(step(), step("spoil", ("out",), dependent=True))
    rig.buffer_sets.restore([0], 0xAB)
    launchable.burst((0,), late=LateWrite(step=1, stale="rotated"))
    oracle = want(rig, 2.0 * rig.data.astype(np.float64), rtol=1e-6)
    assert rig.buffer_sets.inspect(0, oracle).comparisons["out"].failures == 0
    assert sorted(stale[0]) == sorted(2 * rig.data)
    assert not np.array_equal(stale[0], 2 * rig.data)


def test_the_memory_set_aside_is_freed(rig, library):
    before = len(rig.runtime.allocations)
    launchable = rig.bind(step(dependent=True))
    launchable.release()
    rig.buffer_sets.release()
    assert len(rig.runtime.allocations) <= before
    assert attributes.driver_library() is library
