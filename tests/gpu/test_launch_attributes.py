"""Dependent launches and clusters on a real GPU: late writes are seen, overlap saves time."""

import numpy as np
import pytest

from tests.gpu.rig import Rig, binary_of, kernel
from tuner.plan import CellPlan
from workers.devices.port import LateWrite

pytestmark = pytest.mark.gpu

WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
DOUBLE = """extern "C" __global__ void run(float* out, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  asm volatile("griddepcontrol.launch_dependents;");
  %s
  if (i < n) out[i] = 2.0f * x[i];
}
"""
RANK = """#include <cooperative_groups.h>
extern "C" __global__ void run(float* out, const float* x, int n) {
  auto cluster = cooperative_groups::this_cluster();
  __shared__ float first;
  if (threadIdx.x == 0) first = cluster.block_rank() == 0 ? 2.0f : 0.0f;
  cluster.sync();
  const float factor = *cluster.map_shared_rank(&first, 0);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = factor * x[i];
  cluster.sync();
}
"""


@pytest.fixture(scope="module")
def rig():
    with Rig() as rig:
        if not rig.device.device.has_launch_attributes:
            pytest.skip("the device has no launch attributes")
        yield rig


@pytest.fixture
def doubling(rig, tmp_path):
    buffer_sets, data = rig.doubling(tmp_path)
    yield buffer_sets, rig.expected(tmp_path, 2.0 * data.astype(np.float64), rtol=1e-7)
    buffer_sets.release()


def bound(rig, buffer_sets, source, **more):
    module = rig.device.load([binary_of(rig.device.device, source)])
    step = kernel(("out", "x", "n"), grid=(40, 1, 1), **more)
    return rig.device.bind(module, CellPlan(build=0, steps=(step,)), buffer_sets)


def failures(buffer_sets, index, want) -> int:
    seen = buffer_sets.inspect(index, {"out": want})
    assert seen.damage is None
    return seen.comparisons["out"].failures


@pytest.mark.parametrize("stale", ["zeros", "rotated"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_launch_that_does_not_wait_reads_stale_memory(rig, doubling, stale, waits):
    buffer_sets, want = doubling
    launchable = bound(rig, buffer_sets, DOUBLE % (WAIT if waits else ""), dependent=True)
    for _ in range(5):
        buffer_sets.restore([0, 1, 2], 0xFF)
        launchable.burst((2, 0, 1), late=LateWrite(step=0, stale=stale))
        assert (failures(buffer_sets, 1, want) == 0) == waits
        assert failures(buffer_sets, 2, want) == 0


def test_dependent_launches_overlap(rig, doubling):
    buffer_sets, want = doubling
    order = (0, 1, 2) * 40
    times = {}
    for dependent in (False, True):
        launchable = bound(rig, buffer_sets, DOUBLE % WAIT, dependent=dependent)
        found = []
        for _ in range(6):
            buffer_sets.restore([0, 1, 2], 0xFF)
            found += launchable.burst(order)
            assert failures(buffer_sets, 0, want) == 0
        times[dependent] = min(found)
    assert times[True] < 0.95 * times[False], times


def test_a_cluster_shares_memory(rig, doubling):
    buffer_sets, want = doubling
    launchable = bound(rig, buffer_sets, RANK, cluster=(8, 1, 1))
    buffer_sets.restore([0, 1, 2], 0xFF)
    launchable.burst((0, 1, 2))
    assert failures(buffer_sets, 2, want) == 0
