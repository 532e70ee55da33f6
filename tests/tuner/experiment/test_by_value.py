"""Structs by value, groups of unordered outputs, and index arrays, as a spec writes them."""

import pytest

from tests.tuner.experiment import specs
from tuner.drafts.draft_spec import draft_spec
from tuner.errors import SpecError
from tuner.experiment.arguments import OffsetsTo, passed_bytes, resolve_argument
from tuner.experiment.load import dump_resolved, load_experiment, load_resolved
from tuner.experiment.problems import SpecProblems
from tuner.export.original import original_launch

KERNEL = """\
typedef struct { int rows; double scale; float shift[3]; char flag; } params;
__kernel void scale(__global float *out, __global int *keys, __global const float *x,
                    __global const int *index, __global const int *ends, const params p) {
    int i = get_global_id(0);
    int end = ends[i];
    out[i] = p.scale * x[index[i]] + keys[end];
}
"""

SPEC = """\
version: 1
name: scale
kernel: {language: opencl, source: scale.cl, entry: scale, launch: {grid: n, block: 1}}
arguments:
  - {name: out, kind: out, dtype: float32, shape: n, compare: {unordered: {segments: ends}}}
  - {name: keys, kind: inout, dtype: int32, shape: n, initial: zeros}
  - {name: x, kind: in, dtype: float32, shape: n}
  - {name: index, kind: in, dtype: int32, shape: n, values: {integers: [0, n - 1]}}
  - {name: ends, kind: in, dtype: int32, shape: n + 1, values: {offsets: 2 * n}}
  - name: p
    kind: struct
    fields:
      - {name: rows, dtype: int32, value: n}
      - {name: scale, dtype: float64, value: 0.5}
      - {name: shift, dtype: float32, value: [1, n, 2.5]}
      - {name: flag, dtype: int8, value: -1}
shapes: {tune: [{n: 64}]}
"""
FIELDS = SPEC[SPEC.index("    fields:") : SPEC.index("shapes:")]


def write(folder, text=SPEC, kernel=KERNEL):
    return specs.write(folder, text, scale__cl=kernel)


def test_a_struct_is_laid_out_as_in_c(tmp_path):
    experiment = load_experiment(write(tmp_path))
    struct = experiment.arguments[-1]
    found = resolve_argument(struct, {"n": 64})
    assert [(f.name, f.offset, f.values) for f in found.fields] == [
        ("rows", 0, (64,)),
        ("scale", 8, (0.5,)),
        ("shift", 16, (1.0, 64.0, 2.5)),
        ("flag", 28, (-1,)),
    ]
    assert found.struct_bytes == passed_bytes(struct, {"n": 64}) == 32
    assert resolve_argument(experiment.arguments[4], {"n": 64}).fill == OffsetsTo(last=128)
    again = load_resolved(dump_resolved(experiment))
    assert again.arguments == experiment.arguments


