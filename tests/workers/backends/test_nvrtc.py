import dataclasses
import sys

import pytest

from tests.conformance.compiler import CompilerConformance
from tuner.device import Device
from tuner.errors import EnvironmentProblem
from tuner.integrity.include_rules import include_violation
from tuner.plan import Binary, Build, Usage
from tuner.trial import Code, Rejected, Stage
from workers.backends.cuda.architectures import ARCHITECTURES, device_for
from workers.backends.cuda.compiler import open_compiler, usage_by_symbol
from workers.backends.cuda.device_program import device_program

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

PLAIN = """#include <cuda_fp16.h>
extern "C" __global__ void __launch_bounds__(BLOCK) scale(__half* x, int n) {
  __shared__ float kept[BLOCK];
  kept[threadIdx.x] = __half2float(x[threadIdx.x]);
  __syncthreads();
  x[threadIdx.x] = __float2half(kept[(threadIdx.x * 7) % BLOCK] * n);
}
"""


@pytest.fixture(scope="module")
def compiler():
    return open_compiler(device_for("sm_90"))


def build(source=PLAIN, entries=("scale",), defines=(("BLOCK", 128),), **more) -> Build:
    return Build(
        language="cuda", file="k.cu", source=source, entries=entries, defines=defines, **more
    )


def kernel(body: str) -> str:
    return f'extern "C" __global__ void scale(float* x, int n) {{\n{body}\n}}\n'


class TestNvrtcCompiler(CompilerConformance):
    @pytest.fixture
    def compiler(self):
        return open_compiler(device_for("sm_90"))

    def build(self, body, before="", **fields):
        source = f'{before}\nextern "C" __global__ void probe(float* out) {{\n{body}\n}}'
        given = {"entries": ("probe",)} | fields
        return Build(language="cuda", file="probe.src", source=source, **given)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_for_each_architecture_and_reports_usage(arch):
    binary = open_compiler(device_for(arch)).compile(build())
    assert isinstance(binary, Binary)
    assert binary.code.startswith(b"\x7fELF")
    usage = dict(binary.usage)["scale"]
    assert 0 < usage.registers < 256
    assert (usage.spill_bytes, usage.stack_bytes) == (0, 0)
    assert usage.static_shared_bytes == 512
    assert usage.max_threads_per_block == 128


def test_name_expressions_of_templates_are_found_by_their_mangled_names(compiler):
    source = """namespace ns {
template <typename T, int N> __global__ void k(T* x) { x[threadIdx.x] *= N; }
}
extern "C" __global__ void plain(int* x) { *x = 1; }
"""
    binary = compiler.compile(build(source, ("ns::k<float, 4>", "plain"), ()))
    symbols = dict(binary.symbols)
    assert symbols["plain"] == "plain"
    assert symbols["ns::k<float, 4>"].startswith("_Z")
    assert {entry for entry, _ in binary.usage} == set(symbols)


def test_parameters_and_variables_are_sized(compiler):
    source = """struct pair { int n; double x; };
namespace ns { __constant__ float table[17]; static __constant__ int count; }
template <typename T> __global__ void k(T* x, const pair p, bool b, short s, float4 v) {
  x[threadIdx.x] = p.n + b + s + v.x;
}
extern "C" __global__ void none() {}
"""
    asked = build(source, ("k<float>", "none"), (), variables=("ns::table", "ns::count"))
    binary = compiler.compile(asked)
    usage = dict(binary.usage)
    assert usage["k<float>"].parameter_bytes == (8, 16, 1, 2, 16)
    assert usage["none"].parameter_bytes == ()
    assert dict(binary.variable_bytes) == {"ns::table": 68, "ns::count": 4}
    assert dict(binary.symbols)["ns::table"] == "_ZN2ns5tableE"
    missing = compiler.compile(build(source, ("none",), (), variables=("table",)))
    assert missing.detail.startswith("k.cu has no variable table (__constant__ or __device__)")


def test_equal_machine_code_is_byte_for_byte_equal(compiler):
    first = compiler.compile(build())
    second = compiler.compile(build("// more\n" + PLAIN, defines=(("BLOCK", 128), ("DEAD", 3))))
    third = compiler.compile(build(defines=(("BLOCK", 64),)))
    assert first.code == second.code != third.code
    assert first.build != second.build


