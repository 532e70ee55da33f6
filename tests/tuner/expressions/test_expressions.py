"""What expressions mean, what they refuse, and that every way to evaluate them agrees."""

import pickle
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import example, given
from pydantic import TypeAdapter, ValidationError

from tests.tuner.expressions.strategies import environments, expressions
from tuner.expressions import C_HELPERS, Expression, ExpressionError

parse = Expression.parse
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("2 ** 10", 1024),
        ("(-1) ** 1000001", -1),
        ("0 ** 0", 1),
        ("ceil_div(11008, 512)", 22),
        ("round_up(1000, 32)", 1024),
        ("log2(4096)", 12),
        ("log2(4097)", 12),
        ("min(3, 1, 2) + max(5)", 6),
        ("abs(-5)", 5),
        ("1 <= n <= 8", True),
        ("1 <= n < 4 < 3", False),
        ("n in (2, 4, 8)", True),
        ("n not in [2, 4]", False),
        ("n and 8", True),
        ("not n", False),
        ("n == 0 or 8 // n > 1", True),
        ("'a' if n > 3 else 'b'", "a"),
        ("MODE == 'vector'", True),
        ("MODE in ('scalar', 'vector')", True),
        ("FULL + 1", 2),
        ("9223372036854775807", INT_MAX),
        ("-9223372036854775808", INT_MIN),
        (" ( n\n + 1 ) ", 5),
    ],
)
def test_value(text, value):
    env = {"n": 4, "MODE": "vector", "FULL": True}
    result = parse(text).evaluate(env)
    assert result == value
    assert isinstance(result, bool) == isinstance(value, bool)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n +", "cannot read"),
        ("", "empty"),
        ("n / 2", "'//'"),
        ("n && 1", "'and'"),
        ("n = 1", "'=='"),
        ("n ? 1 : 2", "a if c else b"),
        ("1.5 * n", "fractions"),
        ("ceildiv(n, 2)", "did you mean 'ceil_div'"),
        ("ceil_div(n)", "takes 2"),
        ("device.warp", "warp_size"),
        ("n in 4", "list of values"),
        ("n.real", "outside the grammar"),
        ("__import__('os')", "unknown function"),
        ("[x for x in (1, 2)]", "outside the grammar"),
        ("lambda: 0", "outside the grammar"),
        ("(n := 3)", "outside the grammar"),
        ("n @ n", "outside the grammar"),
        ("9223372036854775808", "64 bits"),
        ("(" * 300 + "n" + ")" * 300, "cannot read"),
        ("lambda:" * 280 + "n", "outside the grammar|cannot read"),
        ("-" * 500 + "n", "nested"),
        ("n" * 3000, "at most"),
        ("n\0", "cannot read"),
        ("'" + "a" * 101 + "'", "at most 100"),
        (f"'{chr(7)}'", "printable"),
    ],
)
def test_refused_when_read(text, said):
    with pytest.raises(ExpressionError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 // n", "division by zero at n=0"),
        ("1 % n", "division by zero"),
        ("9223372036854775807 + 1 - 1", "overflow"),
        ("(9223372036854775807 - n) * 2 // 2", "overflow"),
        ("2 ** 63", "overflow"),
        ("2 ** (n - 1)", "negative exponent"),
        ("10 ** 1000000000", "overflow"),
        ("log2(n)", "below 1"),
        ("ceil_div(4, n)", "positive divisor"),
        ("abs(-9223372036854775808)", "overflow"),
        ("-9223372036854775808 // -1", "overflow"),
        ("m", "unknown name 'm'"),
        ("MODE + 1", "takes numbers"),
        ("MODE < 'b'", "no order"),
        ("MODE == 1", "between a name and a number"),
        ("True or MODE + 1", "takes numbers"),
        ("1 if n else 'a'", "both sides"),
        ("device.warp_size", "needs a device"),
        ("big", "overflow"),
    ],
)
def test_refused_at_a_point(text, said):
    with pytest.raises(ExpressionError, match=said):
        parse(text).evaluate({"n": 0, "MODE": "a", "big": 2**70})


def test_names_and_constants():
    expression = parse("min(VEC, d) <= device.warp_size and MODE == 'a'")
    assert expression.names == {"VEC", "d", "MODE"}
    assert expression.device_names == {"warp_size"}
    assert expression.name_literals() == {("MODE", "a")}
    assert parse("0x10") == parse(16) == Expression.constant(16)
    assert Expression.constant("a b") == parse("'a b'")
    assert parse(True).evaluate({}) is True
    assert hash(parse("n+1")) == hash(parse("n+1"))
    assert pickle.loads(pickle.dumps(expression)) == expression


@given(expressions(), environments())
def test_a_mask_says_at_each_point_what_the_scalar_says(expression, points):
    columns = {name: np.array([point[name] for point in points]) for name in points[0]}
    values, valid = expression.mask(columns, None, len(points))
    assert values.shape == valid.shape == (len(points),)
    for index, point in enumerate(points):
        try:
            expected = expression.evaluate(point)
        except ExpressionError:
            assert not valid[index]
            assert not values[index]
        else:
            assert valid[index]
            assert values[index] == expected


