"""A binary as baseline on a real GPU: cubin, fatbin and PTX, each launched and compared."""

import struct
from functools import cache

import numpy as np
import pytest

from tests.workers.harness import Laboratory
from tuner.journal.facts import BaselinePrepared
from tuner.plan import Build, Usage
from tuner.trial import Measured
from workers.backends.cuda.compiler import open_compiler
from workers.devices.discover import find

pytestmark = pytest.mark.gpu

BODY = """__global__ void scale(float* out, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i];
}
"""
SPEC = """\
version: 1
name: scale
kernel:
  language: cuda
  source: scale.cu
  entry: scale
  binary: {file: app.bin, symbols: {scale: _Z5scalePfPKfi}}
  launch: {grid: "ceil_div(n, 128)", block: 128}
arguments:
  - {name: out, kind: out,    dtype: float32, shape: [n]}
  - {name: x,   kind: in,     dtype: float32, shape: [n]}
  - {name: n,   kind: scalar, dtype: int32,   value: n}
shapes:
  tune: [{n: 100000}]
reference: reference.py:scale
"""
PTX = """.version 7.0
.target sm_70
.address_size 64
.visible .entry _Z5scalePfPKfi(.param .u64 o, .param .u64 x, .param .u32 n) {
  .reg .pred %p;
  .reg .f32 %f;
  .reg .u32 %r<5>;
  .reg .u64 %rd<6>;
  ld.param.u64 %rd0, [o];
  ld.param.u64 %rd1, [x];
  ld.param.u32 %r0, [n];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  setp.ge.s32 %p, %r4, %r0;
  @%p ret;
  mul.wide.s32 %rd2, %r4, 4;
  cvta.to.global.u64 %rd0, %rd0;
  cvta.to.global.u64 %rd1, %rd1;
  add.u64 %rd3, %rd0, %rd2;
  add.u64 %rd4, %rd1, %rd2;
  ld.global.f32 %f, [%rd4];
  add.f32 %f, %f, %f;
  st.global.f32 [%rd3], %f;
  ret;
}
"""


@cache
def cubin() -> tuple[bytes, int]:
    found = find("cuda")[0].device
    assert found is not None
    build = Build(language="cuda", file="k.cu", source=BODY, entries=("scale",))
    return open_compiler(found).compile(build).code, found.compute_capability


def fatbin() -> bytes:
    code, arch = cubin()
    code = code.ljust(-(-len(code) // 8) * 8, b"\0")
    entry = struct.pack(
        "<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(code), 0, 64, 7, 1, arch, 0, 0, 1, 0, 0
    )
    body = entry + code
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


CODE = {"cubin": lambda: cubin()[0], "fatbin": fatbin, "ptx": lambda: PTX.encode()}


@pytest.mark.parametrize("kind", CODE)
def test_it_is_the_baseline_though_the_source_does_not_compile(kind, tmp_path):
    (tmp_path / "app.bin").write_bytes(CODE[kind]())
    (tmp_path / "scale.cu").write_text(f"#include <torch/extension.h>\n{BODY}")
    (tmp_path / "reference.py").write_text("def scale(x):\n    return {'out': 2 * x}\n")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    laboratory = Laboratory(spec)
    try:
        prepared = laboratory.prepared
        assert isinstance(prepared, BaselinePrepared)
        assert not hasattr(prepared.result, "detail"), prepared.result
        usage = dict(laboratory.setup.baseline.binaries[0].usage)["scale"]
        assert (usage == Usage()) == (kind == "fatbin")
        outcome = laboratory.outcome(BODY.replace("x[i];", "x[i] + 0.0f;"))
        assert isinstance(outcome, Measured), outcome
        assert np.isfinite(outcome.cells[0].median_ns)
    finally:
        laboratory.close()
