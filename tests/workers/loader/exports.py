"""Exports of small OpenCL kernels for the processor at hand, made of told times."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.tuner.results.runs import finished_run
from tuner.experiment.load import load_experiment
from tuner.export.bundle import export_files
from workers.backends.opencl.platforms import described, opencl_devices

SPEC = """\
version: 1
name: scale_rows
kernel:
  language: opencl
  source: scale_rows.cl
  entry: scale_rows
  launch: {grid: ["ceil_div(cols, 8)", rows], block: [8]}
arguments:
  - {name: out, kind: out, dtype: float32, shape: [rows, cols], align: 16}
  - {name: x, kind: in, dtype: float32, shape: [rows, cols]}
  - {name: cols, kind: scalar, dtype: int32, value: cols}
  - {name: mode, kind: scalar, dtype: int32, value: 7, fixed: true}
  - {name: factor, kind: scalar, dtype: float32, value: 2.0}
shapes:
  domain: ["1 <= rows", "4 <= cols", "cols <= 4096", "cols % 4 == 0"]
  tune: [{rows: 4, cols: 64}, {rows: 64, cols: 512}]
template:
  source: tuned.cl
  entry: scale_rows
  parameters: {BLOCK: [8, 16], SPLIT: [1, 2]}
  defines: {WIDE: "cols >= 256"}
  scratch: [{name: partial, dtype: float32, shape: [rows]}]
  launches:
    - {memset: partial, byte: 0}
    - {grid: ["ceil_div(cols, BLOCK)", rows], block: [BLOCK]}
"""

KERNEL = """\
kernel void scale_rows(global float *out, global const float *x, int cols, int mode, float factor) {
  int col = get_global_id(0), row = get_global_id(1);
  if (col < cols) out[row * cols + col] = factor * x[row * cols + col];
}
"""

TUNED = """\
#include "twice.h"
kernel void scale_rows(global float *out, global const float *x, int cols, int mode, float factor,
                       global float *partial) {
  int col = get_global_id(0), row = get_global_id(1);
  int i = row * cols + col;
  if (col < cols) out[i] = factor * x[i] + partial[row] + 0 * WIDE * TWICE(SPLIT);
}
"""


def device():
    import pyopencl as cl

    return described(opencl_devices()[0], cl)


@cache
def exported(spec: str = SPEC, kernel: str = KERNEL, tuned: str = TUNED) -> dict[str, str]:
    """``BLOCK=16`` serves all shapes, ``BLOCK=8`` the wide ones."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        texts = {
            "spec.yaml": spec,
            "scale_rows.cl": kernel,
            "tuned.cl": tuned,
            "twice.h": "#define TWICE(x) (2 * (x))\n",
        }
        for file, text in texts.items():
            (folder / file).write_text(text)
        experiment = load_experiment(folder / "spec.yaml")
    trials = [
        ({"BLOCK": 16, "SPLIT": 1}, [500.0, 500.0]),
        ({"BLOCK": 8, "SPLIT": 1}, [1500.0, 250.0]),
    ]
    return export_files(finished_run(experiment, device(), [1000.0, 1000.0], trials))
