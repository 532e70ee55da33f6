import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workers.comparison import Expected, Mode, compare
from workers.elements import numpy_dtype

NAN, INF = math.nan, math.inf


def expected(mode: Mode = "close", rtol=1e-3, atol=1e-3, ulp=0) -> Expected:
    return Expected(path="", dtype="float64", mode=mode, rtol=rtol, atol=atol, ulp=ulp)


def failures(got, want, dtype=np.float32, poison=None, **bound) -> int:
    got = np.asarray(got, dtype)
    return compare(got, np.asarray(want, np.float64), expected(**bound), poison).failures


@pytest.mark.parametrize(
    ("got", "want", "bad"),
    [
        ([1.0], [1.0], 0),
        ([1.0021], [1.0], 1),
        ([1.0019], [1.0], 0),
        ([0.0009], [0.0], 0),
        ([0.0011], [0.0], 1),
        ([NAN], [1.0], 1),
        ([1.0], [NAN], 1),
        ([NAN], [NAN], 0),
        ([INF], [INF], 0),
        ([INF], [-INF], 1),
        ([INF], [1.0], 1),
        ([1.0], [INF], 1),
        ([NAN], [INF], 1),
        ([INF], [NAN], 1),
        ([-0.0], [0.0], 0),
        ([3.4e38], [INF], 1),
    ],
)
def test_close(got, want, bad) -> None:
    assert failures(got, want) == bad


@pytest.mark.parametrize("mode", ["close", "exact", "ulp", "unordered"])
@pytest.mark.parametrize(
    ("dtype", "bits"), [(np.float32, 0x7FA00000), (ml_dtypes.bfloat16, 0x7F81)]
)
def test_a_signalling_nan_is_compared_like_any_other_without_a_warning(mode, dtype, bits) -> None:
    got = np.ones(3, dtype)
    got.view(f"u{got.itemsize}")[1] = bits
    for want in ([1.0, NAN, 1.0], np.array([1.0, NAN, 1.0], dtype)):
        assert compare(got, np.asarray(want), expected(mode)).failures == 0
    assert failures(got, [1.0, 1.0, 1.0], dtype, mode=mode) == 1


def test_no_not_a_number_slips_through_any_mode() -> None:
    for mode in ("close", "exact", "ulp", "unordered"):
        assert failures([1.0, NAN, 3.0], [1.0, 2.0, 3.0], mode=mode, ulp=4) >= 1
        assert failures([1.0, 2.0, 3.0], [1.0, NAN, 3.0], mode=mode, ulp=4) >= 1


def test_the_worst_element_is_told() -> None:
    got, want = np.ones((4, 5), np.float32), np.ones((4, 5))
    got[1, 2], got[3, 4] = 1.5, 3.0
    found = compare(got, want, expected())
    assert (found.failures, found.index, found.got, found.want) == (2, 19, 3.0, 1.0)
    assert found.error == pytest.approx(1000.0)


def test_an_honest_comparison_tells_how_near_it_was() -> None:
    found = compare(np.array([1.001], np.float32), np.array([1.0]), expected())
    assert found.failures == 0
    assert found.error == pytest.approx(0.5, rel=1e-3)


def test_poison_that_was_never_overwritten_is_counted() -> None:
    got = np.full(8, 0xFF, np.uint8).view(np.float32).copy()
    got[1] = 2.0
    found = compare(got, np.array([1.0, 1.0]), expected(), poison=0xFF)
    assert (found.failures, found.unwritten) == (2, 1)


def test_exact_integers() -> None:
    assert failures([1, -1], [1, -1], np.int8, mode="exact") == 0
    assert failures([1, -2], [1, -1], np.int8, mode="exact") == 1
    big = np.array([2**63 + 1], np.uint64)
    exact = expected("exact")
    assert compare(big, big, exact).failures == 0
    assert compare(big, big - 1, exact).failures == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_units_in_the_last_place(dtype) -> None:
    start = np.array([1.0, -1.0, 0.0], dtype)
    width = start.dtype.itemsize
    raw = start.view(f"u{width}") + np.array([2, 2, 2], f"u{width}")
    there = raw.view(dtype)
    for ulp, bad in ((2, 0), (1, 3)):
        assert compare(there, start, expected("ulp", ulp=ulp)).failures == bad


def test_zeros_of_both_signs_are_one_step_from_the_least_number() -> None:
    tiny = np.array([1], np.uint32).view(np.float32)
    assert compare(tiny, np.array([-0.0], np.float32), expected("ulp", ulp=1)).failures == 0
    assert compare(-tiny, tiny, expected("ulp", ulp=1)).failures == 1


