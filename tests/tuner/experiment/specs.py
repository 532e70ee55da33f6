"""A small sound spec on disk, for tests that spoil it in one way each."""

from pathlib import Path

KERNEL = """\
// scale(not, this, one)
__kernel void scale(__global float *out, __global const float *x, int n, float factor)
{
    int i = get_global_id(0);
    if (i < n)
        out[i] = factor * x[i];
}
"""

TEMPLATE_SOURCE = """\
__kernel void scale(__global float *out, __global const float *x, int n, float factor)
{
#if MODE == MODE_wide
#endif
    for (int k = 0; k < ITEMS; ++k)
        ;
}
"""

REFERENCE = """\
def scale(x, factor):
    return factor * x


def make(shape, size):
    return None
"""

TEMPLATE = """\
source: scale_template.cl
entry: scale
parameters:
  BLOCK: [32, 64]
  ITEMS: [1, 2]
  MODE: [plain, wide]
constraints: ["MODE == 'wide' or ITEMS == 1"]
defines: {FULL: n % BLOCK == 0}
launch: {grid: "ceil_div(n, BLOCK * ITEMS)", block: BLOCK}
"""

SPEC = """\
version: 1
name: scale
kernel:
  language: opencl
  source: scale.cl
  entry: scale
  launch: {grid: ["ceil_div(n, 64)"], block: [64]}
arguments:
  - {name: out,    kind: out,    dtype: float32, shape: [n], tolerance: {rtol: 1e-5, atol: 1e-5}}
  - {name: x,      kind: in,     dtype: float32, shape: [n], range: [-3, 3]}
  - {name: n,      kind: scalar, dtype: int32,   value: n}
  - {name: factor, kind: scalar, dtype: float32, value: 1.5}
shapes:
  domain: ["1 <= n", "n <= 65536"]
  tune: [{n: 1000}, {n: 4096, weight: 2}]
  held_out: [{n: 777}]
reference: reference.py:scale
cost: {bytes: 8 * n, flops: n}
template: template.yaml
search: {trials: 10, seconds: 5}
"""

CUDA_KERNEL = """\
template <typename T, int VEC>
__global__ void __launch_bounds__(256) scale(T* __restrict__ out, const T* x, long long n) {}
__global__ void finish(float* sums, int n) {}
"""

CUDA_SPEC = """\
version: 1
name: scale
kernel:
  language: cuda
  source: scale.cu
  entry: "scale<{T}, 4>"
  options: [--use_fast_math, --std=c++17]
  launches:
    - {memset: sums}
    - {grid: n, block: 64, cooperative: true, shared_bytes: 4 * n, arguments: [out, x, n64]}
    - {grid: 1, block: 64, entry: finish, arguments: [sums, n]}
arguments:
  - {name: out,   kind: out,      dtype: T,       shape: [n, 4], strides: [8, 1], compare: {ulp: 2}}
  - {name: x,     kind: in,       dtype: T,       shape: [n, 4], align: 16}
  - {name: n64,   kind: scalar,   dtype: int64,   value: n}
  - {name: sums,  kind: scratch,  dtype: float32, shape: n}
  - {name: n,     kind: scalar,   dtype: int32,   value: n}
  - {name: table, kind: constant, dtype: int32,   shape: 8, values: {integers: [0, n]}, symbol: t}
shapes:
  tune: [{n: 100, T: float16}, {n: 64, T: bfloat16}]
"""


def write(folder: Path, spec: str = SPEC, **files: str) -> Path:
    """The spec and the files beside it; ``files`` are by name, with ``__`` for the dot."""
    texts = {
        "scale.cl": KERNEL,
        "scale.cu": CUDA_KERNEL,
        "scale_template.cl": TEMPLATE_SOURCE,
        "reference.py": REFERENCE,
        "template.yaml": TEMPLATE,
        "spec.yaml": spec,
    }
    texts |= {name.replace("__", "."): text for name, text in files.items()}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder / "spec.yaml"
