"""Buffers read past coherence while they are written: found in real PTX, and only there."""

import pytest

from tuner.candidate import Candidate
from tuner.integrity.binary_rules import binary_rejection
from tuner.plan import Binary, Build, CellPlan, KernelStep, Plan
from tuner.trial import Code, Configuration
from workers.backends.cuda.architectures import device_for
from workers.backends.cuda.compiler import open_compiler
from workers.backends.cuda.ptx import Access, accesses

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

NAMES = ("x", "w", "n")
SIGNATURE = "float* x, const float* __restrict__ w, int n"
HEAD = """__device__ __noinline__ float peek(const float* p, int i) { return __ldg(p + i); }
__device__ __noinline__ const float* later(const float* p, int i) { return p + i; }
"""

RACED = {
    "__ldg": "x[i] = __ldg(x + i + 1) + w[i];",
    "another type": "float4 a = __ldg((const float4*)x + i); x[i] = a.y;",
    "selected": "const float* p = n > 9 ? x : w; x[i] = __ldg(p + i);",
    "in a loop": "const float* p = w; for (int k = 0; k < n; ++k) { w[k]; x[i] = __ldg(p); "
    "p = k == 7 ? x : p + n; }",
    "a called function": "x[i] = peek(x, i) + peek(w, i);",
    "through a result": "x[i] = __ldg(later(x, n));",
    "through shared memory": "__shared__ const float* kept[32]; kept[i & 31] = x + i; "
    "__syncthreads(); x[i] = __ldg(kept[(i + 1) & 31]);",
    "through local memory": "const float* kept[9]; for (int k = 0; k < 9; ++k) kept[k] = x + k * n;"
    " x[i] = __ldg(kept[n % 9]);",
    "in halves": "unsigned long long a = (unsigned long long)x, h = (a >> 32) + n, "
    "l = (a & 0xffffffffull) ^ n; x[i] = __ldg((const float*)((h - n) << 32 | (l ^ n)) + 1);",
    "by assembly": 'float a; asm("{ .reg .u64 t; cvta.to.global.u64 t, %1; '
    'ld.global.nc.f32 %0, [t+16]; }" : "=f"(a) : "l"(x)); x[i] = a;',
    "by an atomic": "atomicAdd(x, __ldg(x + i));",
    "a negated predicate": 'float a = 0; asm("{ .reg .pred p; setp.eq.s32 p, %2, 0; '
    '@!p ld.global.nc.f32 %0, [%1]; }" : "+f"(a) : "l"(x), "r"(n)); x[i] = a;',
}
HONEST = {
    "a weight beside it": "x[i] = x[i] * __ldg(w + i);",
    "by the compiler's own choice": "x[i] *= w[i];",
    "after an aligned head": "int head = ((16 - ((unsigned long long)x & 15)) & 15) / 4; "
    "if (i < head) x[i] = __ldg(w + i); for (int k = head + i; k < n; k += 32) "
    "x[k] = __ldg(w + k);",
    "by a distance": "long long d = x - w; x[i] = __ldg(w + n) * d;",
    "indexed by it": "x[i] = __ldg(w + (int)x[i]);",
    "a called function": "x[i] = peek(w, i);",
    "through shared memory": "__shared__ const float* kept[32]; kept[i & 31] = w + i; "
    "__syncthreads(); x[i] = __ldg(kept[(i + 1) & 31]);",
}


@pytest.fixture(scope="module")
def compiled():
    compiler = open_compiler(device_for("sm_90"))

    def compile_(
        body: str, signature: str = "float* x, const float* __restrict__ w, int n"
    ) -> Binary:
        source = (
            f'{HEAD}extern "C" __global__ void run({signature}) {{ '
            f"const int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}"
        )
        build = Build(language="cuda", file="k.cu", source=source, entries=("run",))
        binary = compiler.compile(build)
        assert isinstance(binary, Binary), binary
        return binary

    return compile_


def candidate(binary: Binary, names: tuple[str, ...] = NAMES) -> Candidate:
    build = Build(language="cuda", file="k.cu", source="", entries=("run",))
    step = KernelStep(entry="run", grid=(1, 1, 1), block=(32, 1, 1), arguments=names)
    plan = Plan(builds=(build,), cells=(CellPlan(build=0, steps=(step,)),))
    return Candidate(trial=0, configuration=Configuration(()), plan=plan, binaries=(binary,))


