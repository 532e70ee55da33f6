import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.generation.source import blank, closing, code_only, cut_short, find_kernel


def test_comments_and_literals_are_blanked_in_place() -> None:
    text = 'a // "x"\n/* b\n*/ c "//" d \'"\' e // f \\\n g\nh'
    assert blank(text) == "a       \n    \n   c      d     e       \n  \nh"
    assert code_only("x\n#define A \\\n 1\ny") == "x\n           \n  \ny"


@given(st.text(alphabet="ab/*\"'\\\n#{}() "))
def test_blanking_keeps_every_place(text: str) -> None:
    for hidden in (blank(text), code_only(text)):
        assert len(hidden) == len(text)
        assert [i for i, c in enumerate(hidden) if c == "\n"] == [
            i for i, c in enumerate(text) if c == "\n"
        ]
    cut_short(text)
    find_kernel(text, "a")


@pytest.mark.parametrize(
    ("text", "end"), [("(a[1]{})", 7), ("((", None), ("(]", None), ("()", 1), ("(a))", 2)]
)
def test_brackets_are_matched(text: str, end: int | None) -> None:
    assert closing(text, 0) == end


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
    assert cut_short(text) is cut


def test_a_kernel_is_found_among_others() -> None:
    source = (
        "// kernel void k(int a) {}\n"
        "void k_helper(int k) { k(1); }\n"
        "#define MANY(x) x\n"
        "template <int N>\n__global__ __launch_bounds__(64)\nvoid ns_k(float* __restrict__ x[2],\n"
        "    int (&n)) { if (x) { } }\n"
        'extern "C" __global__ void k(const float* x, unsigned long long n) { x; }\n'
    )
    found = find_kernel(source, "k")
    assert found is not None
    assert found.parameter_names == ("x", "n")
    assert found.text(found.body) == " x; "
    assert found.text(found.head).startswith('extern "C" __global__')
    assert not found.is_template
    other = find_kernel(source, "ns::ns_k<4>")
    assert other is not None
    assert other.is_template
    assert other.parameter_names is None
    assert find_kernel(source, "k_helper") is None
    assert find_kernel(source, "x y") is None