def test_raw_bytes_come_from_digits_or_from_a_file(tmp_path):
    (tmp_path / "p.bin").write_bytes(bytes(range(32)))
    for given in ('"0001 0203 04050607" ', "{file: p.bin}"):
        text = SPEC.replace(FIELDS, f"    bytes: {given}\n")
        experiment = load_experiment(write(tmp_path, text))
        struct = resolve_argument(experiment.arguments[-1], {"n": 64})
        assert bytes.fromhex(struct.contents) == bytes(range(struct.struct_bytes))
        assert load_resolved(dump_resolved(experiment)).arguments == experiment.arguments


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (FIELDS, "", "a struct needs 'fields' or 'bytes'"),
        (FIELDS, "    bytes: xy\n", "pairs of hexadecimal digits"),
        (FIELDS, "    bytes: {file: gone.bin}\n", "no such file"),
        ("dtype: float64, value: 0.5", "dtype: flt64, value: 0.5", "did you mean 'float64'?"),
        ("dtype: int32, value: n}", "dtype: int8, value: 4 * n}", "outside int8"),
        ("value: [1, n, 2.5]", "value: [1, m]", "unknown symbol 'm'"),
        ("name: scale, dtype: float64", "name: rows, dtype: float64", "two fields are named"),
        ("value: -1}", "value: -1, align: 3}", "power of two"),
        ("kind: struct", "kind: scalar\n    dtype: int32\n    value: 1", "'fields' does not apply"),
        ("{segments: ends}", "{segments: end}", "did you mean 'ends'?"),
        ("{segments: ends}", "{segments: x}", "segments begin at integers, but 'x' is float32"),
        ("{segments: ends}", "{key: ends}", "its shape is [64], but that of its keys [65]"),
        ("{segments: ends}", "{key: out}", "no other array 'out'"),
        ("{unordered: {segments: ends}}", "{unordered: rows}", "'rows' needs two dimensions"),
        ("{unordered: {segments: ends}}", "unordered", "{unordered: whole}"),
        ("{offsets: 2 * n}", "offsets", "give the last value: {offsets: END}"),
        (", values: {integers: [0, n - 1]}", "", "'index' is used as an index (x[index[i]])"),
        (", values: {offsets: 2 * n}", "", "'ends' is used as an index (keys[end])"),
        ("offsets: 2 * n", "offsets: 2**40", "do not fit int32"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, old, new, said):
    assert old in SPEC
    with pytest.raises(SpecProblems) as problems:
        load_experiment(write(tmp_path, SPEC.replace(old, new)))
    assert said in str(problems.value)


@pytest.mark.parametrize("old", ["const params p", "__global const int *index"])
def test_a_parameter_of_another_kind_is_refused(tmp_path, old):
    kernel = KERNEL.replace(old, f"const float {old.split()[-1].strip('*')}")
    with pytest.raises(SpecProblems, match=r"is a (struct|buffer)"):
        load_experiment(write(tmp_path, kernel=kernel))


def test_textures_are_refused_before_anything_else(tmp_path):
    source = (
        "__global__ void k(float* out, cudaTextureObject_t image,\n"
        "  const __grid_constant__ CUtensorMap map, int n) {}\n"
    )
    (tmp_path / "k.cu").write_text(source)
    with pytest.raises(SpecError, match="parameter 'image' of k is a texture, which is not"):
        draft_spec(tmp_path / "k.cu")
    text = specs.CUDA_SPEC.replace("shape: n}", "shape: m}").replace("scale<{T}, 4>", "k")
    with pytest.raises(SpecProblems) as problems:
        load_experiment(specs.write(tmp_path, text, scale__cu=source + specs.CUDA_KERNEL))
    assert [p.message for p in problems.value.problems] == [
        "parameter 'image' of k is a texture, which is not supported",
        "parameter 'map' of k is a tensor map, which is not supported",
    ]


VECTORS = """\
struct __align__(16) Params { int n, m; float weights[4]; double scale; float4 shift; };
__global__ void k(float4* out, const __nv_bfloat162* x, const float* table, const int* index,
                  Params p, float2 pair, Other other) {
  const int i = threadIdx.x;
  out[i] = make_float4(table[index[i]], p.n, pair.x, x[i].x);
}
"""


def test_a_draft_states_vectors_structs_and_indices(tmp_path):
    (tmp_path / "k.cu").write_text(VECTORS)
    text = draft_spec(tmp_path / "k.cu")
    assert '{name: out, kind: out, dtype: float32, shape: ["4 * n"], align: 16}' in text
    assert '{name: x, kind: in, dtype: bfloat16, shape: ["2 * n"], align: 4}' in text
    assert 'dtype: int32, shape: [n], values: {integers: [0, "n - 1"]}}' in text
    (tmp_path / "spec.yaml").write_text(text)
    found = {a.name: a for a in load_experiment(tmp_path / "spec.yaml").arguments}
    struct = resolve_argument(found["p"], {"n": 8})
    assert [field.offset for field in struct.fields] == [0, 4, 8, 24, 32]
    assert struct.struct_bytes == 48
    assert passed_bytes(found["pair"], {}) == 8
    assert found["other"].bytes == "00"