def test_unordered_ignores_order_and_nothing_else() -> None:
    assert failures([3, 1, 2], [1, 2, 3], mode="unordered") == 0
    assert failures([3, 1, 1], [1, 2, 3], mode="unordered") == 1


def grouped(got, want, groups, other=None) -> int:
    pair = np.asarray(groups), np.asarray(groups if other is None else other)
    want = np.asarray(want, np.float64)
    found = compare(np.asarray(got, np.float32), want, expected("unordered"), groups=pair)
    return found.failures


def test_unordered_within_groups_exchanges_nothing_between_them() -> None:
    assert grouped([2, 1, 4, 3], [1, 2, 3, 4], [0, 0, 1, 1]) == 0
    assert grouped([1, 3, 2, 4], [1, 2, 3, 4], [0, 0, 1, 1]) == 2
    assert grouped([3, 1, 4, 2], [1, 2, 3, 4], [1, 0, 1, 0], [0, 0, 1, 1]) == 0
    assert grouped([3, 1, 4, 2], [1, 2, 3, 4], [1, 0, 1, 1], [0, 0, 1, 1]) == 1


def test_the_worst_unordered_element_is_named_by_its_own_place() -> None:
    got = np.array([9, 1, 2], np.float32)
    found = compare(got, np.array([1.0, 2.0, 3.0]), expected("unordered"))
    assert (found.index, found.got, found.want) == (0, 9, 3)


def test_the_first_failing_element_is_named_beside_the_worst() -> None:
    want = np.zeros(200_000)  # several chunks
    got = np.zeros(want.size, np.float32)
    assert compare(got, want, expected()).first == -1
    got[[70_000, 150_000, 199_999]] = 1, 3, 2
    found = compare(got, want, expected())
    assert (found.index, found.first) == (150_000, 70_000)
    got[7] = NAN
    assert compare(got, want, expected()).first == 7


def test_the_first_unordered_element_is_the_first_by_place() -> None:
    got = np.array([9, 1, 2, 8], np.float32)
    found = compare(got, np.array([1.0, 2.0, 3.0, 4.0]), expected("unordered"))
    assert (found.failures, found.index, found.first) == (2, 3, 0)


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e5m2"])
def test_eight_bit_floats_are_compared_as_numbers(name) -> None:
    every = np.arange(256, dtype=np.uint8).view(numpy_dtype(name))
    wide = every.astype(np.float64)
    for mode in ("close", "exact", "ulp", "unordered"):
        assert compare(every, wide, expected(mode)).failures == 0
    assert compare(every[::-1], wide, expected("unordered")).failures == 0
    ordinary = np.isfinite(wide) & np.isfinite(np.roll(wide, -1)) & (wide != 0)
    steps = compare(np.roll(every, -1)[ordinary], wide[ordinary], expected("ulp", ulp=1))
    assert steps.failures == 0
    poisoned = np.full(8, 0xFF, np.uint8).view(every.dtype)
    assert compare(poisoned, np.ones(8), expected(), poison=0xFF).unwritten == 8


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shape"):
        compare(np.ones(3), np.ones(4), expected())


@given(
    hnp.arrays(np.float32, st.integers(1, 50), elements=st.floats(width=32)),
    hnp.arrays(np.float32, 50, elements=st.floats(width=32)),
)
def test_close_means_its_definition(got, other) -> None:
    want = other[: got.size].astype(np.float64)
    wrong = 0
    for x, r in zip(got.astype(np.float64), want, strict=True):
        if math.isfinite(x) and math.isfinite(r):
            wrong += not abs(x - r) <= 1e-3 + 1e-3 * abs(r)
        else:
            wrong += not (x == r or (math.isnan(x) and math.isnan(r)))
    assert compare(got, want, expected()).failures == wrong


def test_a_bool_that_is_neither_zero_nor_one_is_wrong() -> None:
    got = np.array([0, 1, 2], np.uint8).view(bool)
    found = compare(
        got, np.array([False, True, True]), Expected(path="", dtype="bool", mode="exact")
    )
    assert (found.failures, found.index, found.got) == (1, 2, 2)


def test_no_element_of_a_long_output_goes_unseen() -> None:
    want = np.arange(200_001, dtype=np.float64)
    for place in (0, 65_535, 65_536, 131_071, 200_000):
        for value in (np.nan, np.inf, want[place] + 1.0):
            got = want.copy()
            got[place] = value
            found = compare(got, want, expected(rtol=0.0, atol=0.5))
            assert (found.failures, found.index) == (1, place)
