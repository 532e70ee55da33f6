"""Where the host launches a kernel, and with what: in functions, through macros and variables."""

import time

import pytest

from tuner.csource.accesses import Launched, accesses
from tuner.csource.arithmetic import Polynomial
from tuner.csource.host_facts import allocated, asserted_divisions, float_constant
from tuner.csource.host_launches import host_launches
from tuner.csource.host_program import HostProgram
from tuner.csource.launch_sites import launch_sites

HEADER = """\
#define THREADS 128
#define CEIL_DIV(x, y) (((x) + (y) - 1) / (y))
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
template <class T> struct Pack { static constexpr int size = 16 / sizeof(T); };
using pack = Pack<half>;
constexpr int TX = 32, TY = 4;
static const int SECOND = max(1, 2), THIRD{3};
"""


def sites(body, kernel="k", **files):
    return list(host_launches(kernel, HostProgram({"k.cu": body, "common.h": HEADER, **files})))


@pytest.mark.parametrize(
    ("before", "launch", "grid", "block", "shared"),
    [
        ("int n = f();", "k<<<ceil_div(n, 256), 256>>>(x, n)", ["ceil_div(n, 256)"], ["256"], None),
        ("", "k<<<CEIL_DIV(n, THREADS), THREADS>>>(x, n)", ["ceil_div(n, 128)"], ["128"], None),
        (
            "dim3 grid(w / 32, (h + 7) / 8), block(32, 8);",
            "k<<<grid, block, 4 * sizeof(float), stream>>>(x)",
            ["w // 32", "ceil_div(h, 8)"],
            ["32", "8"],
            "16",
        ),
        (
            "dim3 grid; grid.x = n; grid.y = 2; const int threads = std::min(d, 1024);",
            "k<<<grid, threads>>>(x)",
            ["n", "2"],
            ["min(d, 1024)"],
            None,
        ),
        ("int d = in.size(-1) / 2;", "k<<<d, 1 << 5>>>(x)", ["d"], ["32"], None),
        (
            "int t = big ? 256 : 512;",
            "k<<<(n - 1) / t + 1, t>>>(x)",
            ["ceil_div(n, 256)"],
            ["256"],
            None,
        ),
        ("", "k<<<n / pack::size, dim3(THREADS)>>>(x)", ["n // 8"], ["128"], None),
        ("auto run = &k;", "run<<<n, 64>>>(x)", ["n"], ["64"], None),
        (
            "void* args[] = {&x, &n};",
            "cudaLaunchKernel((void*)k, n, 64, args, 8, s)",
            ["n"],
            ["64"],
            "8",
        ),
        ("", "k<<<dim3(n, THIRD), dim3(TX, TY)>>>(x)", ["n", "3"], ["32", "4"], None),
        ("int a = 16, b = 2;", "k<<<n, dim3(a, b)>>>(x)", ["n"], ["16", "2"], None),
        ("dim3 block(128); block.y = 2;", "k<<<n, block>>>(x)", ["n"], ["128", "2"], None),
        *(
            ("", f"k<<<{ceiling}, 64>>>(x)", ["ceil_div(n, 4)"], ["64"], None)
            for ceiling in (
                "(unsigned)std::ceil(n / (float)TY)",
                "(int)ceilf(float(n) / TY)",
                "ceil((double)n / TY)",
                "static_cast<int>(ceil((1.0 * n / 4.0f)))",
            )
        ),
        ("", "k<<<ceil((float)(n / TY)), 64>>>(x)", ["n // 4"], ["64"], None),
        (
            "cudaLaunchConfig_t c; c.gridDim = n; c.blockDim = 96;",
            "cudaLaunchKernelEx(&c, k, x, n)",
            ["n"],
            ["96"],
            None,
        ),
    ],
)
def test_a_launch_is_read_with_the_values_of_the_host(before, launch, grid, block, shared):
    (site,) = sites(f"void run(float* x, int n, int w, int h) {{ {before}\n  {launch};\n}}")
    assert list(map(str, site.scope.axes(site.grid))) == grid
    assert list(map(str, site.scope.axes(site.block))) == block
    assert (str(site.scope.value(site.shared)) if site.shared else None) == shared
    assert (site.file, site.line) == ("k.cu", 2)
    assert site.arguments[0] == "x"


@pytest.mark.parametrize("own", ["#define TY 4", "constexpr int TX = 32, TY = 4;"])
def test_the_launching_file_s_own_definitions_count(own):
    launch = f"{own}\nvoid run(float* x) {{ k<<<1, dim3(WIDTH, TY)>>>(x); }}"
    neighbour = "#define TY 8\n#define WIDTH 64"
    (site,) = sites("__global__ void k(float*);", **{"a.h": neighbour, "host.cu": launch})
    assert list(map(str, site.scope.axes(site.block))) == ["64", "4"]


