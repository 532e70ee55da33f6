"""Energy of a launch on a real GPU: plausible, repeatable, and measured of every candidate."""

from pathlib import Path

import pytest

from tests.workers.harness import Laboratory
from tuner.trial import Measured, Rejected

pytestmark = pytest.mark.gpu

WATTS = 700.0
"""The power limit of an H100 or H200 board."""

SPEC = """
version: 1
name: copy
objective: energy
kernel:
  language: cuda
  source: copy.cu
  entry: copy
  launch: {grid: ["ceil_div(n, 256)"], block: [256]}
arguments:
  - {name: out, kind: out, dtype: float32, shape: [n]}
  - {name: x, kind: in, dtype: float32, shape: [n]}
  - {name: n, kind: scalar, dtype: int32, value: n}
shapes:
  domain: ["1 <= n"]
  tune: [{n: 16777216}, {n: 65536}]
"""
SOURCE = """extern "C" __global__ void copy(float* out, const float* x, int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = {};
}}
"""


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("copy")
    (folder / "copy.cu").write_text(SOURCE.format("x[i]"))
    (folder / "experiment.yaml").write_text(SPEC)
    made = Laboratory(folder / "experiment.yaml")
    yield made
    made.close()


def test_the_energy_of_a_copy_is_plausible(laboratory):
    cells = laboratory.prepared.result
    assert not isinstance(cells, Rejected), cells
    for cell in cells:
        most_mj = WATTS * cell.median_ns * 1e-6
        print(f"{cell.median_ns:.0f} ns, {cell.energy.millijoules:.4f} mJ")
        assert 0.02 * most_mj < cell.energy.millijoules < 2 * most_mj


def test_the_same_kernel_takes_the_same_energy(laboratory):
    outcome = laboratory.outcome(SOURCE.format("x[i] + 0.0f"))
    assert isinstance(outcome, Measured), outcome
    for cell in outcome.cells:
        print(f"time ratio {cell.time_ratio:.4f}, energy ratio {cell.ratio:.4f}")
        assert cell.ratio == pytest.approx(1.0, abs=0.15), "0.896 was seen, of one measurement each"


def test_confirmation_measures_the_energy_of_all(laboratory):
    candidate = laboratory.candidate(SOURCE.format("x[i] + 0.0f"))
    sampled = laboratory.confirmed(candidate, scope="tune")
    assert not sampled.failed
    for sample in sampled.samples:
        print(sample)
        assert sample.millijoules is not None
