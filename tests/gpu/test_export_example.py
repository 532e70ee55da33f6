"""The example program of a CUDA export, compiled against the driver and NVRTC, and run."""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.tuner.results.runs import finished_run
from tuner.experiment.load import load_experiment
from tuner.export.bundle import export_files
from workers.backends.cuda.driver import described, import_cuda

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc"),
]


@pytest.mark.parametrize("spec", ["cuda", "cuda_shipped"])
def test_it_launches_the_tuned_kernel_and_prints_the_result(spec, tmp_path):
    found = find_spec("nvidia.cu13")
    if found is None or not found.submodule_search_locations:
        pytest.skip("no CUDA packages")
    toolkit = Path(found.submodule_search_locations[0])
    runtime = import_cuda().runtime
    device = described(runtime.getDeviceProperties(0), runtime.driverGetVersion())
    experiment = load_experiment(f"deploy/experiments/silu_and_mul/{spec}.yaml")
    first = {name: values[0] for name, values in experiment.template.parameters.items()}
    count = len((*experiment.shapes.tune, *experiment.shapes.held_out))
    history = finished_run(experiment, device, [1000.0] * count, [(first, [500.0] * count)])
    for name, text in export_files(history).items():
        (tmp_path / name).write_text(text)
    (nvrtc,) = (toolkit / "lib").glob("libnvrtc.so.*")
    command = ["gcc", "-std=c99", f"-I{toolkit / 'include'}", "example.c", nvrtc, "-l:libcuda.so.1"]
    subprocess.run(command, cwd=tmp_path, check=True)
    environment = os.environ | {
        "CUDA_HOME": str(toolkit),
        "LD_LIBRARY_PATH": str(toolkit / "lib"),
    }
    ran = subprocess.run(
        [tmp_path / "a.out", "."], cwd=tmp_path, env=environment, text=True, capture_output=True
    )
    one = np.float16(1 / (1 + np.exp(-1.0)))
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("launched silu_and_mul"), ran.stderr
    printed = np.array([int(lines[1].partition("0x")[2], 16)], np.uint16).view(np.float16)
    assert abs(float(printed[0]) - float(one)) < 2e-3