@pytest.mark.parametrize("how", RACED)
def test_reading_past_coherence_what_is_written_is_a_defect(compiled, how):
    mine, honest = candidate(compiled(RACED[how])), candidate(compiled("x[i] = w[i];"))
    found = binary_rejection(mine, honest)
    assert found is not None
    assert found.code is Code.DEFECT
    assert "run reads x through the non-coherent path" in found.detail
    assert binary_rejection(mine, mine) is None


@pytest.mark.parametrize("how", HONEST)
def test_honest_reads_pass(compiled, how):
    mine, honest = candidate(compiled(HONEST[how])), candidate(compiled("x[i] = w[i];"))
    assert dict(mine.binaries[0].usage)["run"].noncoherent == (1,)
    assert binary_rejection(mine, honest) is None


def test_one_buffer_given_twice_is_one_buffer(compiled):
    signature = "float* __restrict__ out, const float* __restrict__ seen, int n"
    binary, honest = compiled("out[i] = seen[i];", signature), candidate(compiled(""))
    assert binary_rejection(candidate(binary), honest) is None
    twice = binary_rejection(candidate(binary, ("x", "x", "n")), honest)
    assert twice is not None
    assert "reads x" in twice.detail


def test_a_buffer_that_this_launch_does_not_write_may_be_read_so(compiled):
    binary = compiled("w[i];\n static __shared__ float kept[32]; kept[i & 31] = __ldg(x + i);")
    assert binary_rejection(candidate(binary), candidate(compiled(""))) is None


REACHES = {
    "x[0] = clock64();": "a clock",
    'int c; asm("mov.u32 %0, %%clo" "ck;" : "=r"(c)); x[0] = c;': "a clock",
    'asm volatile("griddepcontrol.wait;");': "griddepcontrol",
    'printf("%d", n);': "printf",
    "int* p = (int*)malloc(4); x[0] = *p; *p = n; free(p);": "the device's heap",
    'unsigned long long g; asm("mov.u64 %0, %%gridid;" : "=l"(g)); x[0] = g;': "the number of its",
    'asm(".global .v2 .b32 kept; st.global.b32 [kept], %0;" :: "r"(n));': "a variable that inline",
    'asm(".global.b32 kept; st.global.b32 [kept], %0;" :: "r"(n));': "a variable that inline",
    'asm(".global .b32 a, kept; st.global.b32 [kept], %0;" :: "r"(n));': "a variable that inline",
    'asm("\\x67ridd" "epcontrol.wait;");': "griddepcontrol",
    'asm("{ .extern /**/ .func (.param .b64 to) malloc (.param .b64 size); .param .b64 size, to; '
    'call.uni (to), malloc, (size); }");': "the device's heap",
    'asm("discard.global.L2 [%0], 128;" :: "l"(x));': "an instruction that discards",
    'asm("discard/**/ .L2 [%0], 128;" :: "l"(x));': "an instruction that discards",
}


@pytest.mark.parametrize("body", REACHES)
def test_what_reaches_outside_is_seen_however_it_is_written(compiled, body):
    mine, honest = candidate(compiled(body)), candidate(compiled("x[i] = w[i];"))
    found = binary_rejection(mine, honest)
    assert found is not None
    assert f"uses {REACHES[body]}" in found.detail
    assert binary_rejection(mine, mine) is None


def test_what_is_no_ptx_says_nothing():
    assert accesses("") == {}
    assert accesses("ld.global.nc.f32 %f, [%rd1]; .entry k(") == {}
    assert accesses(".entry k(.param .u64 p){ ld.global.nc.f32 %f1, [%rd1];") == {"k": Access()}


def lasting(source: str) -> dict[str, int]:
    build = Build(language="cuda", file="k.cu", source=source, entries=("run",))
    return dict(open_compiler(device_for("sm_90")).compile(build).lasting)


