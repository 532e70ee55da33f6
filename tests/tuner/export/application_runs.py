"""An application with a CUDA kernel, a finished run of it, and a stand-in for the CUDA runtime."""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device
from tuner.experiment.fields import Source
from tuner.experiment.model import (
    Argument,
    Experiment,
    Kernel,
    Launch,
    ShapeBinding,
    Shapes,
    Template,
)
from tuner.export.application import Application, apply_run
from tuner.expressions import Expression
from tuner.journal.history import History
from tuner.trial import Configuration

parse = Expression.parse
needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

KERNEL = """\
// A row at a time.
__device__ float scaled(float x, float by) { return x * by; }

__global__ void scale(float* out, const float* x, int rows, int n, float by) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[blockIdx.x * n + i] = scaled(x[blockIdx.x * n + i], by);
}
"""

APPLICATION = (
    """\
#include <cuda_runtime.h>
#define BLOCK 128  // not the template's

"""
    + KERNEL
    + """
void scale_all(float* out, const float* x, int rows, int n, cudaStream_t stream) {
  if (rows > 0)
    scale<<<rows, BLOCK, 0, stream>>>(out, x, rows,  // by two
                                      n, 2.0f);
}
"""
)

TEMPLATE = """\
#include "pack.cuh"
#define WIDTH (BLOCK * 2)
namespace fast {
extern "C" __global__ void scale(float* out, const float* x, int rows, int n, float by) {
  for (int i = threadIdx.x; i < N; i += WIDTH / 2) out[blockIdx.x * N + i] = pack(x[i]) * by;
}
}
"""

PACK = "#pragma once\n__device__ float pack(float x) { return x; }\n"

SHAPES = ({"rows": 16, "n": 1024}, {"rows": 4, "n": 2048}, {"rows": 16, "n": 4096})


def experiment(source: str = KERNEL, template: str = TEMPLATE, **changes: object) -> Experiment:
    """Scales rows; the template needs to know their length."""
    given: dict[str, object] = {
        "defines": {"N": parse("n")},
        "parameters": {"BLOCK": (64, 256)},
        "entry": "fast::scale",
    }
    entry = changes.pop("kernel_entry", "scale")
    shapes = changes.pop("shapes", SHAPES)
    domain = changes.pop("domain", ("n % 2 == 0", "n <= 65536", "rows <= 4096"))
    arguments = changes.pop("arguments", None)
    launch = changes.pop("launch", Launch(grid=(parse("rows"),), block=(parse(128),)))
    given |= changes
    return Experiment(
        version=1,
        name="scale",
        kernel=Kernel(
            language="cuda",
            source=Source(name="scale.cu", text=source),
            entry=entry,
            headers=(("pack.cuh", PACK),),
            launch=launch,
        ),
        arguments=arguments
        or (
            Argument(name="out", kind="out", dtype="float32", shape=(parse("rows * n"),), align=8),
            Argument(name="x", kind="in", dtype="float32", shape=(parse("rows * n"),)),
            Argument(name="rows", kind="scalar", dtype="int32", value=parse("rows")),
            Argument(name="n", kind="scalar", dtype="int32", value=parse("n")),
            Argument(name="by", kind="scalar", dtype="float32", value=2.0),
        ),
        shapes=Shapes(
            domain=tuple(map(parse, domain)), tune=tuple(ShapeBinding(dict(s)) for s in shapes)
        ),
        template=Template(
            source=Source(name="template.cu", text=template),
            launch=Launch(grid=(parse("rows"),), block=(parse("BLOCK"),)),
            **given,
        ),
    )


def run_of(one: Experiment, special: int | None = 1) -> History:
    """BLOCK=64 is twice as fast; BLOCK=256 faster still on one shape, and slow elsewhere."""
    count = len(one.shapes.tune)
    trials = [({"BLOCK": 64}, [500.0] * count)]
    if special is not None:
        trials.append(({"BLOCK": 256}, [200.0 if n == special else 3000.0 for n in range(count)]))
    configurations = [(Configuration.of(v).as_dict(), times) for v, times in trials]
    return finished_run(one, cuda_device(90), [1000.0] * count, configurations)


def applied(
    text: str = APPLICATION,
    history: History | None = None,
    path: str = "app.cu",
    existing: Callable[[str], str | None] = lambda path: None,
) -> Application:
    return apply_run(history or run_of(experiment()), "scale-1", path, text, existing)


def after(application: Application) -> dict[str, str]:
    return {change.path: change.after for change in application.changes}


_RUNTIME = """\
#pragma once
#include <stddef.h>
#include <stdio.h>
#define __global__
#define __device__
#define __restrict__
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef struct stub_stream *cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess, cudaFailure };
enum { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor,
       cudaFuncAttributeMaxDynamicSharedMemorySize };
static dim3 blockIdx, blockDim, threadIdx;
static int failing, capability = 90;
static int cudaGetDevice(int *device) { *device = 0; return 0; }
static int cudaDeviceGetAttribute(int *value, int of, int) {
    *value = of == cudaDevAttrComputeCapabilityMajor ? capability / 10 : capability % 10;
    return 0;
}
static int cudaGetLastError() { return 0; }
static int cudaFuncSetAttribute(const void *, int, int) { return 0; }
static char memory[1 << 16];
static int cudaMallocAsync(void **at, size_t size, cudaStream_t) {
    *at = memory; printf("malloc %zu; ", size); return failing;
}
static int cudaFreeAsync(void *, cudaStream_t) { printf("free; "); return 0; }
static int cudaMemsetAsync(void *, int byte, size_t size, cudaStream_t) {
    printf("memset %d %zu; ", byte, size); return failing;
}
enum { cudaLaunchAttributeCooperative = 2, cudaLaunchAttributeClusterDimension = 4,
       cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
    int id;
    union {
        int cooperative, programmaticStreamSerializationAllowed;
        struct { unsigned x, y, z; } clusterDim;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
static int cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *, void **) {
    printf("tuned %ux%u; ", c->gridDim.x, c->blockDim.x);
    for (unsigned i = 0; i < c->numAttrs; i++) {
        if (c->attrs[i].id == cudaLaunchAttributeClusterDimension)
            printf("cluster %u; ", c->attrs[i].val.clusterDim.x);
        else if (c->attrs[i].val.cooperative)
            printf("attribute %d; ", c->attrs[i].id);
    }
    return failing;
}
struct original_launch {
    template <class... A> void operator()(A...) { printf("original; "); }
};
template <class K>
original_launch launch_original(K, dim3, dim3, size_t = 0, cudaStream_t = 0) { return {}; }
static void end(const char *what) { printf("(%s)\\n", what); }
"""
_LAUNCH = re.compile(r"([\w:]+(?:<[\w, ]+>)?)<<<(.*?)>>>", re.DOTALL)


def host_program(files: Mapping[str, str], folder: Path, main: str, *flags: str) -> list[str]:
    """Compile the host side of an application and return the lines that its ``main`` prints.

    Launches with ``<<<…>>>`` and through the runtime are recorded in the order made.
    """
    for name, text in files.items():
        (folder / name).write_text(_LAUNCH.sub(r"launch_original(\1, \2)", text))
    (folder / "cuda_runtime.h").write_text(_RUNTIME)
    (folder / "main.cpp").write_text(f'#include "app.cu"\nint main() {{\n{main}\nreturn 0;\n}}\n')
    built = subprocess.run(
        ["g++", "-std=c++14", "-I.", "-w", *flags, "main.cpp", "-o", "main"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return subprocess.run(
        [folder / "main"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
