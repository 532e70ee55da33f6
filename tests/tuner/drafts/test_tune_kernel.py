"""A ``tune_kernel`` call in a spec's words: block names, divisors, restrictions."""

import numpy as np
import pytest

from tuner.drafts.tune_kernel import converted, from_tune_kernel
from tuner.errors import SpecError

PARAMETERS = {"block_size_x": [32, 64], "block_size_y": [1, 2], "tile": [1, 2]}


def test_block_and_grid_follow_from_the_names():
    found = from_tune_kernel((4096, "n"), PARAMETERS, grid_div_y=["block_size_y * tile"])
    assert found == {
        "grid": ["ceil_div(4096, (block_size_x))", "ceil_div(n, (block_size_y * tile))"],
        "block": ["block_size_x", "block_size_y"],
        "parameters": PARAMETERS,
        "constraints": [],
    }


def test_other_names_and_defaults_are_those_of_kernel_tuner():
    assert from_tune_kernel("n", {"tile": (np.int32(2), 4.0)}) == {
        "grid": ["n"],
        "block": ["256"],
        "parameters": {"tile": [2, 4]},
        "constraints": [],
    }
    found = from_tune_kernel(100, {"bx": [8], "bz": [2]}, block_size_names=["bx", "by", "bz"])
    assert found["block"] == ["bx", "1", "bz"]
    assert from_tune_kernel(100, {"bx": [8]}, grid_div_x=[], block_size_names=["bx"])["grid"] == [
        "100"
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("block_size_x*block_size_y<=1024", "block_size_x * block_size_y <= 1024"),
        ("32 <= p['a']*p[\"b\"] < 64", "32 <= a * b < 64"),
        (
            "use_padding==0 or (block_size_x % 32 != 0)",
            "use_padding == 0 or block_size_x % 32 != 0",
        ),
        ("not fast and tile in [1, 2]", "not fast and tile in [1, 2]"),
        (7, "7"),
    ],
)
def test_restrictions_keep_their_meaning(given, text):
    assert converted(given, "restrictions") == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: converted("a / b == 2", "restrictions"), "write // for a whole quotient"),
        (lambda: converted("lambda p: p['a'] > 1", "r"), "write the condition as text"),
        (lambda: converted("a >", "r"), "r: 'a >' is no expression"),
        (lambda: converted("__import__('os')", "r"), "r: "),
        (lambda: converted("a + 1" + " + 1" * 10_000, "r"), "characters; at most"),
        (lambda: converted(lambda p: True, "r"), "r: .* is neither a bool"),
        (lambda: from_tune_kernel(1, {"a": [0.5]}), r"tune_params\['a'\]: 0.5 is neither"),
        (lambda: from_tune_kernel((1, 2, 3, 4), {}), "problem_size has 4 axes"),
        (lambda: from_tune_kernel(1, {}, grid_div_x=["a b"]), "grid_div_x: 'a b' is no expression"),
    ],
)
def test_what_has_no_counterpart_is_refused_with_a_remedy(call, message):
    with pytest.raises(SpecError, match=message):
        call()
