"""A tiny experiment on disk, whole or broken in one place, and the command line."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from cluster.cli.main import main

ROOT = Path(__file__).parents[2]

SPEC = """\
version: 1
name: scale
kernel:
  language: opencl
  source: scale.cl
  entry: scale
  launch: {grid: ["ceil_div(n, 16)"], block: [16]}
arguments:
  - {name: out, kind: out, dtype: float32, shape: [n]}
  - {name: x, kind: in, dtype: float32, shape: [n]}
  - {name: n, kind: scalar, dtype: int32, value: n}
shapes:
  domain: ["1 <= n", "n <= 100000"]
  tune: [{n: 1000}, {n: 4096}]
  held_out: [{n: 777}]
reference: reference.py:scale
template: template.yaml
search: {trials: 6, seconds: 60}
confirm: {top: 1, processes: 2}
measure: {warmup: 1, repeats: 5, cache: hot}
"""

KERNEL = """\
kernel void scale(global float *out, global const float *x, int n) {
  int i = get_global_id(0);
  if (i < n) out[i] = 3.0f * x[i];
}
"""

SLOW_KERNEL = KERNEL.replace(
    "if (i < n)", "volatile int idle = 0;\n  while (idle < 2000) ++idle;\n  if (i < n)"
)
"""So slow that every configuration is faster with certainty."""

TEMPLATE = """\
source: template.cl
entry: scale
parameters: {ITEMS: [1, 2, 4], BLOCK: [16, 64]}
launch: {grid: ["ceil_div(n, BLOCK * ITEMS)"], block: [BLOCK]}
"""

FAMILY = """\
kernel void scale(global float *out, global const float *x, int n) {
  for (int k = 0; k < ITEMS; ++k) {
    int i = (get_group_id(0) * ITEMS + k) * BLOCK + get_local_id(0);
    if (i < n) out[i] = 3.0f * x[i];
  }
}
"""

REFERENCE = """\
def scale(x, n):
    return 3.0 * x
"""


def write_experiment(folder: Path, **changed: str) -> Path:
    """Write it; ``spec``, ``kernel``, ``template``, ``family`` and ``reference`` replace a text."""
    texts = {
        "spec.yaml": changed.get("spec", SPEC),
        "scale.cl": changed.get("kernel", KERNEL),
        "template.yaml": changed.get("template", TEMPLATE),
        "template.cl": changed.get("family", FAMILY),
        "reference.py": changed.get("reference", REFERENCE),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder / "spec.yaml"


def command(*arguments: object) -> list[str]:
    """The command line of a checkout that is not installed, for a process of its own."""
    return [sys.executable, "-m", "cluster", *map(str, arguments)]


def kernelwright(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process, by its entry point."""
    words = ["kernelwright", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        patch.object(sys, "argv", words),
        patch.dict(os.environ),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(words, code, *texts)
