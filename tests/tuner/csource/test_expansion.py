"""Macros expanded as a preprocessor would, in every reading, and never without end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.csource.expansion import MAX_DEPTH, expanded, spliced
from tuner.errors import SpecError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#define G(a,b) a##b\nG(__as,m__)('x')", ["__asm__ ( 'x' )"]),
        (
            "#define C_(a,b) a##b\n#define C(a,b) C_(a,b)\n#define V 4\nC(vload,V) C_(v,V)",
            ["vload4 vV"],
        ),
        ("#define S(x) #x\n#define T(x) S(x)\n#define Q 1\nS(Q) T(Q)", ['"Q" "1"']),
        ('#define S(x) #x\nS("a\\n")', [r'"\"a\\n\""']),
        ("#define F G\n#define G(x) [x]\nF(F(1)) F", ["[ [ 1 ] ] G"]),
        ("#define E(...) __VA_ARGS__;\nE(1,(2,3))", ["1 , ( 2 , 3 ) ;"]),
        ("#define E(a,...) a:__VA_ARGS__\nE(1,2,3)", ["1 : 2 , 3"]),
        ("#define f e(f)\n#define e(x) x\nf", ["f"]),
        ("#define exp(x) F(exp(x))\n#define F(x) (x)\nexp(1)", ["( exp ( 1 ) )"]),
        ("#if A\n#define P 1\n#else\n#define P 2\n#endif\nP", ["2", "1"]),
        ("#define P 1\nP\n#define P 2\nP", ["1 2", "1 1"]),
        ("#define P \\\n  1 \\\n + 2\nP", ["1 + 2"]),
        ("#define F(x) x\nF\n(3) F(\n4)", ["3 4"]),
        ("#define F(x) x\nF(1", ["1"]),
    ],
)
def test_macros_expand(text: str, said: list[str]) -> None:
    assert [" ".join(reading) for reading in expanded(text)] == said


def test_lines_are_joined_as_a_compiler_joins_them() -> None:
    assert spliced("a\\\r\nb \\ \nc\rd %: e ??= <% \\\rf") == "ab c\nd # e # { f"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"#define A{n} A{n + 1} A{n + 1}\n" for n in range(60)) + "A0",
        "#define F(x) x\n" + "F(" * 2 * MAX_DEPTH + ")" * 2 * MAX_DEPTH,
        "".join(f"#define A {n}\n" for n in range(100)),
    ],
)
def test_what_grows_without_bound_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        expanded(text)


@given(st.text(alphabet='#definAB(),x \n"\\/*.1_VG', max_size=120))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        readings = expanded(text)
    except SpecError:
        return
    assert readings