@given(expressions(), environments())
@example(parse("b ** a"), [{"a": 0, "b": -(2**63), "f": False, "M": "u"}])
@example(parse("a and b"), [{"a": 7, "b": 1, "f": False, "M": "u"}])
def test_binding_names_changes_no_value(expression, points):
    point = points[0]
    kept = {name: value for name, value in point.items() if name in ("a", "M")}
    bound = expression.bind({name: v for name, v in point.items() if name not in kept})
    assert bound.names <= set(kept)
    assert parse(bound.text).root == bound.root
    try:
        expected = expression.evaluate(point)
    except ExpressionError:
        return
    assert bound.evaluate(point) == expected
    assert isinstance(bound.evaluate(point), bool) == isinstance(expected, bool)


@given(expressions())
def test_text_survives_json(expression):
    adapter = TypeAdapter(Expression)
    assert adapter.validate_json(adapter.dump_json(expression)) == expression


def test_mask_takes_single_values_and_small_integers():
    columns = {"a": np.arange(4, dtype=np.int16), "b": 2, "u": np.full(4, 2**64 - 1, np.uint64)}
    values, valid = parse("8 // (a - b)").mask(columns, None, 4)
    assert values.tolist() == [-4, -8, 0, 8]
    assert valid.tolist() == [True, True, False, True]
    assert not parse("u").mask(columns, None, 4)[1].any()
    with pytest.raises(ExpressionError, match="float64"):
        parse("a").mask({"a": np.zeros(4)}, None, 4)
    with pytest.raises(ExpressionError, match="unknown name"):
        parse("a or zz").mask(columns, None, 4)


def test_pydantic_takes_text_integers_and_bools():
    adapter = TypeAdapter(Expression)
    assert adapter.validate_json('"n + 1"') == parse("n + 1")
    assert adapter.validate_json("3") == parse(3)
    assert adapter.dump_python(parse("3")) == 3
    for bad in ("1.5", "null", "[1]", '"n +"'):
        with pytest.raises(ValidationError):
            adapter.validate_json(bad)


def test_what_has_no_c_form_says_so():
    with pytest.raises(ExpressionError, match="bind"):
        parse("T == 'float16'").to_c()
    with pytest.raises(ExpressionError, match="bind"):
        parse("device.warp_size").to_c()
    assert parse("T == 'float16'").bind({"T": "float16"}).to_c() == "1LL"
    nested = "n"
    for _ in range(35):
        nested = f"({nested} in (1, 2))"
    with pytest.raises(ExpressionError, match="too long"):
        parse(nested).to_c()


def in_c(tmp_path, expressions: list[str], points: list[tuple[int, int]]) -> list[int]:
    """The values of C expressions over A and B at each point, as one list."""
    rows = "\n".join(f'printf("%lld\\n", (long long)({text}));' for text in expressions)
    calls = "\n".join(f"show({a}LL, {b}LL);" for a, b in points)
    source = tmp_path / "main.c"
    source.write_text(
        f"#include <stdio.h>\n{C_HELPERS}\n"
        f"static void show(long long A, long long B)\n{{\n{rows}\n}}\n"
        f"int main(void)\n{{\n{calls}\nreturn 0;\n}}\n"
    )
    program = tmp_path / "main"
    subprocess.run(
        ["gcc", "-std=c99", "-Wall", "-Wno-parentheses", "-Werror", "-o", program, source],
        check=True,
    )
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    return [int(line) for line in printed]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_c_computes_the_same(tmp_path):
    texts = [
        "a // b", "a % b", "ceil_div(a, 7)", "round_up(a, 8)", "min(a, b, 3)", "max(a, b)",
        "abs(a)", "2 ** (a % 5)", "log2(max(a, 1))", "a in (1, b, 3)", "1 <= a < b", "not a",
        "a > 0 and b > 0 or a == b", "a if a > b else -b", "(a - 1) * (b + 1)", "a not in (2, 3)",
        "-9223372036854775808 + abs(a)",
    ]  # fmt: skip
    points = [(a, b) for a in (-9, -1, 0, 1, 3, 8, 1000) for b in (-4, -1, 1, 3, 64)]
    expected = [int(parse(text).evaluate({"a": a, "b": b})) for a, b in points for text in texts]
    assert in_c(tmp_path, [parse(text).to_c(str.upper) for text in texts], points) == expected


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_c_knows_where_it_is_undefined(tmp_path):
    texts = [
        "a // b", "a % (a // 8) == 0", "ceil_div(a, b)", "round_up(a, b)", "log2(a)", "a ** b",
        "a * b", "a + b", "a - b", "a * b // 4", "a * a * a * 4 == 0", "-a * 2 ** 62",
        "b != 0 and a // b > 0", "b == 0 or a % b == 0", "a > 0 or b > 0 or 1 // (a - b) == 1",
        "a // b if b > 0 else log2(a)", "0 < a < 8 // b", "1 <= b < a // (a - b)", "a < 1 // 0",
        "a in (1, 8 // b)", "min(a, 1 // b)", "not 1 // a", "a == 8 and b == 3 and 1 // 0 == 1",
    ]  # fmt: skip
    large = [3037000500, 2**62, 2**63 - 1, 1 - 2**63]
    numbers = [-9, -1, 0, 1, 2, 3, 8, 63, 64, *large]
    points = [(a, b) for a in numbers for b in numbers]

    def defined(text: str, a: int, b: int) -> bool:
        try:
            parse(text).evaluate({"a": a, "b": b})
        except ExpressionError:
            return False
        return True

    expected = [defined(text, a, b) for a, b in points for text in texts]
    assert (
        in_c(tmp_path, [parse(text).to_c_defined(str.upper) for text in texts], points) == expected
    )
    assert parse("n % 64 == 0 and n <= 1024").to_c_defined() == ""
