"""Signatures as people write them, and the spec that is written from one."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.experiment import specs
from tuner.csource.kernels import find_kernel, signatures
from tuner.drafts.draft_spec import draft_spec
from tuner.errors import SpecError
from tuner.experiment.arguments import resolve_arguments
from tuner.experiment.load import load_experiment
from tuner.experiment.schema import json_schema
from tuner.experiment.yaml_document import parse

CUDA = r"""
#include <cuda_fp16.h>
#define T half
#define BOUNDS \
    __launch_bounds__(256, 2)
// __global__ void commented(int a);
/* __global__ void too(int a); */
const char *text = "__global__ void quoted(int a)";
__device__ float helper(float x);
namespace ns {
template <typename S, int VEC = 4, bool B>
__global__ void __launch_bounds__(256, 2) first(
    S *__restrict__ out, const T *const in, unsigned long long n, // the size (n > 0)
    dim3 g, const ns::Pack* p, size_t s = 3)
{
}
}
extern "C" __global__ void BOUNDS second(void) {}
static __global__ __launch_bounds__(32) void third(float4 const* a, float b[], long int c) {}
"""

OPENCL = """
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void first(__global const half8 * restrict a, __local float *tmp,
           __global uint* __attribute__((aligned(4))) b, const uint n, constant float c[])
{
}
kernel void second(global T *x) {}
"""


def described(signature):
    return [
        f"{'const ' * p.const}{p.dtype or '?'}{'*' * p.pointer} {p.name}"
        for p in signature.parameters
    ]


def test_cuda():
    first, second, third = signatures(CUDA, "cuda")
    assert first.name == "first"
    assert first.template == (("S", "typename"), ("VEC", "int"), ("B", "bool"))
    assert described(first) == [
        "?* out",
        "const float16* in",
        "uint64 n",
        "? g",
        "const ?* p",
        "uint64 s",
    ]
    assert (second.name, second.parameters, second.template) == ("second", (), ())
    assert described(third) == ["const float32* a", "float32* b", "int64 c"]


def test_opencl():
    first, second = signatures(OPENCL, "opencl")
    assert described(first) == [
        "const float16* a",
        "float32* tmp",
        "uint32* b",
        "const uint32 n",
        "const float32* c",
    ]
    assert [p.local for p in first.parameters] == [False, True, False, False, False]
    assert second.parameters[0].type == "T"


def test_what_directives_and_macros_hide_is_not_certain():
    (chosen,) = signatures("kernel void f(int a,\n#ifdef X\nint b,\n#endif\nint c) {}", "opencl")
    assert [p.name for p in chosen.parameters] == ["a", "b", "c"]
    assert not chosen.certain
    (hidden,) = signatures("kernel void f(int a, POINTER(float, b)) {}", "opencl")
    assert not hidden.certain
    (spelt,) = signatures("#define ARGS int a, \\\n  int b\nkernel void f(ARGS) {}", "opencl")
    assert [p.name for p in spelt.parameters] == ["a", "b"]
    assert spelt.certain
    twice = "#if X\nkernel void f(int a)\n#else\nkernel void f(float b)\n#endif\n{}"
    assert [s.name for s in signatures(twice, "opencl")] == ["f", "f"]


def test_typedefs_and_macros_that_agree_are_looked_through():
    (read,) = signatures(
        "typedef float real;\nusing Pair = real;\ntypedef struct { int x; } item;\n"
        "#if WIDE\n#define vector float4\ntypedef float mixed;\n"
        "#else\n#define vector float\ntypedef double mixed;\n#endif\ntypedef loop loop;\n"
        "__global__ void f(const Pair* a, vector *b, mixed *c, item *d, loop *e) {}",
        "cuda",
    )
    assert described(read) == ["const float32* a", "float32* b", "?* c", "?* d", "?* e"]
    assert read.certain


def test_namespaces_are_named():
    source = (
        "namespace a::b { namespace { __global__ void f(int x) {} }\n"
        "template <> __global__ void f<int>(int x) {} }\n__global__ void f(int x);"
    )
    assert [s.namespace for s in signatures(source, "cuda")] == ["a::b::", ""]


@given(
    st.text(st.sampled_from('__global__ kernel(){}<>,*/"\\\n#define a=;[]template '), max_size=80)
)
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_without_failing(text):
    for language in ("cuda", "opencl"):
        signatures(text, language)
        signatures(f"#define a b a\n__global__ __kernel void f({text})", language)


def test_many_unclosed_kernels_are_read_in_bounded_time():
    assert signatures("__global__ void f(" * 50_000, "cuda") == ()


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("a.cl", specs.KERNEL),
        ("a.cl", "__kernel void no(__global float *out, const int weight, int min) {}"),
        ("a.cl", "kernel void f(global int *x) {}"),
        ("a.cu", "template <typename T, int V> __global__ void k(T* out, const T* in, int n) {}"),
        ("a.cu", 'extern "C" __global__ void z(void *p, float eps, int a, int b, int c) {}'),
        ("a.cu", "__global__ void s(float *out, Options o, long long n) {}"),
    ],
)
def test_a_skeleton_is_a_sound_spec(tmp_path, file, source):
    kernel = tmp_path / file
    kernel.write_text(source)
    spec = tmp_path / "spec.yaml"
    spec.write_text(draft_spec(kernel))
    (signature,) = signatures(source, "cuda" if file.endswith("cu") else "opencl")
    experiment = load_experiment(spec)
    assert [a.name for a in experiment.arguments] == [p.name for p in signature.parameters]
    assert "guess" in spec.read_text()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("out[i * n] += x[i];", "inout"),
        ("out[order[i]] <<= 1;", "inout"),
        ("out[i] = 0; for (int j = 0; j < n; ++j) out[i] += x[j];", "out"),
        ("out[i] = x[i]; if (out[i] == n || out[i] <= 1) out[i] = 2;", "out"),
        ("if (out[i] == x[i] || out[i] <= 1) out[i] = x[i];", "inout"),
        ("float sum = 0; sum += x[i]; out[i] = sum;", "out"),
    ],
)
def test_a_skeleton_sees_an_array_that_is_updated_in_place(tmp_path, body, kind):
    kernel = tmp_path / "add.cl"
    arguments = "__global float *out, __global const float *x, int n"
    kernel.write_text(f"__kernel void add({arguments}) {{ int i = get_global_id(0); {body} }}")
    assert f"{{name: out, kind: {kind}, dtype: float32, shape: [n]}}" in draft_spec(kernel)


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        ("y * rows + x", "[cols, rows]"),
        ("rows*y+x", "[cols, rows]"),
        ("y * cols + x", "[rows, cols]"),
        ("(y * rows + x) * cols", "[rows, cols]"),
        ("i", "[rows, cols]"),
        ("(y * rows + x) * 2", "[cols, rows]"),
    ],
)
def test_what_a_row_is_multiplied_by_is_the_last_extent(tmp_path, index, shape):
    kernel = tmp_path / "f.cl"
    kernel.write_text(
        "__kernel void f(__global const float* in, __global float* out, int rows, int cols) "
        f"{{ int x = at(0), y = at(1), i = at(2); out[{index}] = in[y * cols + x]; }}"
    )
    text = draft_spec(kernel)
    assert f"{{name: out, kind: out, dtype: float32, shape: {shape}}}" in text
    assert "{name: in, kind: in, dtype: float32, shape: [rows, cols]}" in text


def test_what_a_skeleton_guesses(tmp_path):
    kernel = tmp_path / "scale.cl"
    kernel.write_text(specs.KERNEL)
    text = draft_spec(kernel)
    for line in (
        "  - {name: out, kind: out, dtype: float32, shape: [n]}",
        "  - {name: x, kind: in, dtype: float32, shape: [n]}",
        "  - {name: n, kind: scalar, dtype: int32, value: n}",
        "    - {n: 65536}",
        "    - {n: 1024}",
    ):
        assert line in text


def test_a_skeleton_holds_out_a_shape_that_every_checker_takes(tmp_path):
    for symbols in ("int n", "int rows, int cols", "int a, int b, int c, int d"):
        kernel, spec = tmp_path / "f.cl", tmp_path / "spec.yaml"
        kernel.write_text(f"kernel void f(global float *x, global float *y, {symbols}) {{}}")
        spec.write_text(draft_spec(kernel))
        experiment = load_experiment(spec)
        (small,) = experiment.shapes.held_out
        arguments = resolve_arguments(experiment, small.symbols)
        assert sum(a.size for a in arguments if a.is_buffer) <= 64 << 10


@pytest.mark.parametrize(
    ("file", "index", "grid", "block"),
    [
        (
            "turn.cl",
            "get_global_id(0) * rows + get_global_id( 1 )",
            '"ceil_div(cols, 16)", "ceil_div(rows, 16)"',
            "16, 16",
        ),
        (
            "turn.cu",
            "threadIdx.x + threadIdx.y",
            '"ceil_div(cols, 16)", "ceil_div(rows, 16)"',
            "16, 16",
        ),
        ("turn.cu", "threadIdx.x + blockIdx . y", '"ceil_div(cols, 256)", rows', "256, 1"),
        ("turn.cl", "get_group_id(1) + get_group_id(0)", "cols, rows", "1, 1"),
        ("turn.cu", "blockIdx.z + threadIdx.x", '"ceil_div(cols, 256)", 1, rows', "256, 1, 1"),
        (
            "turn.cl",
            "get_global_id(0) + get_global_id(1) + get_local_id(2)",
            '"ceil_div(cols, 8)", "ceil_div(rows, 8)", "ceil_div(1, 4)"',
            "8, 8, 4",
        ),
        ("turn.cl", "0", '"ceil_div(rows * cols, 256)"', "256"),
        ("turn.cl", "0 /* get_global_id(1) */", '"ceil_div(rows * cols, 256)"', "256"),
    ],
)
def test_a_skeleton_launches_as_many_dimensions_as_the_kernel_asks_for(
    tmp_path, file, index, grid, block
):
    pointer = "global float *" if file.endswith("cl") else "float*"
    mark = "kernel" if file.endswith("cl") else "__global__"
    kernel = tmp_path / file
    kernel.write_text(
        f"{mark} void turn({pointer} out, int rows, int cols) {{ out[{index}] = 1; }}"
    )
    spec = tmp_path / "spec.yaml"
    spec.write_text(draft_spec(kernel))
    assert f"grid: [{grid}]" in spec.read_text()
    assert f"block: [{block}]" in spec.read_text()
    load_experiment(spec)


HELD = """
#define BINS 64  /* of a histogram */
#define WIDE (BINS)
kernel void held(global uint *bins, global const uint *table, global const float *bias,
                 global float *out, int rows, int cols) {
  local uint mine[BINS];
  int c = get_group_id(0) * get_local_size(0) + get_local_id(0), r = get_group_id(1);
  for (uint b = get_local_id(0); b < BINS; b += 2)
    atomic_add(&bins[b], mine[b] + table[r * BINS + b]);
  if (c >= cols || r < WIDE) return;
  out[r * cols + c] = bias[c];
}
"""


def test_a_skeleton_takes_sizes_from_guards_and_macros_and_sees_atomics(tmp_path):
    kernel, spec = tmp_path / "held.cl", tmp_path / "spec.yaml"
    kernel.write_text(HELD)
    spec.write_text(draft_spec(kernel))
    text = spec.read_text()
    for line in (
        '    grid: ["ceil_div(cols, 256)", rows]',
        "    block: [256, 1]",
        '  - {name: bins, kind: inout, dtype: uint32, shape: ["64"]}',
        "  - {name: table, kind: in, dtype: uint32, shape: [rows, cols]}",
        "  - {name: bias, kind: in, dtype: float32, shape: [cols]}",
        "  - {name: out, kind: out, dtype: float32, shape: [rows, cols]}",
    ):
        assert line in text
    load_experiment(spec)


def test_a_row_as_long_as_a_macro_says(tmp_path):
    kernel, spec = tmp_path / "sum.cu", tmp_path / "spec.yaml"
    kernel.write_text(
        "#define COLS 512u\n__global__ void sum(int *sums, const int *mat, int rows) {\n"
        "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= COLS) return;\n"
        "  for (int r = 0; r < rows; r++) atomicAdd(sums + c, mat[r * COLS + c]);\n}\n"
    )
    spec.write_text(draft_spec(kernel))
    text = spec.read_text()
    assert 'grid: ["ceil_div(512, 256)"]' in text
    assert '{name: sums, kind: inout, dtype: int32, shape: ["512"]}' in text
    assert '{name: mat, kind: in, dtype: int32, shape: [rows, "512"]}' in text
    assert "    - {rows: 512}" in text
    load_experiment(spec)


@pytest.mark.parametrize(
    ("file", "source", "entry", "said"),
    [
        ("a.txt", "", None, "a kernel file ends in .cl"),
        ("a.cl", "int f(int a);", None, "no kernel found; one begins with __kernel"),
        ("a.cu", CUDA, None, "several kernels; choose one with --entry: first, second, third"),
        ("a.cu", CUDA, "frist", "no kernel 'frist'; did you mean 'first'?"),
    ],
)
def test_where_no_skeleton_can_be_written(tmp_path, file, source, entry, said):
    kernel = tmp_path / file
    kernel.write_text(source)
    with pytest.raises(SpecError, match=re.escape(said)):
        draft_spec(kernel, entry)
    with pytest.raises(SpecError, match="no such file"):
        draft_spec(tmp_path / "gone.cl")


def test_the_schema_speaks_of_what_authors_write():
    schema = json_schema()
    json.dumps(schema)
    kernel = schema["$defs"]["Kernel"]
    assert kernel["properties"]["source"]["type"] == "string"
    assert "headers" not in kernel["properties"]
    assert kernel["additionalProperties"] is False
    grid = schema["$defs"]["Launch"]["properties"]["grid"]["anyOf"]
    assert [option["type"] for option in grid] == [["string", "integer", "boolean"], "array"]
    assert schema["properties"]["template"]["anyOf"][0]["type"] == "string"
    assert set(schema["required"]) == {"version", "name", "kernel", "arguments", "shapes"}


@pytest.mark.parametrize("text", [specs.SPEC, specs.CUDA_SPEC])
def test_the_schema_accepts_sound_specs(text):
    validator = pytest.importorskip("jsonschema").Draft202012Validator(json_schema())
    assert [e.message for e in validator.iter_errors(parse(text, "a.yaml").data)] == []
    spoilt = parse(text.replace("kernel:", "kernal:"), "a.yaml").data
    assert any("kernal" in error.message for error in validator.iter_errors(spoilt))


@pytest.mark.parametrize(
    ("attribute", "block", "grid"),
    [
        ("WG, 1, 1", "[64]", '["ceil_div(n, 64)"]'),
        ("16, 4, 1", "[16, 4]", '["ceil_div(n, 16)", "ceil_div(1, 4)"]'),
        ("WG * 2, 1, 1", "[256]", '["ceil_div(n, 256)"]'),
    ],
)
def test_a_skeleton_takes_the_block_that_a_kernel_says_it_needs(tmp_path, attribute, block, grid):
    kernel = tmp_path / "k.cl"
    kernel.write_text(
        f"#define WG 64\nkernel __attribute__((reqd_work_group_size({attribute})))\n"
        "void k(global float *out, int n) { out[get_global_id(0)] = n; }\n"
    )
    text = draft_spec(kernel)
    assert f"block: {block}" in text
    assert f"grid: {grid}" in text


def test_a_skeleton_reads_no_other_kernel(tmp_path):
    kernel = tmp_path / "two.cl"
    kernel.write_text(
        "#define INDEX get_global_id(0)\nint at(int n) { return INDEX; }\n"
        "kernel void first(global float *x, int n) { x[at(n)] = 1; }\n"
        "kernel void second(global float *x, int n) { x[get_global_id(1)] += 1; }\n"
    )
    first, second = draft_spec(kernel, "first"), draft_spec(kernel, "second")
    assert 'grid: ["ceil_div(n, 256)"]' in first
    assert "name: x, kind: out," in first
    assert 'grid: [1, "ceil_div(n, 256)"]' in second
    assert "name: x, kind: inout," in second


def test_a_skeleton_names_a_kernel_with_its_namespace(tmp_path):
    kernel, spec = tmp_path / "k.cu", tmp_path / "spec.yaml"
    kernel.write_text("namespace ns {\n__global__ void k(float *x, int n) { x[0] = n; }\n}\n")
    spec.write_text(draft_spec(kernel))
    assert 'entry: "ns::k"' in spec.read_text()
    load_experiment(spec)


def test_a_kernel_is_found_among_others():
    source = (
        "// kernel void k(int a) {}\n"
        "void k_helper(int k) { k(1); }\n"
        "#define MANY(x) x\n"
        "template <int N>\n__global__ __launch_bounds__(64)\nvoid ns_k(float* __restrict__ x[2],\n"
        "    int (&n)) { if (x) { } }\n"
        "__global__ void k(const float*, unsigned long long);\n"
        'extern "C" __global__ void k(const float* x, unsigned long long n) { x; }\n'
    )
    found = find_kernel(source, "k", "cuda")
    assert found is not None
    assert [p.name for p in found.signature.parameters] == ["x", "n"]
    assert found.text(found.body) == " x; "
    assert found.text(found.head).startswith('extern "C" __global__')
    other = find_kernel(source, "ns::ns_k<4>", "cuda")
    assert other is not None
    assert other.text(other.head).startswith("template <int N>")
    assert other.text(other.parameters).endswith("int (&n)")
    assert not other.signature.certain
    assert find_kernel(source, "k_helper", "cuda") is None
    assert find_kernel(source, "x y", "cuda") is None
