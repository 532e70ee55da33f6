"""Replay on a real GPU: results bit for bit, roles and types, a draft that is a baseline."""

from functools import partial

import numpy as np
import pytest

from cluster.commands.captures import draft_capture
from tests.gpu.rig import binary_of
from tests.workers.harness import Laboratory
from tests.workers.interposer.recordings import captured_launch, write_recording
from workers.devices.discover import find
from workers.replay.derive import derive
from workers.replay.process import ReplayProcess

pytestmark = pytest.mark.gpu

SOURCE = """#include <torch/extension.h>
KERNEL"""
KERNEL = """__global__ void scale(float* out, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i];
}
extern "C" __global__ void gather(float* out, const float* table, const int* index, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = table[(long long)index[i] * 4096];
}
"""
RNG = np.random.default_rng(0)


def scale_launch(folder, n, **more):
    x = RNG.standard_normal(n + 64).astype(np.float32)
    before = np.zeros(n + 32, np.float32)
    after = before.copy()
    after[:n] = 2 * x[:n]
    raw = [(before.tobytes(), after.tobytes()), (x.tobytes(),) * 2, np.int32(n).tobytes()]
    return captured_launch(folder, raw, grid=(-(-n // 64), 1, 1), **more)


def test_a_capture_is_replayed_and_its_draft_is_measured(tmp_path):
    folder = tmp_path / "capture"
    launches = [scale_launch(folder, 10_000, eager=3), scale_launch(folder, 100_000, eager=1)]
    code = binary_of(find("cuda")[0].device, KERNEL, "scale").code
    write_recording(folder, launches, name="_Z5scalePfPKfi", image=code)
    (tmp_path / "scale.cu").write_text(SOURCE.replace("KERNEL", KERNEL))
    more = {"entry": None, "output": None, "commands": None, "include": [], "device": None}
    draft_capture(folder, tmp_path / "scale.cu", **more)
    text = (folder / "spec.yaml").read_text()
    print(text)
    assert "Every replay gave the application's results bit for bit." in text
    assert "{name: out, kind: out, dtype: float32, shape: [n]" in text
    assert "{name: x, kind: in, dtype: float32, shape: [n]" in text
    laboratory = Laboratory(folder / "spec.yaml")
    try:
        assert not hasattr(laboratory.prepared.result, "detail"), laboratory.prepared.result
    finally:
        laboratory.close()


def test_indices_crash_the_launch_and_not_the_replay(tmp_path):
    n = 4000
    table = RNG.standard_normal(64 * 4096).astype(np.float32)
    index = RNG.integers(0, 64, n).astype(np.int32)
    out = table[index.astype(np.int64) * 4096]
    raw = [
        (bytes(4 * n), out.tobytes()),
        (table.tobytes(),) * 2,
        (index.tobytes(),) * 2,
        np.int32(n).tobytes(),
    ]
    launch = captured_launch(tmp_path, raw, grid=(-(-n // 64), 1, 1))
    code = binary_of(find("cuda")[0].device, KERNEL, "gather").code
    recording = write_recording(tmp_path, [launch], name="gather", image=code)
    found = derive(tmp_path, recording, 0, partial(ReplayProcess, "cuda", 0))
    (shape,) = found.shapes
    assert shape.replay == "exact"
    assert [shape.memory[k].kind for k in range(3)] == ["out", "in", "in"]
    assert shape.memory[2].read == (0, 4 * n)
    assert shape.memory[2].fault
    assert [found.types[k].text for k in range(3)] == ["float32", "float32", "int32"]