def test_spills_are_reported(compiler):
    body = """float kept[200];
#pragma unroll
for (int i = 0; i < 200; ++i) kept[i] = x[i * n + threadIdx.x];
#pragma unroll
for (int i = 0; i < 200; ++i) x[i * n + threadIdx.x] = kept[i] * kept[199 - i];"""
    binary = compiler.compile(build(kernel(body), defines=(), options=("--maxrregcount=32",)))
    usage = dict(binary.usage)["scale"]
    assert usage.spill_bytes > 0
    assert usage.registers <= 32


_POLICY = 'asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));'


@pytest.mark.parametrize(
    ("body", "persists"),
    [
        ('asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(x));', True),
        (f"unsigned long long p; {_POLICY} x[0] = p;", True),
        ('asm volatile("prefetch.global.L2 [%0];" :: "l"(x));', False),
        ("x[0] = __ldcs(x + 1);", False),
    ],
)
def test_code_that_can_keep_lines_in_the_cache_is_known(compiler, body, persists):
    assert compiler.compile(build(kernel(body))).persists is persists


@pytest.mark.parametrize(
    ("body", "shares", "synchronises"),
    [
        ("for (int i = 0; i < n; ++i) x[i] = 2 * x[i];", False, False),
        ("__shared__ float s[32]; s[threadIdx.x] = n; x[0] = s[n];", True, False),
        ("extern __shared__ float s[]; s[threadIdx.x] = n; x[0] = s[n];", True, False),
        ("x[0] = n; __syncthreads();", False, True),
        ("x[0] = n; __syncwarp();", False, True),
        ("x[0] = __shfl_xor_sync(~0u, n, 1);", False, True),
        ('asm volatile("barrier.cluster.arrive.aligned;");', False, True),
    ],
)
def test_code_without_shared_memory_or_synchronisation_is_known(
    compiler, body, shares, synchronises
):
    binary = compiler.compile(build(kernel(body)))
    assert (binary.shares, binary.synchronises) == (shares, synchronises)


def test_an_assembler_error_is_shown_without_its_report(compiler):
    rejected = compiler.compile(build(kernel('  asm volatile("bogus.f32 x;");'), defines=()))
    assert rejected.code is Code.COMPILE_ERROR
    assert "bogus" in rejected.detail
    assert "ptxas info" not in rejected.detail


@pytest.mark.parametrize("entry", ["nowhere", "helper", "k<3>"])
def test_an_entry_that_is_no_kernel_is_named(compiler, entry):
    source = PLAIN + "__device__ void helper(int* x) { *x = 1; }\n"
    rejected = compiler.compile(build(source, (entry,)))
    assert rejected.code is Code.COMPILE_ERROR
    assert rejected.detail.startswith(f"k.cu has no kernel {entry}")
    assert "__nv_name_map" not in rejected.detail


def test_too_much_static_shared_memory_is_a_limit(compiler):
    body = (
        "__shared__ float kept[20000];\n"
        "kept[threadIdx.x] = n; __syncthreads(); x[0] = kept[int(x[1])];"
    )
    rejected = compiler.compile(build(kernel(body), defines=()))
    assert (rejected.stage, rejected.code) == (Stage.LIMITS, Code.SHARED_MEMORY)


def test_headers_come_from_memory_and_see_each_other(compiler):
    source = '#include "scale/factor.h"\n' + kernel("  x[0] = FACTOR * n;")
    headers = (
        ("scale/factor.h", '#include "base.h"\n#define FACTOR BASE\n'),
        ("base.h", "#define BASE 2\n"),
    )
    assert isinstance(compiler.compile(build(source, defines=(), headers=headers)), Binary)


def test_headers_of_the_toolchain_find_their_neighbours(compiler):
    source = "#include <cooperative_groups.h>\n" + kernel(
        "  cooperative_groups::this_grid().sync(); x[0] = n;"
    )
    assert isinstance(compiler.compile(build(source, defines=())), Binary)


def test_a_header_beside_the_process_is_not_found(compiler, tmp_path, monkeypatch):
    (tmp_path / "near.h").write_text("#define FACTOR 2\n")
    monkeypatch.chdir(tmp_path)
    for quoted in ('"near.h"', "<near.h>"):
        source = f"#include {quoted}\n" + kernel("  x[0] = FACTOR;")
        rejected = compiler.compile(build(source, defines=()))
        assert isinstance(rejected, Rejected)
        assert "FACTOR" in rejected.detail
        assert "taken as empty, since no folder has them: near.h" in rejected.detail


