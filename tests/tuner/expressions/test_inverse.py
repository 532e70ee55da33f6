"""Which symbol a value determines: C or a number, and nothing where there is doubt."""

import pytest

from tuner.expressions import Expression
from tuner.expressions.inverse import solve, solve_number


@pytest.mark.parametrize(
    ("text", "known", "solution"),
    [
        ("n", set(), ("n", "v")),
        ("2 * n + 1", set(), ("n", "kw_floor_div((v - 1LL), 2LL)")),
        ("5 - n", set(), ("n", "(5LL - v)")),
        ("n - m", {"m"}, ("n", "(v + s->m)")),
        ("n * m", {"m"}, ("n", "kw_floor_div(v, s->m)")),
        ("n * m", set(), None),
        ("n", {"n"}, None),
        ("n * n", set(), None),
        ("n + n", set(), None),
        ("n // 8", set(), None),
        ("ceil_div(n, 8) * 2", set(), None),
        ("min(n, 8)", set(), None),
        ("n * device.warp_size", set(), None),
        ("7", set(), None),
    ],
)
def test_only_what_has_one_solution_is_solved(text, known, solution):
    assert solve(Expression.parse(text), "v", known) == solution


@pytest.mark.parametrize(
    ("text", "value", "known", "solution"),
    [
        ("2 * n + 1", 9, {}, ("n", 4)),
        ("5 - n", 3, {}, ("n", 2)),
        ("n * m", 12, {"m": 3}, ("n", 4)),
        ("n * m", 0, {"m": 0}, None),
        ("n * m", 12, {}, None),
        ("n + T", 12, {"T": "float32"}, None),
    ],
)
def test_numbers_are_solved_alike(text, value, known, solution):
    assert solve_number(Expression.parse(text), value, known) == solution
