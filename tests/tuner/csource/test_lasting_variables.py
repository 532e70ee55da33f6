"""Variables of OpenCL C that outlast a launch."""

import pytest

from tuner.csource.lasting_variables import lasting_variables
from tuner.errors import SpecError

KERNEL = "kernel void k(global int *x) { int y[2]; for (int i = 0; i < 3; i++) { y[0] += i; } }"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (KERNEL, ()),
        (f"global int a[4], b; {KERNEL}", ("a",)),
        (f"int a; {KERNEL}", ("a",)),
        (f"global float a[2] = {{1.0f, 2.0f}}; {KERNEL}", ("a",)),
        (f"global int a __attribute__((aligned(16))); {KERNEL}", ("a",)),
        (f"#define KEPT global\nKEPT float a[(1 << 4)];\n{KERNEL}", ("a",)),
        (f"typedef struct {{ int n; }} S; S a; {KERNEL}", ("a",)),
        (f"struct S {{ int n; }} a; struct T {{ int n; }}; {KERNEL}", ("a",)),
        ("kernel void k(global int *x) { static global int a[7]; x[0] = a[1]++; }", ("a",)),
        (f"constant int a[3] = {{1, 2, 3}}; static __constant int b = 3; {KERNEL}", ()),
        (f"static float f(float x) {{ return x; }} inline float f(float); {KERNEL}", ()),
        (f"enum {{ A, B }}; enum E {{ C }}; struct S; typedef int T; {KERNEL}", ()),
        (f"global float (a)[4]; {KERNEL}", ("a",)),
        (
            f"enum {{ A }} a; float f(float x) {{ return x; }} float f(float), (b)[4]; {KERNEL}",
            ("a", "float"),
        ),
        (
            f"__attribute__((packed)) struct {{ int n; }} a; typeof(1) global (b); {KERNEL}",
            ("a", "b"),
        ),
        (
            f"constant int *a; constant int b = 1, *global c; constant int *constant d; {KERNEL}",
            ("a", "b"),
        ),
        ("kernel void k(global int *x) { static int (a)[7]; x[0] = a[1]++; }", ("a",)),
        (
            "void f(int y[static 4]) { static constant int b[2 * 3] = {1}; } void f(int[]); )",
            (),
        ),
        ("kernel __attribute__((reqd_work_group_size(64, 1, 1))) void k() { local int a[4]; }", ()),
    ],
)
def test_variables_that_outlast_a_launch_are_found(source, names) -> None:
    assert lasting_variables(source) == names


OPEN_LOOP = """
#if UNROLL > 1
for (int i = 0; i < UNROLL; i++) {
#else
{
#endif
    x[0] += 1; int y = 2;
#ifdef LATE
}
#endif
#ifndef LATE
}
#endif
"""


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("#if 0\n{\n#endif\nglobal int a;\n#if 0\n}\n#endif", ("a",)),
        ("#if 0\n{\n#endif\n#if 1\n#else\n{\n#endif\nglobal int a;", ("a",)),
        ("#define SOME {\n#define ONE SOME\n#if 0\nONE\n#endif\nglobal int a;", ("a",)),
        ("#define SOME(a, b) a\n#if 0\nSOME({, })\n#endif\nglobal int a;", ("a",)),
        ("#define X 0\n#if X\n{\n#endif\nglobal int a;\n#define X 1\n#if X\n#endif", ("a",)),
        (f"kernel void k(global int *x) {{ {OPEN_LOOP} int z = 3; }}", ()),
        ("#if A\nkernel void k() {\n#else\nkernel void k(int n) {\n#endif\nint z = 3; }", ()),
        ("".join(f"#if A{n}\n{{\n#endif\n" for n in range(7)), ("?",)),
        ("{", ("?",)),
    ],
)
def test_braces_that_do_not_match_within_a_branch_hide_nothing(source, names) -> None:
    assert lasting_variables(f"{source}\n{KERNEL}") == names


def test_words_joined_to_a_brace_are_refused() -> None:
    with pytest.raises(SpecError, match="joins words"):
        lasting_variables(f"#define OPEN(a, b) a##b\nOPEN(<, %)\nglobal int a;\n{KERNEL}")
