"""``init`` on an application's files: launch, sizes, arrays, constants and domain, as guesses."""

import re
import time

import pytest

from tuner.drafts.draft_spec import draft_spec, unread_guesses
from tuner.experiment.load import load_experiment

APPLICATION = """\
#include "common.h"
#include "../shared/base.h"
__constant__ float table[2 * HALF];
template <typename T>
__global__ void norm(T* out, const T* x, float* sums, int rows, int cols, float eps) {
  extern __shared__ float kept[];
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    kept[threadIdx.x] = table[0] + (float)x[blockIdx.x * cols + c] * eps;
    out[blockIdx.x * cols + c] = (T)kept[threadIdx.x];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] += kept[0];
}
__global__ void other(float* x) { x[0] = 1; }
template <typename T>
void run_norm(T* out, const T* x, float* sums, int rows, int cols) {
  assert(cols % 4 == 0);
  const int threads = THREADS;
  norm<T><<<rows, threads, threads * sizeof(float)>>>(out, x, sums, rows, cols, 1e-5f);
}
int main() {
  const int B = 4, T = 256, C = 1024;
  float *d_out, *d_x, *d_sums;
  cudaMalloc(&d_sums, B * T * sizeof(float));
  run_norm<float>(d_out, d_x, d_sums, B * T, C);
  other<<<1, 1>>>(d_x);
}
"""


@pytest.fixture(scope="module")
def drafted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("application")
    (folder / "src").mkdir()
    (folder / "shared").mkdir()
    (folder / "src" / "common.h").write_text("#define THREADS 128\n")
    (folder / "shared" / "base.h").write_text("#define HALF 8\n")
    (folder / "src" / "k.cu").write_text(APPLICATION)
    spec = folder / "src" / "spec.yaml"
    spec.write_text(draft_spec(folder / "src" / "k.cu", "norm"))
    return spec


@pytest.mark.parametrize(
    "line",
    [
        '  entry: "norm<{T}>"    # guess: launched so in k.cu:18 (medium)',
        '  include_dirs: [".."]',
        "    grid: [rows]    # guess: launched so in k.cu:18 (medium)",
        "    block: [128]    # guess: launched so in k.cu:18 (medium)",
        '    shared_bytes: "512"    # guess: launched so in k.cu:18 (medium)',
        (
            "  - {name: out, kind: out, dtype: T, shape: [rows, cols]}    "
            "# guess: written before it is read; its indices stay below this (medium)"
        ),
        (
            "  - {name: x, kind: in, dtype: T, shape: [rows, cols]}    "
            "# guess: const, so read; its indices stay below this (medium)"
        ),
        (
            "  - {name: sums, kind: inout, dtype: float32, shape: [rows]}    "
            "# guess: updated in place, so read and written; as long as it is allocated (medium)"
        ),
        (
            "  - {name: eps, kind: scalar, dtype: float32, value: 1e-05}    "
            "# guess: a constant of the application (high)"
        ),
        (
            '  - {name: table, kind: constant, dtype: float32, shape: ["16"], symbol: table}    '
            "# guess: a constant of the module, which the host fills (medium)"
        ),
        (
            '  domain: ["1 <= rows", "1 <= cols", "cols % 4 == 0"]    '
            "# guess: positive sizes, and what divisions and assertions need (low)"
        ),
        "    - {rows: 1024, cols: 1024, T: float32}",
        "    - {rows: 64, cols: 64, T: float32}",
    ],
)
def test_the_launch_in_the_host_s_code_decides(drafted, line):
    assert line in drafted.read_text().splitlines()


def test_a_draft_loads_and_every_guess_is_marked(drafted):
    experiment = load_experiment(drafted)
    assert [name for name, _ in experiment.kernel.headers] == [
        "__parent__/shared/base.h",
        "common.h",
    ]
    marked = unread_guesses(drafted.read_text())
    assert len(marked) == 14
    for at in marked:
        assert re.search(r"\((high|medium|low)\)$", drafted.read_text().splitlines()[at - 1])