THREES = """\
struct S {{ float3 b; char c; float d; char3 e; short f; double3 g[2]; }};
{head} k({pointer} out, {type} p, double3 v, int n) {{ out[n] = p.d + v.x; }}
"""


@pytest.mark.parametrize(
    ("suffix", "words", "offsets", "sizes"),
    [
        (
            "cl",
            {"head": "__kernel void", "pointer": "__global float *", "type": "struct S"},
            [0, 16, 20, 24, 28, 32],
            [96, 32],
        ),
        (
            "cu",
            {"head": "__global__ void", "pointer": "float*", "type": "S"},
            [0, 12, 16, 20, 24, 32],
            [80, 24],
        ),
    ],
)
def test_a_draft_lays_vectors_of_three_out_as_the_language_does(
    tmp_path, suffix, words, offsets, sizes
):
    kernel = tmp_path / f"k.{suffix}"
    kernel.write_text(THREES.format(**words))
    (tmp_path / "spec.yaml").write_text(draft_spec(kernel))
    experiment = load_experiment(tmp_path / "spec.yaml")
    structs = [one for one in experiment.arguments if one.kind == "struct"]
    found = [resolve_argument(struct, {"n": 8}) for struct in structs]
    assert [field.offset for field in found[0].fields] == offsets
    assert [struct.struct_bytes for struct in found] == sizes
    exported = [given for *_, given in original_launch(experiment).numbers if "(p_, " in given]
    for field, offset in zip(found[0].fields, offsets, strict=True):
        assert any(given.endswith(f"(p_, {offset})") for given in exported), field.name


@pytest.mark.parametrize(
    ("suffix", "head", "pointer", "elements"),
    [("cl", "__kernel void", "__global float3 *", 4), ("cu", "__global__ void", "float3 *", 3)],
)
def test_a_draft_counts_the_elements_of_an_array_of_vectors_of_three(
    tmp_path, suffix, head, pointer, elements
):
    kernel = tmp_path / f"k.{suffix}"
    kernel.write_text(f"{head} k({pointer}out, int n) {{ out[n - 1].x = 0; }}\n")
    assert f'shape: ["{elements} * n"]' in draft_spec(kernel)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ('"3 * n"', "'x' of k points to float3, which takes 4 elements in memory, the last unused"),
        ("n - 2", "'x' of k points to float3, which takes 4 elements in memory, the last unused"),
        ("[1, 2, 3]", "'p' of k is a float3, which takes 4 elements in memory, the last unused"),
    ],
)
def test_vectors_of_three_with_three_elements_are_refused(tmp_path, new, said):
    kernel = "__kernel void k(__global float3 *x, const float3 p) { x[get_global_id(0)] = p; }\n"
    right = """\
version: 1
name: k
kernel: {language: opencl, source: k.cl, entry: k, launch: {grid: n, block: 1}}
arguments:
  - {name: x, kind: out, dtype: float32, shape: "4 * n", align: 16}
  - {name: p, kind: struct, fields: [{name: value, dtype: float32, value: [1, 2, 3, 0]}]}
shapes: {tune: [{n: 64}]}
"""
    load_experiment(specs.write(tmp_path, right, k__cl=kernel))
    old = "[1, 2, 3, 0]" if new.startswith("[") else '"4 * n"'
    with pytest.raises(SpecProblems) as problems:
        load_experiment(specs.write(tmp_path, right.replace(old, new), k__cl=kernel))
    assert said in str(problems.value)


