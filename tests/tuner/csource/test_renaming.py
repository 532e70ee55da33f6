"""Functions that two sources have get new names; everything else keeps its own."""

from tuner.csource.renaming import with_renamed_functions

SOURCE = """\
// load and store
template <typename T>
__device__ T load(const T* from) { return *from; }
namespace own { __device__ float twice(float x) { return 2 * x; } }
__device__ half2 operator+(half2 a, half2 b) { return a; }
__device__ float __ldg(const float* x) { return *x; }
struct Tile { float data; __device__ float sum() { return data; } };
__device__ float sum(Tile& t) { return t.sum() + o.load(x) + cub::load(x); }
#define FIRST(x) load(x)
extern "C" __global__ void k(float* out) {
  float load_tuned = own::twice(load(out)) + sum(tile) + ::load(out);
}
"""


def test_functions_of_both_sources_are_renamed_where_they_are_meant():
    words = {"load", "twice", "sum", "k", "operator", "__ldg", "Tile", "data"}
    made = with_renamed_functions(SOURCE, words)
    lines = zip(SOURCE.split("\n"), made.split("\n"), strict=True)
    changed = [new for old, new in lines if old != new]
    assert changed == [
        "__device__ T load_tuned_(const T* from) { return *from; }",
        "namespace own { __device__ float twice_tuned(float x) { return 2 * x; } }",
        "struct Tile { float data; __device__ float sum_tuned() { return data; } };",
        "__device__ float sum_tuned(Tile& t) { return t.sum_tuned() + o.load(x) + cub::load(x); }",
        "#define FIRST(x) load_tuned_(x)",
        "  float load_tuned = own::twice_tuned(load_tuned_(out)) + sum_tuned(tile) + ::load(out);",
    ]


def test_a_source_with_names_of_its_own_stays():
    assert with_renamed_functions(SOURCE, {"k", "out"}) is SOURCE