@pytest.mark.parametrize(
    "directive",
    [
        "#include </etc/hostname>",
        '#include "../secret.h"',
        "# /* a */ include <cuda/../../../secret.h>",
        "%:include </etc/hostname>",
        "#inc\\\nlude </etc/hostname>",
        "??=include </etc/hostname>",
        "#define PLACE </etc/hostname>\n#include PLACE",
        "#include_next </etc/hostname>",
        "#embed </etc/hostname>",
        'const char* s = R"(/*)";\n#include </etc/hostname>\n/**/',
        "#inc\\\rlude </etc/hostname>",
        '#if __has_include("/etc/hostname")\n#endif',
        "#define ASK __has_include\n#if ASK(</etc/hostname>)\n#endif",
        "#if __has_include(<../secret.h>)\n#endif",
    ],
)
def test_includes_that_leave_the_allowed_folders_are_refused(compiler, directive):
    rejected = compiler.compile(build(f"{directive}\n{PLAIN}"))
    assert rejected.code is Code.COMPILE_ERROR
    assert "include" in rejected.detail
    assert include_violation("a.h", directive)


@pytest.mark.parametrize("directive", ["#include <cuda_fp16.h>", '  #  include "sub/a-b.h" // x'])
def test_plain_includes_pass(directive):
    assert include_violation("a.cu", directive) is None


def test_a_hostile_directive_is_judged_in_linear_time():
    assert include_violation("a.cu", "#" + "/**/ " * 50_000) is None


def test_usage_of_several_kernels_is_told_apart():
    report = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