def test_variables_that_launches_change_are_told_from_tables():
    source = """
__device__ float table[3] = {1, 2, 3};
static __device__ float weights[64] = {4};
extern "C" __global__ void run(float* out, const float* x, int n) {
  const float* from = n > 4 ? table : weights;
  for (int k = 0; k < n; ++k) out[k] = from[2 * k + threadIdx.x] * x[k];
}"""
    assert lasting(source) == {}
    changed = """
__device__ unsigned counter;
static __device__ int kept = 3;
__device__ float *where;
extern "C" __global__ void run(float* out, const float* x, int n) {
  if (atomicAdd(&counter, 1u) == n) counter = 0;
  float* to = n > 4 ? out : where;
  to[threadIdx.x] = x[threadIdx.x] + kept;
  if (n == 3) kept += n;
  where = to;
}"""
    found = lasting(changed)
    assert sorted(found.values()) == [4, 4, 8]
    assert {"counter", "where"} <= found.keys()


def test_what_is_filled_must_not_be_written():
    source = """
__device__ float kept[64];
extern "C" __global__ void run(float* out, int n) {{
  out[n] = kept[n];
  {}
}}"""
    for change in ("", "kept[n + 1] = 2;"):
        build = Build(
            language="cuda",
            file="k.cu",
            source=source.format(change),
            entries=("run",),
            variables=("kept",),
        )
        reaches = open_compiler(device_for("sm_90")).compile(build).reaches
        assert bool(reaches) == bool(change), reaches


DETOURS = {
    "a remainder": "int* p = (int*)((unsigned long long)table % (~0ull - n)); *p += 1;",
    "global memory": "*(int**)x = table; __threadfence(); int* p = *(int* volatile*)x; *p += 1;",
    "another thread": "int* p = (int*)__shfl_sync(~0u, (unsigned long long)table, 3); *p += 1;",
    "an unknown function": "void (*put[2])(int*) = {one, two}; put[n & 1](table);",
    "another variable": "pointer[n] += 1;",
    "the variable before it": "first[n % 100] = 1;",
    "bit by bit": "unsigned long long a = 0; for (int k = 0; k < 64; ++k) "
    "if ((unsigned long long)table >> k & 1) a += 1ull << k; *(int*)a += 1;",
    "behind spaces": 'asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; "'
    '"@ p st.global.u32 [%0], 7; }" :: "l"(table), "r"(n));',
    "assembly without a space": 'asm volatile("st.global.u32[%0],%1;" :: "l"(table), "r"(n));',
    "behind a string that looks like a comment": """asm(".pragma \\"/*\\";"); *table = n;
  asm(".pragma \\"*/\\";");""",
    "behind a string that looks like an end": 'asm(".pragma \\"}\\";"); *table = n;',
    "a store of a matrix": 'asm("{ .reg .f64 a; wmma.store.d.sync.aligned.row.m8n8k4.global.f64 "'
    '"[%0], {a, a}, 8; }" :: "l"(table));',
    "a bulk reduction": 'asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 "'
    '"[%0], [%1], 16;" :: "l"(table), "r"(n));',
    "an atomic in shared memory": "__shared__ unsigned long long s; s = n; "
    "atomicExch(&s, (unsigned long long)table); *(int*)atomicAdd(&s, 0ull) += 1;",
    "a bulk copy": "__shared__ __align__(16) unsigned long long s[2]; "
    "s[0] = (unsigned long long)table; "
    'asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" :: "l"(x), '
    '"r"((unsigned)__cvta_generic_to_shared(s))); **(int* volatile*)x += 1;',
    "bits that are looked up": "unsigned long long a = 0; for (int k = 0; k < 64; ++k) "
    "a += bits[(unsigned long long)table >> k & 1] << k; *(int*)a += 1;",
}


@pytest.mark.parametrize(
    "how",
    [pytest.param(one, marks=() if one == "a remainder" else pytest.mark.slow) for one in DETOURS],
)
def test_what_is_written_by_a_detour_is_no_table(how):
    others = {
        "an unknown function": "__device__ __noinline__ void one(int* p) { *p += 1; }\n"
        "__device__ __noinline__ void two(int* p) { *p += 2; }",
        "another variable": "__device__ int* pointer = table;",
        "the variable before it": "__device__ int first[4];",
        "bits that are looked up": "__constant__ unsigned long long bits[2] = {0, 1};",
    }
    source = f"""
__device__ __align__(16) int table[64] = {{1, 2, 3}};
{others.get(how, "")}
extern "C" __global__ void run(float* x, int n) {{
  x[n] = table[n % 64];
  {DETOURS[how]}
}}"""
    assert lasting(source)["table"] == 256