def test_a_launch_in_a_macro_is_read_where_the_macro_is_called():
    macro = (
        "#define LAUNCH(ACT, FIRST)                 \\\n"
        "  int d = in.size(-1);                     \\\n"
        "  dim3 block(std::min(d, 1024));           \\\n"
        "  DISPATCH(in.type(), [&] {                \\\n"
        "    ns::k<scalar_t, ACT<scalar_t>, FIRST>  \\\n"
        "        <<<tokens, block>>>(out, d); });\n"
    )
    first, second = sites(
        f"{macro}void a() {{ LAUNCH(silu, true); }}\nvoid b() {{ LAUNCH(relu, false); }}"
    )
    assert first.template == ("scalar_t", "silu<scalar_t>", "true")
    assert second.template == ("scalar_t", "relu<scalar_t>", "false")
    assert [str(axis) for axis in first.scope.axes(first.block)] == ["min(d, 1024)"]


def test_a_case_of_a_switch_fixes_what_the_switch_asks_for():
    body = (
        "void run(int threads) { switch (threads) {\n case 64: k<64><<<1, threads>>>(x); break;\n"
    )
    one, two = sites(body + "case 32: k<32><<<1, threads>>>(x); } }")
    assert [str(site.scope.value(site.block)) for site in (one, two)] == ["64", "32"]


@pytest.mark.parametrize(("written", "blocks"), [("010", "8"), ("0x10u", "16"), ("010.0", "10")])
def test_whole_numbers_are_read_as_c_reads_them(written, blocks):
    [site] = sites(f"void run() {{ k<<<{written}, 64>>>(x); }}")
    assert [str(axis) for axis in site.scope.axes(site.grid)] == [blocks]


@pytest.mark.parametrize("size", ["1e400", "3e9", "2147483648", "dim3(32, 1e400)", "many"])
def test_more_than_a_launch_takes_is_no_size(size):
    [site] = sites(f"void run() {{ long many = 1 << 31; k<<<1e3, {size}>>>(x); }}")
    assert site.scope.axes(site.block) is None
    assert [str(axis) for axis in site.scope.axes(site.grid)] == ["1000"]
    [most] = sites("void run() { k<<<2147483647, 1>>>(x); }")
    assert [str(axis) for axis in most.scope.axes(most.grid)] == ["2147483647"]


def test_names_that_double_what_they_stand_for_are_evaluated_once_each():
    doubled = " ".join(f"int q{i} = q{i - 1} + q{i - 1};" for i in range(1, 17))
    [site] = sites(f"void run(int n) {{ int q0 = n; {doubled} k<<<q16, 256>>>(x); }}")
    assert [str(axis) for axis in site.scope.axes(site.grid)] == ["65536 * n"]


LOCALS = " ".join(f"int q{i} = q{i - 1} + q{i - 1};" for i in range(1, 61))
MACROS = "".join(f"#define A_{i} A_{i - 1} + A_{i - 1}\n" for i in range(1, 61))
CYCLE = "".join(f"#define A_{i} A_{(i + 1) % 200} + A_{(i + 1) % 200}\n" for i in range(200))
HELPERS = "int h0(int a) { return a; }\n" + "".join(
    f"int h{i}(int a) {{ return h{i - 1}(a) + h{i - 1}(a); }}\n" for i in range(1, 21)
)
SQUARES = " ".join(f"int q{i} = q{i - 1} * q{i - 1};" for i in range(1, 21))
QUOTIENTS = " ".join(f"int q{i} = q{i - 1} / 3 + q{i - 1} % 7;" for i in range(1, 21))
PRODUCT = " * ".join(f"(a{i} + b{i})" for i in range(60))


@pytest.mark.parametrize(
    ("before", "body", "grid"),
    [
        ("", f"int q0 = n; {LOCALS}", "q60"),
        (f"#define A_0 1\n{MACROS}", "", "A_60"),
        (CYCLE, "", "A_0"),
        (HELPERS, "", "h20(n)"),
        ("", f"int q0 = 3; {SQUARES}", "q20"),
        ("", f"int q0 = n + m; {SQUARES}", "q20"),
        ("", f"int q0 = n; {QUOTIENTS}", "q20"),
        ("", "", PRODUCT),
        ("", "", " + ".join(["1"] * 700)),
        ("", "int many = 1e400;", "many"),
        ("", "", "9" * 400 + " / 3"),
    ],
)
def test_a_value_beyond_the_bounds_is_given_up_whole_and_soon(before, body, grid):
    [site] = sites(f"{before}void run(int n, int m) {{ {body} k<<<{grid}, 256>>>(x); }}")
    start = time.thread_time()
    assert site.scope.axes(site.grid) is None
    assert site.scope.number(site.grid) is None
    assert time.thread_time() - start < 2