ptxas         .     8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 256 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Function properties for b
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers
"""
    ptx = ".visible .entry a(\n.param .u64 p\n)\n.maxntid 32, 4, 1\n{\n}\n.entry b()\n{\n}\n"
    assert usage_by_symbol(report, ptx) == {
        "a": Usage(
            registers=12,
            spill_bytes=16,
            stack_bytes=8,
            static_shared_bytes=256,
            max_threads_per_block=128,
            parameter_bytes=(8,),
        ),
        "b": Usage(
            registers=32, spill_bytes=0, stack_bytes=0, static_shared_bytes=0, parameter_bytes=()
        ),
    }


def test_an_unknown_architecture_is_named_with_the_known_ones():
    device: Device = dataclasses.replace(device_for("sm_90"), arch="sm_42")
    with pytest.raises(EnvironmentProblem, match=r"sm_42.*sm_90"):
        open_compiler(device)


def test_a_missing_package_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("cupy_backends")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EnvironmentProblem, match=r"'\.\[cuda13\]'"):
        open_compiler(device_for("sm_90"))


MIXED = """#include <cuda_fp16.h>
extern "C" __global__ void mixed(float4* x, const __half2* h, double* d, int n) {
  __shared__ float kept[64];
  int i = threadIdx.x;
  float4 v = x[i];
  kept[i] = __expf(v.x) + __low2float(h[i]);
  __syncthreads();
  v.y = kept[63 - i] + __shfl_xor_sync(~0u, v.z, 1);
  asm volatile("{ .reg .f32 t; rsqrt.approx.f32 t, %0; add.f32 %0, t, %0; }"
               : "+f"(v.w));
  x[i] = v; d[i] *= 2; atomicAdd(&d[n], 1.0); // mma.sync.aligned.m16n8k16 in a comment
}
"""


def test_the_instruction_mix_tells_widths_and_kinds(compiler):
    found = compiler.compile(build(MIXED, ("mixed",)))
    assert isinstance(found, Binary), found
    mix = dict(dict(found.usage)["mixed"].mix)
    for kind in (
        "global load of 16 B",
        "global store of 16 B",
        "global load of 4 B",
        "global load of 8 B",
        "global store of 8 B",
        "shared load of 4 B",
        "shared store of 4 B",
        "warp exchange",
        "barrier or fence",
        "atomic",
    ):
        assert mix.pop(kind) == 1, kind
    assert mix["special function f32"] == 2
    assert mix["arithmetic f64"] == 1
    assert mix.keys() <= {
        "arithmetic f32", "arithmetic f64", "special function f32", "conversion",
        "integer or predicate", "branch or call",
    }  # fmt: skip


def test_each_kernel_of_a_program_has_its_own_mix(compiler):
    source = """extern "C" __global__ void one(float* x) { x[threadIdx.x] = 1; }
    extern "C" __global__ void two(double* x) { x[threadIdx.x] *= 2; }"""
    usage = dict(compiler.compile(build(source, ("one", "two"))).usage)
    assert "global load of 8 B" not in dict(usage["one"].mix)
    assert dict(usage["two"].mix)["arithmetic f64"] == 1


APPLICATION = """#include <torch/all.h>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdio.h>
#include "detail/tile.h"
namespace app {
template <typename scalar_t, bool NEGATE>
__global__ void largest(float* out, const scalar_t* in, int64_t n) {
  extern __shared__ float seen[];
  float most = -std::numeric_limits<float>::infinity();
  for (uint i = threadIdx.x; i < n; i += TILE) {
    static_assert(std::is_same_v<scalar_t, c10::Half>);
    most = std::max(most, static_cast<float>(in[i]));
  }
  seen[threadIdx.x] = NEGATE ? -most : most;
  __syncthreads();
  assert(n < INT_MAX);
  if (threadIdx.x == 0) out[blockIdx.x] = std::isinf(seen[0]) ? FLT_MAX : seen[0];
}
}
int main(int argc, char** argv) {
  std::vector<float> host(argc);
  app::largest<at::Half, true><<<1, TILE, 1024>>>(nullptr, nullptr, host.size());
  printf("done\\n");
}
"""


def test_an_application_s_file_compiles_as_it_is(compiler):
    headers = (
        ("detail/tile.h", '#include "../base.h"\nvoid check(cudaError_t error);\n'),
        ("base.h", "#pragma once\n#include <iostream>\nconstexpr int TILE = 128;\n"),
    )
    entries = ("app::largest<c10::Half, true>",)
    made = compiler.compile(build(APPLICATION, entries, (), headers=headers))
    assert isinstance(made, Binary), made
    assert made.usage[0][1].registers > 0


def test_a_file_compiles_where_the_toolchain_s_float_limits_are_empty(compiler):
    headers = (("cuda/std/cfloat", ""),)  # as CUDA 13.0 has it for NVRTC
    body = "x[n] = std::numeric_limits<float>::max() - FLT_EPSILON + (float)DBL_MIN;"
    source = f"#include <stdio.h>\n#include <cuda/std/cfloat>\n{kernel(body)}"
    assert isinstance(compiler.compile(build(source, defines=(), headers=headers)), Binary)


@pytest.mark.parametrize(
    "header", ["cusparse.h", "cublas_v2.h", "curand.h", "cuda_profiler_api.h", "nvToolsExt.h"]
)
def test_an_installed_toolkit_s_headers_for_the_host_are_not_compiled(tmp_path, header):
    (tmp_path / header).write_text("#include <stdint.h>\n__host__ int call(void);\n")
    given = device_program(build(f"#include <{header}>\n{PLAIN}"), (tmp_path,), hosted=False)
    assert header in given.headers
    assert "__host__" not in given.headers[header]


def test_an_error_in_an_application_s_file_keeps_its_line(compiler):
    wrong = APPLICATION.replace("seen[threadIdx.x] =", "seen[threadIdx.x] = missing +")
    wrong = wrong.replace('#include "detail/tile.h"', "#define TILE 128")
    rejected = compiler.compile(build(wrong, ("app::largest<c10::Half, true>",), ()))
    assert 'k.cu(16): error: identifier "missing" is undefined' in rejected.detail


def test_what_a_host_compiler_declares_in_every_file_is_known(compiler):
    body = "  uint i = threadIdx.x; x[i] = INFINITY + (float)M_PI;"
    assert isinstance(compiler.compile(build(kernel(body), defines=())), Binary)


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        ("", False),
        ("if (cudaSuccess) return;", True),
        ("#ifdef CUDART_CB\nreturn;\n#endif", True),
        ("#ifndef __CUDACC_RTC_MINIMAL__\nreturn;\n#endif", True),
        ("x[0] = tex1Dfetch<float>(n, 0);", True),
    ],
)
def test_a_source_is_compiled_with_all_that_it_may_name(body, whole):
    program = device_program(build(kernel(body)), (), hosted=False)
    assert program.minimal is not whole


def test_what_a_minimal_compile_lacks_is_there_in_the_next(compiler):
    hidden = "#define PASTE(a, b) a##b\n" + kernel("x[n] = PASTE(cu, daSuccess);")
    assert device_program(build(hidden), (), hosted=False).minimal
    for defines in ((), (("DEAD", 3),)):
        assert isinstance(compiler.compile(build(hidden, defines=defines)), Binary)
