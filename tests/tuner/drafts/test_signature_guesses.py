"""What ``init`` guesses of a kernel without a launch."""

import pytest

from tuner.drafts.draft_spec import draft_spec


@pytest.mark.parametrize(
    ("code", "threads"),
    [
        ("for (int b = threadIdx.x; b < 64; b += blockDim.x) mine[b] = 0;", 256),
        ("if (threadIdx.x < 64) mine[threadIdx.x] = 0;", 256),
        ("int t = threadIdx.x; if (t < 64) mine[t] = 0;", 256),
        ("int t = threadIdx.x; mine[t] = 0; if (t < 32) mine[t] += mine[t + 32];", 64),
    ],
)
def test_an_index_kept_below_the_length_of_a_shared_array_does_not_limit_the_block(
    tmp_path, code, threads
):
    (tmp_path / "k.cu").write_text(
        "__global__ void k(float *o, int n) {\n  __shared__ float mine[64];\n"
        f"  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  {code}\n"
        "  if (i < n) o[i] = mine[0];\n}\n"
    )
    assert f"block: [{threads}]" in draft_spec(tmp_path / "k.cu")


@pytest.mark.parametrize(
    ("pointer", "element"),
    [
        ("global const float *in = x + (size_t)row * hidden;", "in[i]"),
        ("", "x[(size_t)row * hidden + i]"),
    ],
)
def test_a_block_for_each_row_whatever_type_its_offset_is_cast_to(tmp_path, pointer, element):
    (tmp_path / "k.cl").write_text(
        "kernel void k(global const float *x, global float *y, int hidden, float eps) {\n"
        f"  const int row = get_group_id(0); {pointer}\n"
        "  for (int i = get_local_id(0); i < hidden; i += get_local_size(0))\n"
        f"    y[(size_t)row * hidden + i] = {element} + eps;\n}}\n"
    )
    text = draft_spec(tmp_path / "k.cl")
    assert "grid: [rows]" in text
    assert text.count("shape: [rows, hidden]") == 2
    assert "{name: eps, kind: scalar, dtype: float32, value: 1.0e-05}" in text


@pytest.mark.parametrize(
    ("guard", "below"),
    [
        ("if (i < 1 || j < 1 || i >= nx - 1 || j >= ny - 1) return;", "j + 1"),
        ("if (i >= nx || j >= ny) return; int d = j < ny - 1 ? j + 1 : j;", "d"),
    ],
)
def test_a_stencil_indexed_by_a_macro_has_rows_as_long_as_the_macro_says(tmp_path, guard, below):
    (tmp_path / "k.cu").write_text(
        "#define AT(j, i) ((j)*nx+(i))\n"
        "__global__ void k(const float *u, const float *f, float *w, int nx, int ny) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"  int j = blockIdx.y * blockDim.y + threadIdx.y;\n  {guard}\n"
        f"  w[AT(j, i)] = f[AT(j, i)] + u[AT({below}, i)];\n}}\n"
    )
    assert draft_spec(tmp_path / "k.cu").count("shape: [ny, nx]") == 3


@pytest.mark.parametrize("below", ["i - nx", "i - 1"])
def test_an_index_in_a_variable_says_how_long_rows_are(tmp_path, below):
    (tmp_path / "k.cl").write_text(
        "kernel void k(global float *w, global const float *u, float a, int nx, int ny) {\n"
        "  int x = get_global_id(0), y = get_global_id(1), row = y * nx;\n"
        "  if (x >= nx || y >= ny) return;\n"
        f"  int i = row + x; w[i] = y > 0 && x > 0 ? a * u[{below}] : u[i];\n}}\n"
    )
    assert draft_spec(tmp_path / "k.cl").count("shape: [ny, nx]") == 2


