"""Numbers of scalars and other arrays in drawn contents."""

import numpy as np

from tests.workers.test_inputs import argument, drawn
from tuner.experiment.arguments import IntegerRange, ResolvedArgument
from workers.common_numbers import with_common_numbers
from workers.inputs import stream


def scalar(value: float, dtype: str = "float32") -> ResolvedArgument:
    return ResolvedArgument(name="s", kind="scalar", dtype=dtype, value=value)


def shared(given: ResolvedArgument, others=(), scalars=()) -> tuple[np.ndarray, np.ndarray]:
    """Contents before and after."""
    before = drawn(given)
    named = {str(number): other for number, other in enumerate(others)}
    return before, with_common_numbers(before, given, named, scalars, stream(1, "common"))


def test_some_elements_are_a_scalar_as_the_type_holds_it() -> None:
    before, after = shared(argument(), scalars=[scalar(0.3)])
    changed = after != before
    assert 0.15 < changed.mean() < 0.35
    assert set(after[changed]) == {np.float32(0.3)}
    assert after.dtype == np.float32


def test_numbers_of_an_array_with_the_same_rows_come_from_the_same_row() -> None:
    other = np.repeat(np.arange(1000, 1064)[:, None], 9, 1).astype(np.int32)
    before, after = shared(argument(IntegerRange(lo=0, hi=2000), "int32"), [other])
    rows, columns = np.nonzero(after != before)
    assert np.array_equal(after[rows, columns], 1000 + rows)
    assert len(rows) > 64


def test_some_rows_are_rows_of_another_array() -> None:
    other = drawn(argument(), label="b")
    _, after = shared(argument(), [other])
    assert 8 < (after == other).all(axis=1).sum() < 24, "the same ones, where there are as many"
    _, after = shared(argument(), [other[:5], np.ones(32, np.float32)])
    whole = {tuple(row) for row in after} & {*map(tuple, other[:5]), (1.0,) * 32}
    assert len(whole) >= 4
    before, after = shared(argument(range=(-1, 1)), [np.full((2, 32), 3, np.float32)])
    assert np.array_equal(before, after)


def test_what_the_range_excludes_or_has_another_type_is_left_out() -> None:
    for given, others, scalars in (
        (argument(range=(-1, 1)), (), [scalar(2.0), scalar(7, "int32")]),
        (argument(IntegerRange(lo=0, hi=5), "int32"), [np.full(9, 6, np.int32)], [scalar(3.0)]),
        (argument(), [np.full(9, 6, np.float64)], ()),
        (argument("permutation", "int32"), [np.full(9, 6, np.int32)], ()),
    ):
        before, after = shared(given, others, scalars)
        assert np.array_equal(before, after)
