"""The YAML dialect: what is read, what is refused, and the places of problems."""

import math

import pytest

from tuner.errors import SpecError
from tuner.experiment.problems import Mark, SpecProblems
from tuner.experiment.yaml_document import parse


def test_scalars_are_those_of_yaml_1_2():
    text = """\
numbers: [1e-3, .5, -2, 0x1F, 0o17, 1., -0.0, .inf, 12:30, 1_000_000, 1__0, 2024-01-01]
names: [n, y, 'on', "010", N, "1e-3"]
truths: [true, FALSE]
nothing: [null, ~, ]
"""
    data = parse(text, "a.yaml").data
    assert data["numbers"] == [
        1e-3, 0.5, -2, 31, 15, 1.0, 0.0, math.inf, "12:30", 1_000_000, "1__0", "2024-01-01",
    ]  # fmt: skip
    assert data["names"] == ["n", "y", "on", "010", "N", "1e-3"]
    assert data["truths"] == [True, False]
    assert data["nothing"] == [None, None]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("a: 1\nb: [2, off]", "2:8", "unquoted 'off'"),
        ("yes: 1", "1:1", "unquoted 'yes'"),
        ("a: 010", "1:4", "leading zero"),
        ("a: 0_1", "1:4", "leading zero"),
        ("a: -08.5", "1:4", "leading zero"),
        ("a: 1\nb: 2\na: 3", "3:1", "duplicate key 'a', first on line 1"),
        ("<<: {a: 1}", "1:1", "merge keys"),
        ("a: !!python/object:os.system x", "1:4", "tags"),
        ("1: a", "1:1", "a key must be a name, not 1"),
        ("? [a]\n: b", "1:3", "a key must be a name"),
        ("a: [1", "1:6", "not YAML"),
        ("a: b: c", "1:5", "not YAML"),
        ("a:\n\tb: 1", "2:1", "not YAML"),
        ("--- a\n--- b", "2:1", "only one document"),
        ("a: *b", "1:4", "unknown anchor"),
        ("a: &a [*a]", "1:8", "unknown anchor"),
        ("a: 1e999", "1:4", "beyond the range"),
        ("a: " + "1" * 5000, "1:4", "a number of 5000 digits"),
        ('a: "\\ud800"', "1:4", "surrogate"),
        ("a: 1\nb: \x07", "2:4", "a character that YAML does not allow"),
        ("[" * 10_000, "1:26", "nested deeper"),
    ],
)
def test_refused_with_its_place(text, place, said):
    try:
        problems = parse(text, "a.yaml").problems
    except SpecProblems as error:
        problems = error.problems
    assert len(problems) == 1
    shown = str(problems[0])
    assert shown.startswith(f"a.yaml:{place}: ")
    assert said in shown
    assert shown.splitlines()[2].index("^") - 8 == min(int(place.split(":")[1]), 76) - 1


def test_aliases_are_read_but_cannot_grow_without_bound():
    assert parse("a: &x [1, 2]\nb: [*x, *x]", "a.yaml").data["b"] == [[1, 2], [1, 2]]
    lines = ["a: &a [" + ",".join("x" * 9) + "]"]
    lines += [
        f"{b}: &{b} [{','.join(['*' + a] * 9)}]"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    with pytest.raises(SpecError, match="more than"):
        parse("\n".join(lines), "a.yaml")
    lines = ["k0: &k0 [x]"] + [f"k{i}: &k{i} [*k{i - 1}]" for i in range(1, 40)]
    with pytest.raises(SpecError, match="deeper"):
        parse("\n".join(lines), "a.yaml")


def test_a_mapping_of_too_many_keys_is_refused_before_it_was_read():
    with pytest.raises(SpecError, match=r"a.yaml:1002:3: more than 1000 keys in one mapping"):
        parse("metrics:\n" + "".join(f"  m{i}: n\n" for i in range(1001)), "a.yaml")


def test_places_of_keys_and_values():
    document = parse("a:\n  - {b: 1, c: [2, 3]}\n", "a.yaml")
    assert document.values[("a", 0, "c", 1)] == Mark(2, 19)
    assert document.keys[("a", 0, "c")] == Mark(2, 12)
    assert document.problem(("a", 0, "zz"), "x").mark == Mark(2, 5)
    assert document.problem(("a", 0, "c"), "x", at_key=True).mark == Mark(2, 12)


def test_a_long_line_is_cut_around_the_place():
    (problem,) = parse("a: [" + "1, " * 200 + "on]", "a.yaml").problems
    shown = str(problem).splitlines()
    assert len(shown[1]) < 120
    assert shown[1][shown[2].index("^") :].startswith("on]")
