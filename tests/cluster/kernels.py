"""A tiny experiment on disk, whole or broken in one place, and the command line as a process."""

import subprocess
import sys
from pathlib import Path

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
    """The command line of a checkout that is not installed."""
    return [sys.executable, "-m", "cluster", *map(str, arguments)]


def kernelwright(*arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
