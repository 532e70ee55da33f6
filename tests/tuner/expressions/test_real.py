import pickle

import pytest

from tuner.expressions import ExpressionError
from tuner.expressions.real import RealExpression


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.0 / n", 0.25),
        ("n ** -0.5", 0.5),
        ("1 / sqrt(n) - 2e-1", 0.3),
        ("-max(n, 7.5) // 2", -4.0),
        ("exp(log(n)) + abs(-m) * min(1, m)", 7.0),
        ("(2 * n + 1) / m", 3.0),
        ("-1.7976931348623157e+308", -1.7976931348623157e308),
    ],
)
def test_values(text, value):
    expression = RealExpression.parse(text)
    assert expression.evaluate({"n": 4, "m": 3}) == pytest.approx(value)
    assert pickle.loads(pickle.dumps(expression)) == expression


def test_names_are_those_read_and_no_functions():
    assert RealExpression.parse("sqrt(n) / (m + exp(-k))").names == {"n", "m", "k"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1.0 / (n - 4)", r"'1.0 / \(n - 4\)' has no value at n=4"),
        ("(-n) ** 0.5", "has no value at n=4"),
        ("exp(n * 1000)", "has no value at n=4"),
        ("n / k", "unknown number 'k'"),
    ],
)
def test_what_has_no_value_says_where(text, words):
    with pytest.raises(ExpressionError, match=words):
        RealExpression.parse(text).evaluate({"n": 4})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("1.0 / ", "cannot read the expression"),
        ("1.0 if n else 2.0", r"outside the grammar of real numbers: \+ - "),
        ("sine(n)", "unknown function 'sine'"),
        ("sqrt(n, 2)", r"sqrt\(\) takes 1 numbers"),
        ("sqrt / n", "sqrt is a function"),
        ("True / n", "outside the grammar"),
        ("n.real / 2", "outside the grammar"),
        ("1e999 * n", "beyond the range of float64"),
        ("-" * 50 + "n", "nested deeper than 40"),
        ("__import__('os') / 2", "unknown function"),
        ("n[0] / 2", "outside the grammar"),
        ("n / *m", "cannot read"),
        ("2.0 * max(*n)", r"max\(\) takes 2"),
    ],
)
def test_what_is_refused_says_why(text, words):
    with pytest.raises(ExpressionError, match=words):
        RealExpression.parse(text)


def test_as_c():
    c = RealExpression.parse("1 / sqrt(n) + -d ** 2").to_c("s->{}".format)
    assert c == "((1.0 / sqrt((double)s->n)) + (-pow((double)s->d, 2.0)))"