def test_a_kernel_is_found_in_a_header_and_its_launch_in_a_file_beside_it(tmp_path):
    (tmp_path / "kernels.h").write_text(
        "__global__ void fill(float* x, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) x[i] = 1;\n}\n"
    )
    (tmp_path / "fill.cu").write_text('#include "kernels.h"\nvoid run(float* x, int n);\n')
    (tmp_path / "host.cpp").write_text(
        "void run(float* x, int n) { fill<<<(n + 63) / 64, 64>>>(x, n); }\n"
    )
    spec = tmp_path / "spec.yaml"
    spec.write_text(draft_spec(tmp_path / "fill.cu"))
    assert 'grid: ["ceil_div(n, 64)"]    # guess: launched so in host.cpp:1' in spec.read_text()
    assert load_experiment(spec).kernel.entry == "fill"


def test_without_a_launch_the_domain_is_still_written(tmp_path):
    (tmp_path / "k.cu").write_text("__global__ void k(float* x, int n) { x[threadIdx.x] = n; }\n")
    text = draft_spec(tmp_path / "k.cu")
    assert 'domain: ["1 <= n"]    # guess: every positive size (low)' in text
    assert "# guess: no launch was found (low)" in text


def test_a_block_that_the_kernel_requires_is_sure(tmp_path):
    (tmp_path / "k.cl").write_text(
        "#define TX 16\nkernel __attribute__((reqd_work_group_size(TX, 8, 1))) void k(global float "
        "*x, int w) {\n  x[get_global_id(1) * w + get_global_id(0)] = 1;\n}\n"
    )
    text = draft_spec(tmp_path / "k.cl")
    assert "block: [16, 8]    # guess: the kernel's reqd_work_group_size (high)" in text


def test_a_block_for_each_row_has_a_symbol_for_the_rows(tmp_path):
    (tmp_path / "k.cl").write_text(
        "kernel void k(global float *out, global const float *in, global const float *g, int c)\n"
        "{\n  const int row = get_group_id(0), t = get_local_id(0);\n"
        "  global const float *r = in + row * c;\n"
        "  for (int i = t; i < c; i += 64) out[row * c + i] = r[i] * g[i];\n}\n"
    )
    spec = tmp_path / "spec.yaml"
    spec.write_text(draft_spec(tmp_path / "k.cl"))
    loaded = load_experiment(spec)
    shapes = [[one.text for one in argument.shape or ()] for argument in loaded.arguments]
    assert shapes == [["rows", "c"], ["rows", "c"], ["c"], []]
    assert [axis.text for axis in loaded.kernel.steps[0].grid] == ["rows"]


def test_an_index_that_moves_a_pointer_has_its_values(tmp_path):
    (tmp_path / "k.cu").write_text(
        "__global__ void embed(float* out, const int* ids, const float* table, int n, int width)\n{"
        "  int id = ids[blockIdx.x];\n  const float* row = table + id * width;\n"
        "  if (threadIdx.x < width) out[blockIdx.x * width + threadIdx.x] = row[threadIdx.x];\n}\n"
        "void run(float* o, int* i, float* t, int n, int w) { embed<<<n, 256>>>(o, i, t, n, w); }\n"
    )
    text = draft_spec(tmp_path / "k.cu")
    assert 'dtype: int32, shape: [n], values: {integers: [0, "width - 1"]}}' in text
    assert "an index: table + id * width" in text


def test_template_arguments_types_and_fields_that_are_sizes_are_filled_in(tmp_path):
    (tmp_path / "k.cu").write_text(
        "struct Sizes { int n; float scale; };\ntemplate <typename T>\n"
        "__global__ void axpy(T* y, const T* x, T a, Sizes sizes, int n) {\n"
        "  int i = blockIdx.x * 64 + threadIdx.x;\n  if (i < n) y[i] += a * x[i];\n}\n"
        "void run(float* y, float* x, Sizes s, int n) {\n"
        "  axpy<float><<<(n + 63) / 64, 64>>>(y, x, 2.f, s, n);\n}\n"
    )
    text = draft_spec(tmp_path / "k.cu")
    assert "{name: y, kind: inout, dtype: float32, shape: [n]}" in text
    assert "{name: a, kind: scalar, dtype: float32, value: 2.0}" in text
    assert "{name: n, dtype: int32, value: n}, {name: scale, dtype: float32, value: 0}" in text
    (tmp_path / "spec.yaml").write_text(text)
    assert load_experiment(tmp_path / "spec.yaml").kernel.entry == "axpy<float>"


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("y[i] = bias[i % w] + y[i]", "inout"),
        ("float old = y[i]; y[i] = old + bias[i % w]", "inout"),
        ("y[i]++; y[i] += bias[i % w]", "inout"),
        ("y[i] = bias[i % w]; y[i] += 1", "out"),
        ("y[i] = bias[(i + 1) % w]", "out"),
        ("int c = i % w; y[i] = bias[c]", "out"),
    ],
)
def test_without_a_launch_what_is_read_and_how_far_follows_from_the_indices(
    tmp_path, statement, kind
):
    (tmp_path / "k.cl").write_text(
        "__kernel void k(__global float* y, __global const float* bias, int n, int w) {\n"
        f"  int i = get_global_id(0);\n  if (i < n) {{ {statement}; }}\n}}\n"
    )
    text = draft_spec(tmp_path / "k.cl")
    assert f"{{name: y, kind: {kind}, dtype: float32, shape: [n]}}" in text
    assert "{name: bias, kind: in, dtype: float32, shape: [w]}" in text


