import pytest

from tuner.csource.arithmetic import Polynomial, applied, ceil_div, without_remainders
from tuner.expressions import Expression

N, C = Polynomial.atom("N"), Polynomial.atom("C")


def number(value: int) -> Polynomial:
    return Polynomial.number(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((N + number(255)) // number(256), "ceil_div(N, 256)"),
        ((N - number(1)) // number(256) + number(1), "ceil_div(N, 256)"),
        ((N + C - number(1)) // C, "ceil_div(N, C)"),
        (N * C // C, "N"),
        (number(4) * N // number(2), "2 * N"),
        ((N - number(1)) * C + C, "C * N"),
        (N // number(2), "N // 2"),
        (number(3) * (N // number(2)), "3 * (N // 2)"),
        (number(0) - N, "-N"),
        (number(7) // number(2), "3"),
        (ceil_div(number(7), number(2)), "4"),
        (applied("min", N, number(1024)), "min(N, 1024)"),
        (applied("max", number(3), number(5)), "5"),
    ],
)
def test_values_are_written_as_a_spec_writes_them(value, text):
    assert str(value) == text
    Expression.parse(text)


def test_a_product_with_a_rounded_quotient_asks_for_divisibility():
    value, exact = without_remainders(number(32) * (N // number(32)) * C)
    assert str(value) == "C * N"
    assert [(str(a), str(b)) for a, b in exact] == [("N", "32")]