def test_the_extents_of_a_permuted_array_stand_in_the_order_of_its_index(tmp_path):
    (tmp_path / "k.cl").write_text(
        "kernel void k(global float* y, global const float* x, int n0, int n1, int n2, int n3) {\n"
        "  int i2 = get_global_id(0), i0 = get_global_id(1), z = get_global_id(2);\n"
        "  int i1 = z % n1, i3 = z / n1;\n"
        "  if (i2 < n2 && i0 < n0 && i3 < n3)\n"
        "    y[((i3 * n1 + i1) * n0 + i0) * n2 + i2] = x[((i0 * n1 + i1) * n2 + i2) * n3 + i3];\n"
        "}\n"
    )
    drafted = draft_spec(tmp_path / "k.cl")
    assert "name: y, kind: out, dtype: float32, shape: [n3, n1, n0, n2]" in drafted
    assert "name: x, kind: in, dtype: float32, shape: [n0, n1, n2, n3]" in drafted


@pytest.mark.parametrize("width", ["64", "WIDTH", "get_local_size(0)"])
def test_a_block_size_in_the_value_of_an_index_is_no_extent(tmp_path, width):
    (tmp_path / "k.cl").write_text(
        "#define WIDTH 64\n"
        "kernel void k(global float *w, global const float *u, int n) {\n"
        f"  int i = get_group_id(0) * {width} + get_local_id(0);\n"
        "  if (i < n - 1) w[i] = u[i + 1];\n}\n"
    )
    assert draft_spec(tmp_path / "k.cl").count("shape: [n]") == 2


def test_a_macro_that_calls_itself_is_expanded_a_few_times(tmp_path):
    (tmp_path / "k.cu").write_text(
        "#define AT(j) AT(AT((j)*n)+AT((j)*n))\n"
        "__global__ void k(float *w, int n, int m) { w[AT(threadIdx.x)] = 1; }\n"
    )
    assert "shape: [m, n]" in draft_spec(tmp_path / "k.cu")


def _spmv(given):
    return (
        "__kernel void spmv(__global const int *starts, __global const int *cols,\n"
        f"    __global const float *a, __global const float *x, __global float *y, {given}) {{\n"
        "  int row = get_global_id(0); if (row >= num_rows) return;\n"
        "  float sum = 0;\n"
        "  for (int k = starts[row]; k < starts[row + 1]; k++) sum += a[k] * x[cols[k]];\n"
        "  y[row] = sum;\n}\n"
    )


@pytest.mark.parametrize("more", ["", ", int nnz"])
def test_integers_that_the_code_does_not_use_make_no_size_smaller(tmp_path, more):
    (tmp_path / "k.cl").write_text(_spmv(f"int num_rows{more}"))
    assert "    - {num_rows: 65536, nnz: 524288}\n" in draft_spec(tmp_path / "k.cl")


def test_column_indices_stay_below_columns_that_nothing_else_uses(tmp_path):
    (tmp_path / "k.cl").write_text(_spmv("int num_rows, int num_cols"))
    text = draft_spec(tmp_path / "k.cl")
    assert 'values: {integers: [0, "num_cols - 1"]}' in text
    assert "{name: x, kind: in, dtype: float32, shape: [num_cols]}" in text
    assert "value: num_cols}    # guess: a size, which the code does not use (low)" in text
    assert "value: num_rows}    # guess: a size (low)" in text


@pytest.mark.parametrize("guard", ["v < bins", "v >= 0 && v < bins", "0 <= v && v < bins"])
@pytest.mark.parametrize(
    "update",
    [
        "counts[v] += 1",
        "atomic_inc(&counts[v])",
        "atomic_inc(counts + v)",
        "atomic_add(counts + v, 1)",
    ],
)
def test_what_a_histogram_counts_stays_below_its_bins(tmp_path, guard, update):
    (tmp_path / "k.cl").write_text(
        "kernel void k(global const int *x, global int *counts, const int n, const int bins) {\n"
        "  int i = get_global_id(0);\n"
        f"  if (i < n) {{ int v = x[i]; if ({guard}) {update}; }}\n}}\n"
    )
    text = draft_spec(tmp_path / "k.cl")
    assert (
        'name: x, kind: in, dtype: int32, shape: [n], values: {integers: [0, "bins - 1"]}' in text
    )
    assert "name: counts, kind: inout, dtype: int32, shape: [bins]}" in text