def test_a_block_s_size_that_is_unknown_is_named(tmp_path):
    (tmp_path / "k.cu").write_text(
        "__global__ void k(float* x, int n) { x[threadIdx.x] = n; }\n"
        "void run(float* x, int n) { k<<<n, dim3(32, TY)>>>(x, n); }\n"
    )
    text = draft_spec(tmp_path / "k.cu")
    assert "grid: [n]    # guess: launched so in k.cu:2 (medium)" in text
    assert "# guess: launched so in k.cu:2, but the value of TY is unknown (low)" in text


def test_a_literal_that_the_launch_passes_is_a_size_unless_it_is_small(tmp_path):
    (tmp_path / "k.cu").write_text(
        "__global__ void scale(float* out, const float* x, int n, int mode) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) out[i] = x[i] * mode;\n}\n"
        "int main() {\n  float *a, *b;\n  cudaMalloc(&a, 4 * 1000000); cudaMalloc(&b, 4000000);\n"
        "  scale<<<3907, 256>>>(a, b, 1000000, 3);\n}\n"
    )
    text = draft_spec(tmp_path / "k.cu")
    assert "- {n: 1000000}\n" in text
    assert "name: out, kind: out, dtype: float32, shape: [n]}" in text
    assert "name: x, kind: in, dtype: float32, shape: [n]}" in text
    assert "dtype: int32, value: n}" in text
    assert 'dtype: int32, value: "3"}' in text


@pytest.mark.parametrize("configuration", ["1, 1e400", "3000000000, 64", "1, 64, 1e400"])
def test_what_is_more_than_a_launch_takes_is_not_drafted(tmp_path, configuration):
    (tmp_path / "k.cu").write_text(
        "__global__ void k(float* p, int n) { p[threadIdx.x] = n; }\n"
        f"void run(float* p, int n) {{ k<<<{configuration}>>>(p, n); }}\n"
    )
    text = draft_spec(tmp_path / "k.cu")
    assert "3000000000" not in text
    assert "\n    shared_bytes:" not in text


@pytest.mark.parametrize(
    ("index", "threads"), [("t", 64), ("get_local_id(0)", 64), ("0", 256), ("t / 32", 256)]
)
def test_a_block_has_no_more_threads_than_shared_arrays_have_elements(tmp_path, index, threads):
    (tmp_path / "k.cl").write_text(
        "#define N 64\n__kernel void k(__global float *o, int n) {\n"
        "  __local float sums[N]; int t = get_local_id(0); int i = get_global_id(0);\n"
        f"  sums[{index}] = i; barrier(CLK_LOCAL_MEM_FENCE); if (i < n) o[i] = sums[0];\n}}\n"
    )
    text = draft_spec(tmp_path / "k.cl")
    assert f"block: [{threads}]" in text
    assert f'grid: ["ceil_div(n, {threads})"]' in text