def test_a_draft_gives_half3_four_values(tmp_path):
    kernel = tmp_path / "k.cl"
    kernel.write_text(
        "typedef struct { half3 a; char b; } S;\n"
        "__kernel void k(__global float *out, S p, half3 v) { out[0] = p.b; }\n"
    )
    (tmp_path / "spec.yaml").write_text(draft_spec(kernel))
    _, p, v = load_experiment(tmp_path / "spec.yaml").arguments
    assert [field.offset for field in resolve_argument(p, {}).fields] == [0, 8]
    assert (passed_bytes(p, {}), passed_bytes(v, {})) == (16, 8)


@pytest.mark.parametrize(("suffix", "elements"), [("cl", 4), ("cu", 3)])
def test_a_scalar_for_a_vector_of_three_is_told_its_elements(tmp_path, suffix, elements):
    head = {"cl": "__kernel void k(__global", "cu": "__global__ void k("}[suffix]
    kernel = tmp_path / f"k.{suffix}"
    kernel.write_text(f"{head} float* out, float v, int n) {{ out[n] = v; }}\n")
    (tmp_path / "spec.yaml").write_text(draft_spec(kernel))
    kernel.write_text(kernel.read_text().replace("float v", "float3 v"))
    with pytest.raises(SpecProblems, match=f"pass 'v' as a struct of {elements}"):
        load_experiment(tmp_path / "spec.yaml")


@pytest.mark.parametrize("fields", ["int a[9999][9999];", "float a[1025];", "char a; " * 1001])
def test_a_draft_gives_a_struct_beyond_what_a_spec_holds_as_bytes(tmp_path, fields):
    kernel = f"struct Large {{ {fields} }};\n__global__ void k(float* out, Large p) {{}}\n"
    (tmp_path / "k.cu").write_text(kernel)
    text = draft_spec(tmp_path / "k.cu")
    assert "the bytes of 'Large': too many for fields" in text
    (tmp_path / "spec.yaml").write_text(text)
    assert load_experiment(tmp_path / "spec.yaml").arguments[1].bytes == "00"


def test_the_number_of_fields_is_bounded(tmp_path):
    fields = "".join(f"      - {{name: f{i}, dtype: int8, value: 0}}\n" for i in range(1001))
    text = SPEC.replace(FIELDS, f"    fields:\n{fields}")
    with pytest.raises(SpecProblems, match="needs at most 1000 entries"):
        load_experiment(write(tmp_path, text))


@pytest.mark.parametrize(
    "body",
    [
        "*reinterpret_cast<float4*>(out + i) = *(const float4*)(x + i);",
        "store(out + i, __ldg(reinterpret_cast<const int4*>(x + i)));",
    ],
)
def test_a_draft_aligns_arrays_whose_pointers_are_cast_to_those_of_vectors(tmp_path, body):
    helper = "__device__ void store(float* at, int4 v) { *(int4*)at = v; }"
    kernel = (
        f"__global__ void k(float* out, const float* x, int n) {{ int i = threadIdx.x; {body} }}"
    )
    (tmp_path / "k.cu").write_text(f"{helper}\n{kernel}\n")
    text = draft_spec(tmp_path / "k.cu")
    assert text.count("align: 16}    # guess: ") == 2
    plain = "__global__ void k(float* out, const float* x, int n) { out[n] = (float)x[0] * n; }"
    (tmp_path / "k.cu").write_text(f"{helper}\n{plain}\n")
    assert "align" not in draft_spec(tmp_path / "k.cu")


def test_a_pointer_to_vectors_needs_its_alignment(tmp_path):
    kernel = specs.CUDA_KERNEL.replace("float* sums", "float4* sums")
    with pytest.raises(SpecProblems, match=r"give .sums. align: 16"):
        load_experiment(specs.write(tmp_path, specs.CUDA_SPEC, scale__cu=kernel))
    text = specs.CUDA_SPEC.replace(
        "dtype: float32, shape: n}", "dtype: float32, shape: n, align: 16}"
    )
    load_experiment(specs.write(tmp_path, text, scale__cu=kernel))
