"""Places kept, bounds held, and nothing refused for not being understood."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.csource.kernels import kernels
from tuner.csource.tree import (
    MAX_CHARACTERS,
    is_truncated,
    object_macros,
    parse,
    without_comments,
    without_directives,
)


def test_comments_and_literals_are_blanked_in_place() -> None:
    text = "a // \"x\"\n/* b\n*/ c \"//\" d '\"' e // f \\\n g\nh 1'000 + '2'"
    assert without_comments(text) == (
        "a       \n    \n   c \"  \" d ' ' e       \n  \nh 1'000 + ' '"
    )
    assert without_directives("x\n#define A \\\n 1\ny") == "x\n           \n  \ny"


@given(st.text(alphabet="ab/*\"'\\\n#{}() é"))
@settings(deadline=None)
def test_blanking_keeps_every_place(text: str) -> None:
    for hidden in (without_comments(text), without_directives(text)):
        assert len(hidden) == len(text)
        assert [i for i, c in enumerate(hidden) if c == "\n"] == [
            i for i, c in enumerate(text) if c == "\n"
        ]
    is_truncated(text)
    for language in ("cuda", "opencl"):
        for node in parse(text, language).find("comment", "ERROR", "compound_statement"):
            assert 0 <= node.start_byte <= node.end_byte <= len(text)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("void f() {}", False),
        ("void f() {", True),
        ("void f() { // }", True),
        ('void f() { g("{"); }', False),
        ("#if A\nif (a) {\n#else\nif (b) {\n#endif\n}", False),
        ("#if A\nf(\n", True),
        ("#if A\n#endif\nvoid f() {\n#if B\n}\n#else\n}\n#endif", False),
        ("void f() {} /* open", True),
        ('char *s = "/*";', False),
        ("/* a */ void f() {} // /*", False),
        ("", False),
    ],
)
def test_a_source_that_ends_too_early_is_told(text: str, cut: bool) -> None:
    assert is_truncated(text) is cut


def test_macros_keep_every_meaning() -> None:
    text = "#define A 1 // one\n#if X\n#define A 2\n#endif\n#define F(x) x\n#define B \\\n a b\n"
    assert object_macros(text) == {"A": {"1", "2"}, "B": {"a b"}}


def test_a_source_beyond_the_bounds_is_not_read() -> None:
    text = "#define A 1\n/*" + "'1" * (20 * MAX_CHARACTERS)
    began = time.process_time()
    assert parse(text, "cuda").root is None
    assert not is_truncated(text)
    assert object_macros(text) == {}
    assert time.process_time() - began < 0.1


HONEST_CUDA = """
#if __has_include(<cuda_fp16.h>)
#include <cuda_fp16.h>
#endif
#define BOUNDS __launch_bounds__(256, 2)
#define QUICK static __device__ __forceinline__
namespace a::b {
struct __align__(16) Pack { float v[4]; };
template <typename T, int N = 4> QUICK T twice(T x) { return x + x; }
template <typename T> __global__ void BOUNDS run(const T* __restrict__ in, T* out) {
  extern __shared__ __align__(16) unsigned char raw[];
  float é = 1'000.f; // naïve
  auto f = [&](int i) { return twice<T>(in[i]); };
  asm volatile("bar.sync %0;" :: "r"(1) : "memory");
  out[threadIdx.x] = reinterpret_cast<T*>(raw)[0] + f(0);
}
}
void host() { a::b::run<float><<<dim3(1), 2, 0>>>(nullptr, nullptr); }
"""

HONEST_OPENCL = """
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
__constant float table[4] = {1, 2, 3, 4};
typedef struct __attribute__((packed)) { half v; uchar4 w; } item;
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) __attribute__((vec_type_hint(float4)))
void run(__global const item *restrict in, global half *out, read_only image2d_t picture) {
  local float4 tile[64] __attribute__((aligned(16)));
  const float4 v = (float4)(1, 2, 3, 4) + convert_float4(in[0].w);
  vstore_half((private float)v.s0, get_global_id(0), out);
  barrier(CLK_LOCAL_MEM_FENCE);
}
"""


@pytest.mark.parametrize(("source", "language"), [(HONEST_CUDA, "cuda"), (HONEST_OPENCL, "opencl")])
def test_both_languages_are_understood_in_full(source: str, language: str) -> None:
    tree = parse(source, language)  # type: ignore[arg-type]
    assert tree.root is not None
    assert not tree.root.has_error
    (kernel,) = kernels(source, language)  # type: ignore[arg-type]
    assert kernel.text(kernel.body) == source[kernel.body[0] : kernel.body[1]]
    assert kernel.name == "run"


@pytest.mark.parametrize(
    "part",
    [
        *("(", "{", "a<", "*", "* const ", '"', "a?b:", "f<<<", "f(a<b, ", "(a)(b)*", "a b "),
        *("template<", "template<class T>", "__global__ void f(int a){", "#define A B\n", "/*"),
        *("__attribute__((", "__launch_bounds__(", "'", "é", "if(a){}else ", "int a,", "\n#"),
        "".join(f"#define A{number} inline\n" for number in range(9_000)),
    ],
)
def test_hostile_text_is_read_within_bounds(part: str) -> None:
    text = "__global__ void g(int a) {} " + part * (MAX_CHARACTERS // 4 // len(part))
    began = time.process_time()
    kernels(text, "cuda")
    kernels(text * 5, "cuda")
    assert time.process_time() - began < 10