@pytest.mark.parametrize(
    ("kernel", "host"),
    [
        ("", "a::" * 3000),
        ("", "k<<" * 1500),
        ("k<<<1, 2>>>(x, y, n);" * 60, ""),
        ("()" * 2000, ""),
        ("", "k<" * 1500),
    ],
)
def test_what_is_repeated_without_end_takes_no_long_time(tmp_path, kernel, host):
    (tmp_path / "k.cu").write_text(
        f"__global__ void k(const float* x, float* y, int n) {{ y[0] = x[0]; {kernel} }}\n"
        f"int main() {{ float *x, *y; int n = 8; {host} k<<<n, 256>>>(x, y, n); }}\n"
    )
    began = time.thread_time()
    draft_spec(tmp_path / "k.cu")
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("launch", ["", "int main() {{ int n = 8; k<<<n, 256>>>({}, n); }}"])
def test_hundreds_of_pointers_are_drafted_soon(tmp_path, launch):
    names = [f"p{number}" for number in range(400)]
    listed = ", ".join(f"float* {name}" for name in names)
    body = "".join(f"{name}[i] = 1; " for name in names)
    (tmp_path / "k.cu").write_text(
        f"__global__ void k({listed}, int n) {{ int i = blockIdx.x; {body} }}\n"
        + launch.format(", ".join(names))
    )
    began = time.thread_time()
    assert draft_spec(tmp_path / "k.cu").count("kind: out") == 400
    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    ("arrays", "sizes", "body", "drafted"),
    [
        (
            "o, x",
            "w, h",
            (
                "int j = get_global_id(0), i = get_global_id(1); if (i < h && j < w)"
                " o[i * w + j] = x[i * (w + 2) + j] + x[(i + 2) * (w + 2) + j + 2];"
            ),
            {"o": "h, w", "x": '"h * w + 2 * h + 2 * w + 4"'},
        ),
        (
            "o, x",
            "w, h",
            (
                "int j = get_global_id(0), i = get_global_id(1);"
                " if (i < 1 || j < 1 || i >= h - 1 || j >= w - 1) return;"
                " o[i * w + j] = x[(i + 1) * w + j] + x[(i - 1) * w + j];"
            ),
            {"o": "h, w", "x": "h, w"},
        ),
        (
            "o, x, v, c, s",
            "rows",
            (
                "int i = get_global_id(0); if (i >= rows) return; float t = 0;"
                " for (int e = s[i]; e < s[i + 1]; e++) t += v[e] * x[c[e]]; o[i] = t;"
            ),
            {"o": "rows", "x": "rows", "v": "nnz", "c": "nnz", "s": '"rows + 1"'},
        ),
        (
            "o, x, s",
            "rows, d",
            (
                "int i = get_global_id(0), k = get_global_id(1); int end = s[i + 1]; float t = 0;"
                " if (i < rows && k < d) { for (int e = s[i]; e < end; e++) t += x[e * d + k];"
                " o[i * d + k] = t; }"
            ),
            {"o": "rows, d", "x": "nnz, d", "s": '"rows + 1"'},
        ),
        (
            "o, x",
            "b, m",
            (
                "int i = get_global_id(0), z = get_global_id(1); if (i >= m || z >= b) return;"
                " for (int k = 0; k < m; k++) o[(z * m + i) * m + k] = x[(z * m + k) * m + i];"
            ),
            {"o": "b, m, m", "x": "b, m, m"},
        ),
        (
            "o, x",
            "rows, cols",
            (
                "int i = get_global_id(0); if (i >= rows) return;"
                " for (int k = 0; k < 4; k++) o[i * 4 + k] = x[i * cols + k * 2];"
            ),
            {"o": '"4 * rows"'},
        ),
        (
            "o, x",
            "t, d",
            (
                "int k = get_global_id(0), i = get_global_id(1); if (k >= d / 2 || i >= t) return;"
                " __global float* p = o + i * d; p[k] = p[k + d / 2] * x[i * (d / 2) + k];"
            ),
            {"o": "t, d", "x": 't, "d // 2"'},
        ),
    ],
    ids=["halo", "border", "csr", "segments", "matrices", "first few", "halves"],
)
def test_without_a_launch_arrays_are_as_long_as_their_indices_reach(
    tmp_path, arrays, sizes, body, drafted
):
    types = {"o": "float*", "s": "const int*", "c": "const int*"}
    listed = [f"__global {types.get(name, 'const float*')} {name}" for name in arrays.split(", ")]
    listed += [f"int {name}" for name in sizes.split(", ")]
    (tmp_path / "k.cl").write_text(f"__kernel void k({', '.join(listed)}) {{ {body} }}\n")
    text = draft_spec(tmp_path / "k.cl")
    for name, shape in drafted.items():
        assert re.search(rf"name: {name}, .*shape: \[{re.escape(shape)}\]", text), text
    assert ("offsets: nnz" in text) == ("nnz" in drafted.get("x", "") + drafted.get("v", ""))
    assert "ceil_div(1," not in text
    (tmp_path / "spec.yaml").write_text(text)
    load_experiment(tmp_path / "spec.yaml")


