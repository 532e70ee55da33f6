import pytest

from tuner.csource.device_code import device_code

APPLICATION = """\
#include <vector>
#include "common.h"
namespace app {
enum class Mode { plain, fast };
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
static std::vector<float> cache;
__constant__ float table[4];
struct Pair {
  float a, b;
  Pair(float x) : a(x), b(log_of(x)) {}
  __device__ float sum() const { return a + b; }
};
template <typename T, Mode MODE>
__global__ void scale(T* out, const T* in, int n) {
  int i = blockIdx.x * TILE + threadIdx.x;
  if (i < ceil_div(n, 1)) out[i] = in[i] * table[0] + helper(MODE == Mode::fast);
}
__global__ void unrelated(cudaTextureObject_t t, texture_reader r) { r.read(t); }
}  // namespace app
#define LAUNCH(T) app::scale<T, app::Mode::fast><<<grid, TILE>>>(out, in, n)
extern "C" void run(float* out, const float* in, int n) {
  int grid = app::ceil_div(n, TILE);
#if LARGE
  LAUNCH(double);
#endif
  LAUNCH(float);
}
int main() { run(nullptr, nullptr, 0); }
"""
COMMON = """\
#pragma once
#define TILE 256
#define INLINE static __device__ __forceinline__
INLINE float helper(bool fast) { return fast ? 1.f : 0.f; }
extern "C" void* host_only(const char* name);
"""


@pytest.fixture(scope="module")
def code():
    headers = (("common.h", COMMON), ("unused.h", "int x() { return 1; }"))
    return device_code("k.cu", APPLICATION, headers, ("app::scale<{T}, app::Mode::fast>",))


@pytest.mark.parametrize(
    "kept",
    [
        "enum class Mode { plain, fast };",
        "constexpr int ceil_div(",
        "__constant__ float table[4];",
        "__global__ void scale(",
        "#define LAUNCH",
        "#if LARGE",
    ],
)
def test_what_the_kernel_reaches_stays(code, kept):
    assert kept in code.source


@pytest.mark.parametrize(
    "gone", ["vector<float>", "struct Pair", "unrelated", "run(float*", "main", "grid = "]
)
def test_host_code_and_what_the_kernel_does_not_reach_goes(code, gone):
    assert gone not in code.source


def test_every_place_stays_where_it_was(code):
    assert code.cut
    assert len(code.source) == len(APPLICATION)
    assert code.source.count("\n") == APPLICATION.count("\n")
    assert code.source.index("__global__ void scale") == APPLICATION.index("__global__ void scale")


def test_headers_are_cut_too_and_those_that_nothing_includes_left_out(code):
    ((name, text),) = code.headers
    assert name == "common.h"
    assert "INLINE float helper" in text
    assert "host_only" not in text


def test_a_reached_class_loses_the_methods_of_the_host():
    source = APPLICATION.replace("table[0] +", "Pair(2.f).sum() +")
    cut = device_code("k.cu", source, (("common.h", COMMON),), ("app::scale",)).source
    assert "__device__ float sum() const" in cut
    assert "log_of" not in cut


def test_a_macro_that_makes_names_of_parts_may_call_any_device_function():
    source = (
        "#define CALL(x) part_##x()\n__device__ int part_a() { return 1; }\n"
        "__global__ void k(int* x) { x[0] = CALL(a); }\nint main() {}\n"
    )
    assert "part_a() { return 1; }" in device_code("k.cu", source, (), ("k",)).source


@pytest.mark.parametrize(
    "source",
    [
        "__global__ void k(float* x) { x[0] = 1; }\n__device__ int unused() { return 1; }\n",
        "#define D __device__\nD float f() { return 1; }\n__global__ void k() {}\n",
        "int main() {" + "(" * 300,
    ],
)
def test_a_file_without_host_code_or_beyond_the_reader_is_left_as_it_is(source):
    code = device_code("k.cu", source, (), ("k",))
    assert (code.source, code.cut) == (source, False)