def test_a_name_set_to_more_of_itself_is_a_size_there():
    [site] = sites("void run() { int q = f(); q = (q + 63) / 64; k<<<q, 256>>>(x); }")
    assert str(site.scope.value(site.grid)) == "ceil_div(q, 64)"
    assert site.scope.number(site.grid) is None


CALLED = """\
void run(float* out, int n, float eps = 1e-6f) {
  assert(n % 4 == 0);
  k<<<n / 4, 64>>>(out, n, eps);
}
int main() {
  const int B = 8, T = 1024;
  float* d_out;
  cudaMalloc((void**)&d_out, B * T * sizeof(float));
  run(d_out, B * T);
}
"""


def test_callers_tell_sizes_allocations_and_constants():
    (site,) = sites(CALLED)
    assert site.scope.number("n") == 8192
    assert allocated(site.scope, "out", 4).constant == 8192
    assert float_constant(site.scope, "eps") == "1e-06"
    assert [(str(a), str(b)) for a, b in asserted_divisions(site.scope)] == [("n", "4")]


def extents(body, **arrays):
    launched = Launched(
        grid=(Polynomial.atom("rows"), Polynomial.number(2)),
        block=(Polynomial.number(64),),
        known={"rows": Polynomial.atom("rows"), "cols": Polynomial.atom("cols")},
        types={"T": "float16"},
        elements={"index[]": Polynomial.atom("cols")},
    )
    program = HostProgram({"k.cu": "__device__ void put(float* to, int at) { to[at] = 1; }"})
    found = accesses(program, body, arrays or {"x": 4, "y": 4}, launched)
    return [(one.array, one.kind, str(one.extent)) for one in found]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y[blockIdx.x] = x[threadIdx.x];", [("x", "read", "64"), ("y", "write", "rows")]),
        (
            "for (int c = threadIdx.x; c < cols; c += 64)\n  y[blockIdx.x * cols + c] += 1;",
            [("y", "update", "cols * rows")],
        ),
        (
            "int i = blockIdx.x * 64 + threadIdx.x; if (i >= cols || j >= 2) return; y[i] = 0;",
            [("y", "write", "cols")],
        ),
        (
            "float* row = y + blockIdx.x * cols; row[0] = 1;",
            [("y", "write", "cols * rows - cols + 1")],
        ),
        ("reinterpret_cast<float4*>(y)[blockIdx.x] = v;", [("y", "write", "4 * rows")]),
        ("y += blockIdx.y * 8; *y = 1;", [("y", "write", "9")]),
        ("atomicAdd(&y[blockIdx.x], 1.f);", [("y", "update", "rows")]),
        ("put(y, blockIdx.x + 1);", [("y", "write", "rows + 1")]),
        ("int i = index[0]; y[i] = 1;", [("y", "write", "cols")]),
        ("int i = blockIdx.x; y[i < 7 ? 0 : i - 7] = 1;", [("y", "write", "1")]),
        ("for (int i = 0; i < 32; i += 8) y[i] = 1;", [("y", "write", "25")]),
        ("y[unknown()] = 1;", [("y", "write", "None")]),
    ],
)
def test_accesses_with_how_far_they_reach(body, expected):
    assert extents(body) == expected


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("k<<<1, 2>>>(x)", "k"),
        ("::a::b::k<int><<<1, 2>>>(x)", "::a::b::k"),
        ("case 1:k<<<1, 2>>>(x)", "k"),
        ("a::" * 20_000 + "k<<<1, 2>>>(x)", "a::" * 20_000 + "k"),
    ],
)
def test_a_launch_names_its_kernel_with_the_namespaces(code, named):
    (site,) = launch_sites(code, "k")
    assert code[slice(*site.name)] == named
    assert (site.configuration, site.arguments) == (("1", "2"), ("x",))
    assert not list(launch_sites(code, "other"))  # in linear time


def test_what_many_launches_of_one_function_cost_grows_with_their_number():
    def seconds(count):
        body = "".join(f"  if (n == {i}) {{ k<<<n, {i}>>>(x, n); }}\n" for i in range(count))
        program = HostProgram({"k.cu": f"void run(float* x, int n) {{\n{body}}}\n"})
        began = time.thread_time()
        assert len(list(host_launches("k", program))) == count
        return time.thread_time() - began

    assert seconds(1600) < 10 * seconds(400) + 0.1