def test_with_a_launch_too_segments_have_their_offsets(tmp_path):
    (tmp_path / "k.cu").write_text(
        "__global__ void k(float* o, const float* x, const int* s, int rows) {\n"
        "  int begin = s[blockIdx.x], end = s[blockIdx.x + 1]; float t = 0;\n"
        "  for (int e = begin; e < end; e++) t += x[e];\n  o[blockIdx.x] = t;\n}\n"
        "void run(float* o, float* x, int* s, int rows) { k<<<rows, 1>>>(o, x, s, rows); }\n"
    )
    text = draft_spec(tmp_path / "k.cu")
    assert 'shape: ["rows + 1"], values: {offsets: nnz}}' in text
    assert "{name: x, kind: in, dtype: float32, shape: [nnz]}" in text
    assert re.search(r"tune: .*\n    - {rows: 1024, nnz: 8192}", text)


def test_the_last_offset_is_the_size_of_that_name_wherever_the_kernel_takes_it(tmp_path):
    (tmp_path / "k.cl").write_text(
        "__kernel void k(__global float* o, __global const float* v, __global const int* s,\n"
        "                int nnz, int rows) {\n  int r = get_global_id(0);\n"
        "  if (r < rows) { o[r] = 0; for (int i = s[r]; i < s[r + 1]; ++i) o[r] += v[i]; }\n}\n"
    )
    assert 'shape: ["rows + 1"], values: {offsets: nnz}}' in draft_spec(tmp_path / "k.cl")


@pytest.mark.parametrize(
    ("integers", "index", "guard", "grid"),
    [
        (", int rows", "r", "if (r >= rows) return;", "rows"),
        (", int rows", "r", "", "rows"),
        (", int nnz, int rows, int cols", "r", "", "rows"),
        ("", "r", "", "n"),
        ("", "get_group_id(0)", "", "n"),
    ],
    ids=["guarded", "unguarded", "others first", "not given", "no variable"],
)
def test_a_block_for_each_segment(tmp_path, integers, index, guard, grid):
    (tmp_path / "k.cl").write_text(
        "__kernel void k(__global float* y, __global const float* v, __global const int* s,\n"
        f"                __global const float* x, __global const int* c{integers}) {{\n"
        f"  const int r = (int)get_group_id(0), t = get_local_id(0); {guard} __local float p[32];\n"
        f"  float sum = 0; for (int e = s[{index}] + t; e < s[{index} + 1]; e += 32)\n"
        "    sum += v[e] * x[c[e]];\n  p[t] = sum; barrier(CLK_LOCAL_MEM_FENCE);\n"
        "  if (t > 0) return; sum = 0; for (int i = 0; i < 32; i++) sum += p[i];\n"
        f"  y[{index}] = sum;\n}}\n"
    )
    text = draft_spec(tmp_path / "k.cl")
    assert f"grid: [{grid}]" in text
    assert "block: [32]" in text
    columns = "cols" if "cols" in integers else grid
    shapes = {"y": grid, "v": "nnz", "s": f'"{grid} + 1"', "x": columns, "c": "nnz"}
    for name, shape in shapes.items():
        assert re.search(rf"name: {name}, .*shape: \[{re.escape(shape)}\]", text), text
    (tmp_path / "spec.yaml").write_text(text)
    load_experiment(tmp_path / "spec.yaml")


def test_segments_of_rows_have_a_symbol_for_their_number(tmp_path):
    (tmp_path / "k.cu").write_text(
        "__global__ void k(float* o, const float* x, const int* ends, int dim) {\n"
        "  int b = blockIdx.x; for (int d = threadIdx.x; d < dim; d += blockDim.x) { float s = 0;\n"
        "    for (int i = ends[b]; i < ends[b + 1]; ++i) s += x[i * dim + d];\n"
        "    o[b * dim + d] = s; }\n}\n"
    )
    text = draft_spec(tmp_path / "k.cu")
    assert "grid: [bs]" in text
    assert "{name: o, kind: out, dtype: float32, shape: [bs, dim]}" in text
    assert "{name: x, kind: in, dtype: float32, shape: [nnz, dim]}" in text
    assert 'shape: ["bs + 1"], values: {offsets: nnz}}' in text
