"""An application with tuned kernels in its source, built by nvcc: eager and in a graph."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device
from tuner.experiment.load import load_experiment
from tuner.export.application import apply_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc"),
]

HOST = Path(__file__).parent / "data" / "applications" / "silu_host.cu"
CONFIRMED = {(16, 4096), (64, 8192), (512, 11008)}
CHOSEN = {
    "BLOCK": 128,
    "UNROLL": 2,
    "VEC": 8,
    "LOAD": "plain",
    "STORE": "plain",
    "FAST": True,
}


@dataclass(frozen=True)
class Line:
    """What the application prints for one shape; times in µs per launch."""

    shape: tuple[int, int]
    served: bool
    eager: float
    replayed: float
    device_us: float
    host_us: float


def built_and_run(folder: Path, *flags: str) -> list[Line]:
    command = ["nvcc", "-O2", "-std=c++17", "-arch=native", *flags, "app.cu", "-o", "app"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([folder / "app"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = []
    for line in ran.stdout.splitlines():
        tokens, d, served, *figures = line.split()
        found.append(Line((int(tokens), int(d)), served == "1", *map(float, figures)))
    return found


def test_the_application_computes_the_same_and_launches_tuned_kernels(tmp_path):
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    asked = subprocess.run(query, capture_output=True, text=True, check=True)
    if asked.stdout.split()[0] != "9.0":
        pytest.skip("the run is of a device of compute capability 9.0")
    one = load_experiment("deploy/experiments/silu_and_mul/cuda.yaml")
    count = len((*one.shapes.tune, *one.shapes.held_out))
    history = finished_run(one, cuda_device(90), [1000.0] * count, [(CHOSEN, [500.0] * count)])
    text = f"{one.kernel.source.text}\n{HOST.read_text()}"
    application = apply_run(history, "silu-1", "app.cu", text, lambda path: None)
    assert not [note for note in application.notes if "stays" in note]
    for change in application.changes:
        (tmp_path / change.path).write_text(change.after)
    before = built_and_run(tmp_path, "-DKERNELWRIGHT_OFF")
    after = built_and_run(tmp_path)
    for old, new in zip(before, after, strict=True):
        print(f"{new.shape}: device {old.device_us} to {new.device_us} µs", end=", ")
        print(
            f"host {old.host_us} to {new.host_us} µs a launch", "" if new.served else "(original)"
        )
        assert new.served == (new.shape in CONFIRMED)
        assert new.replayed == new.eager
        assert new.eager == pytest.approx(old.eager, rel=1e-4)
