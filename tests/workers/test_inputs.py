from typing import get_args

import ml_dtypes
import numpy as np
import pytest

from tuner.errors import SpecError
from tuner.experiment.arguments import IntegerRange, OffsetsTo, ResolvedArgument
from tuner.experiment.contents import FromFile, FromPython
from tuner.experiment.fields import PythonFunction
from workers.distributions import REACHES, SPECIAL_PARTS, Distribution, ties
from workers.elements import dtype_name, numpy_dtype
from workers.inputs import _BLOCK, LARGE, SMALL, applies, fill, flipped, stream


def argument(fill="normal", dtype="float32", shape=(64, 32), **fields) -> ResolvedArgument:
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    return ResolvedArgument(
        name="x", kind="in", dtype=dtype, shape=shape, strides=strides, fill=fill, **fields
    )


def no_python(function, name, seed):
    raise AssertionError("not asked for")


def drawn(given: ResolvedArgument, distribution="default", secret=1, label="a") -> np.ndarray:
    return fill(given, stream(secret, label), distribution, no_python)


@pytest.mark.parametrize(
    "dtype",
    ["float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "float64", "int8", "uint64"],
)
@pytest.mark.parametrize("kind", ["normal", "uniform", "zeros", "permutation", OffsetsTo(last=90)])
def test_every_fill_has_the_arguments_shape_and_type(kind, dtype) -> None:
    shape = (16,) if dtype == "int8" else (64, 32)
    values = drawn(argument(kind, dtype, shape))
    assert values.shape == shape
    assert dtype_name(values.dtype) == dtype
    if dtype.startswith("float8") and kind in ("normal", "uniform"):
        for distribution in ("large", "small", "outliers"):
            assert np.isfinite(drawn(argument(kind, dtype, shape), distribution)).all()


def test_the_same_secret_gives_the_same_numbers_and_another_gives_others() -> None:
    given = argument()
    assert np.array_equal(drawn(given), drawn(given))
    assert not np.array_equal(drawn(given), drawn(given, secret=2))
    assert not np.array_equal(drawn(given), drawn(given, label="b"))


def test_distributions_keep_within_the_range() -> None:
    given = argument(range=(-0.5, 2.0))
    for distribution in ("default", "large", "small", "zeros", "few", "ends"):
        values = drawn(given, distribution)
        assert values.min() >= -0.5
        assert values.max() <= 2.0
    assert set(np.unique(drawn(given, "ends"))) == {np.float32(-0.5), np.float32(2.0)}


@pytest.mark.parametrize("kind", ["normal", "uniform", IntegerRange(lo=-9, hi=9)])
def test_a_huge_array_is_made_of_blocks_that_all_differ(kind) -> None:
    dtype = "int8" if isinstance(kind, IntegerRange) else "float32"
    given = argument(kind, dtype, (4, _BLOCK + 77))
    values = drawn(given)
    assert values.shape == given.shape
    assert np.array_equal(values, drawn(given))
    blocks = [values.reshape(-1)[n * _BLOCK : (n + 1) * _BLOCK] for n in range(4)]
    for number, block in enumerate(blocks):
        assert all(not np.array_equal(block, other) for other in blocks[:number])
        assert np.array_equal(np.sort(block), np.sort(blocks[0]))


@pytest.mark.parametrize("shape", [(2048, 1100), (3, _BLOCK // 2), (700_000, 4), (2, 3, _BLOCK)])
def test_a_huge_array_has_rows_of_several_kinds_and_special_ends_too(shape) -> None:
    def rows(distribution):
        given = argument("normal", "float32", shape, specials=("-inf",))
        return drawn(given, distribution).reshape(-1, shape[-1])

    assorted = rows("assorted")
    last, most = assorted[:, -1], assorted.max(axis=1)
    assert np.count_nonzero(last == most) >= max(1, len(assorted) // 3)
    kinds = [(assorted <= 0).all(axis=1), (assorted >= 0).all(axis=1), most == 0]
    assert len({tuple(kind) for kind in zip(*kinds, strict=True)}) >= min(3, len(assorted))
    assert (np.abs(rows("outliers"))[:, -1] > 4).mean() > 0.1
    assert (rows("specials") == -np.inf).all(axis=1).any() or len(assorted) < SPECIAL_PARTS


def test_flipping_changes_a_few_elements_of_a_huge_array() -> None:
    given = argument("normal", "float16", (4, _BLOCK))
    values = drawn(given)
    changed = flipped(values, given, stream(1, "flip"))
    assert 1 <= np.count_nonzero(changed != values) <= 2


@pytest.mark.parametrize("fill", ["normal", "uniform"])
@pytest.mark.parametrize(
    ("dtype", "limits"),
    [
        ("float16", (-65504.0, 65504.0)),
        ("bfloat16", (-3e38, 3.38e38)),
        ("float32", (-3.4028234663852886e38, 3.4028234663852886e38)),
        ("float64", (-1.7e308, 1.7e308)),
        ("int64", (-(2**63), 2**63 - 1)),
        ("int64", (2**62, 2**63 - 1)),
        ("uint64", (0, 2**64 - 1)),
        ("uint64", (2**63, 2**64 - 1)),
    ],
)
def test_ranges_up_to_the_ends_of_a_type_hold_every_number_drawn(dtype, limits, fill) -> None:
    given = argument(fill, dtype=dtype, range=limits)
    low, high = (np.array(end).astype(numpy_dtype(dtype)) for end in limits)
    for distribution in get_args(Distribution):
        values = drawn(given, distribution)
        assert ((low <= values) & (values <= high)).all(), distribution


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float16", "bfloat16", "float32", "float64"])
def test_floats_of_the_whole_range_have_every_exponent_denormals_and_both_zeros(dtype) -> None:
    widest, less, least = (drawn(argument(dtype=dtype, shape=(256, 32)), r) for r in REACHES)
    info = ml_dtypes.finfo(widest.dtype)
    magnitudes = np.abs(widest.astype(np.float64))
    assert np.isfinite(magnitudes).all()
    assert magnitudes.max() > float(info.max) ** 0.5
    assert (magnitudes[magnitudes > 0].min()) < float(info.smallest_normal)
    assert set(np.signbit(widest[widest == 0]).tolist()) == {False, True}
    assert np.abs(less.astype(np.float64)).max() < float(info.max) ** 0.5
    assert np.abs(least.astype(np.float64)).max() < float(info.max) ** 0.25


def test_integers_of_the_whole_range_are_held_by_no_narrower_type() -> None:
    for dtype, narrow in (("int32", np.int16), ("int32", np.float32), ("uint64", np.float64)):
        values = drawn(argument(dtype=dtype), "most")
        assert (values.astype(narrow).astype(values.dtype) != values).any()
    assert drawn(argument(dtype="int8"), "whole").min() < -100


def test_the_whole_range_is_the_arguments_where_it_has_one() -> None:
    values = drawn(argument(range=(-200.0, 3.0)), "whole")
    assert -200 <= values.min() < -64
    assert 1 < values.max() <= 3
    assert not applies(argument(range=(1.0, 3.0)), "whole")
    assert not applies(argument(dtype="int32", range=(0, 9)), "whole")


def test_large_magnitudes_are_larger() -> None:
    spread = np.std(drawn(argument(), "large")) / np.std(drawn(argument()))
    assert spread == pytest.approx(LARGE, rel=0.1)


def test_small_magnitudes_are_smaller() -> None:
    spread = np.std(drawn(argument(), "small")) / np.std(drawn(argument()))
    assert spread == pytest.approx(SMALL, rel=0.1)
    assert not applies(argument(range=(1.0, 2.0)), "small")


def test_a_few_outliers_are_far_larger_and_some_end_a_row() -> None:
    far = np.abs(drawn(argument(shape=(64, 512)), "outliers")) > 8
    assert 0 < np.mean(far[:, :-1]) < 0.03
    assert 0.2 < np.mean(far[:, -1]) < 0.8
    assert drawn(argument(shape=()), "outliers").shape == ()


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        (argument(), (-16, -12), (12, 16)),
        (argument("uniform"), None, (12, 16)),
        (argument(range=(-1, 3)), (-1, -0.75), (2.75, 3)),
        (argument(range=(-1000, 5)), (-16, -12), (1, 5)),
        (argument(dtype="float8_e4m3"), (-16, -12), (12, 16)),
        (argument(dtype="int32"), (-96, -84), (84, 96)),
        (argument(dtype="uint8"), (0, 6), (90, 96)),
        (argument(dtype="int32", range=(2, 4)), (2, 2), (4, 4)),
        (argument("uniform", "uint64"), (0, 2**60), (2**64 - 2**60, 2**64)),
        (argument(dtype="bool"), (0, 0), (1, 1)),
        (argument(IntegerRange(lo=0, hi=33), "int32"), (0, 2), (31, 33)),
    ],
)
def test_numbers_are_low_or_high_throughout(given, low, high) -> None:
    for distribution, ends in (("low", low), ("high", high)):
        assert applies(given, distribution) == (ends is not None)
        if ends is not None:
            values = drawn(given, distribution).astype(np.float64)
            assert ends[0] <= values.min() <= values.max() <= ends[1]


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        (argument(), (-(2.0**120), -(2.0**119)), (2.0**119, 2.0**120)),
        (argument(dtype="float16"), (-4096, -3072), (3072, 4096)),
        (argument(range=(-1000, 5)), (-1000, -750), None),
        (argument(range=(100, 5000)), None, (3750, 5000)),
        (argument("uniform"), None, None),
        (argument(dtype="int32"), (-(2**31), -(2**30)), (2**30, 2**31)),
        (argument(dtype="uint8"), None, (239, 255)),
        (argument(dtype="int32", range=(2, 4)), None, None),
    ],
)
def test_numbers_are_near_an_end_of_the_type_throughout(given, low, high) -> None:
    for distribution, ends in (("lowest", low), ("highest", high)):
        assert applies(given, distribution) == (ends is not None)
        if ends is not None:
            values = drawn(given, distribution).astype(np.float64)
            assert ends[0] <= values.min() < values.max() <= ends[1]
            nearer = drawn(given, {"lowest": "lower", "highest": "higher"}[distribution])
            assert np.abs(nearer.astype(np.float64)).max() <= np.abs(values).max()


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
def test_integers_near_an_end_are_alike_as_floats(dtype) -> None:
    for distribution in ("lowest", "highest"):
        if applies(argument(dtype=dtype), distribution):
            values = drawn(argument(dtype=dtype), distribution)
            assert len(np.unique(values)) > len(np.unique(values.astype(np.float32))) == 1


@pytest.mark.parametrize("given", [argument(), argument(dtype="int32"), argument(range=(-2, 2))])
def test_rows_of_several_kinds_are_together(given) -> None:
    values = drawn(given, "assorted").astype(np.float64)
    for kind in (values == 0, values < 0, values > 0, np.abs(values) <= 2):
        assert kind.all(axis=1).any()
    assert ((values < -0.5).any(axis=1) & (values > 0.5).any(axis=1)).any()
    assert np.abs(values).max() > 20 or given.range or given.dtype == "int32"
    assert not applies(argument(shape=(64,)), "assorted")


@pytest.mark.parametrize("shape", [(4096,), (64, 70), (3, 4, 99)])
def test_parts_of_several_kinds_do_not_depend_on_rows(shape) -> None:
    values = drawn(argument(shape=shape), "parts")
    assert values.shape == shape
    zero = np.flatnonzero(values.reshape(-1) == 0)
    runs = np.split(zero, np.flatnonzero(np.diff(zero) > 1) + 1)
    assert max(map(len, runs)) >= 64
    assert values.min() < 0 < 20 < values.max()
    assert drawn(argument(shape=(2,)), "parts").shape == (2,)
    assert not applies(argument(shape=(1,)), "parts")


@pytest.mark.parametrize("dtype", ["bool", "uint64"])
def test_rows_without_negative_numbers_are_of_the_kinds_that_are_left(dtype) -> None:
    values = drawn(argument(dtype=dtype), "assorted")
    assert len(np.unique(values.any(axis=1))) == 2
    assert drawn(argument("uniform", dtype), "assorted").max() > 0


@pytest.mark.parametrize("given", [argument(shape=(6, 50)), argument("uniform", "uint8", (6, 2))])
def test_every_second_row_of_several_kinds_ends_with_its_extremes(given) -> None:
    rows = drawn(given, "assorted")
    assert (rows[1::2, -1] == rows[1::2].max(axis=1)).all()
    assert (rows[1::2, -2] == rows[1::2].min(axis=1)).all()
    assert drawn(argument(shape=(6, 1)), "assorted").any()


def test_zeros_are_exact() -> None:
    assert not drawn(argument(), "zeros").any()


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (argument(), {-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2}),
        (argument(dtype="int8"), {-2, -1, 0, 1, 2}),
        (argument("uniform"), {n / 8 for n in range(9)}),
        (argument(range=(-3, 1)), {n / 2 for n in range(-6, 3)}),
        (argument(dtype="uint8"), {0, 1, 2}),
        (argument(dtype="bool"), {0, 1}),
        (argument(range=(2, 4), dtype="int32"), {2, 3, 4}),
        (
            argument(IntegerRange(lo=-1, hi=20), "int64"),
            {-1, 0, 1, 2, 3, 4, 6, 7, 8, 9, 12, 14, 15, 16, 17, 20},
        ),
    ],
)
def test_a_few_values_come_again_and_again_zero_among_them(given, values) -> None:
    found = set(np.unique(drawn(given, "few")))
    assert found - set(ties(given)) <= values <= found


def test_some_of_few_floats_lie_halfway_between_two_of_a_shorter_type() -> None:
    values = np.unique(drawn(argument(), "few"))
    for shorter in (ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        for sign in (-1, 1):
            short = values.astype(shorter).astype(np.float32)
            other = (2 * values - short).astype(shorter).astype(np.float32)
            half = (short != values) & (short + other == 2 * values) & (sign * values > 0)
            assert (np.abs(short[half]) < np.abs(other[half])).any(), shorter
    assert not set(ties(argument(range=(2, 3))))


@pytest.mark.parametrize("given", [argument(), argument(dtype="int32")])
def test_an_array_is_far_from_zero_on_either_side(given) -> None:
    for distribution in ("farthest apart", "far apart", "sides apart"):
        drawings = [drawn(given, distribution, secret).astype(np.float64) for secret in range(8)]
        assert min(np.abs(values).min() for values in drawings) >= 12
        assert all(len(np.unique(np.sign(values))) == 1 for values in drawings)
        assert {bool(values[0, 0] > 0) for values in drawings} == {False, True}


def test_where_ends_are_no_farther_an_array_is_on_a_side_of_its_range() -> None:
    values = drawn(argument("uniform"), "farthest apart")
    assert 12 <= values.min() <= values.max() <= 20


@pytest.mark.parametrize(
    "given", [argument("uniform", "uint8"), argument(IntegerRange(lo=-5, hi=9999), "int32")]
)
def test_all_integers_may_be_the_same(given) -> None:
    assert len(np.unique(drawn(given, "same"))) == 1
    assert len({drawn(given, "same", secret)[0, 0] for secret in range(8)}) > 1
    assert not applies(argument(), "same")
    lengths = np.diff(drawn(argument(OffsetsTo(last=900), "int32", (64,)), "same"))
    assert sorted(lengths)[-2:] == [0, 900]


@pytest.mark.parametrize("distribution", ["same", "ends"])
def test_normal_floats_beside_one_full_segment_are_above_zero(distribution) -> None:
    values = drawn(argument(shape=(4096,)), distribution)
    assert 0 <= values.min() < 0.1
    assert values.max() > 2
    assert drawn(argument(range=(-2.0, 2.0)), distribution).min() < 0


def test_tiny_numbers_are_less_than_any_epsilon() -> None:
    assert 0 < np.abs(drawn(argument(), "tiny")).max() < 1e-12
    assert not applies(argument(dtype="float16"), "tiny")
    assert not applies(argument(range=(1, 2)), "tiny")


def test_specials_appear_only_where_they_are_allowed() -> None:
    given = argument(specials=("inf", "nan"))
    assert np.isfinite(drawn(given)).all()
    special = drawn(given, "specials")
    assert np.isinf(special).any()
    assert not np.isneginf(special).any()
    rare = drawn(given, "rare specials")
    assert 0 < np.count_nonzero(~np.isfinite(rare)) < rare.size / 10
    assert not applies(argument(), "specials")


@pytest.mark.parametrize("rows", [1, 8, 24])
def test_some_specials_fill_rows_and_some_come_in_a_row(rows) -> None:
    special = drawn(argument(specials=("-inf",), shape=(rows, 64)), "specials")
    share = np.isneginf(special.reshape(-1, 8)).mean(axis=1)
    assert (share == 1).sum() >= len(share) // 8
    assert ((share > 0.1) & (share < 0.9)).any()
    assert (share == 0).sum() > len(share) // 4
    assert np.isneginf(special).all(axis=1).any() == (rows > 1)


@pytest.mark.parametrize("secret", range(8))
def test_a_row_that_is_not_full_of_specials_begins_with_one(secret) -> None:
    rows = drawn(argument(specials=("-inf",), shape=(16, 64)), "specials", secret=secret)
    full = np.isneginf(rows).all(axis=1)
    half = (np.isneginf(rows).mean(axis=1) > 0.2) & ~full
    assert np.isneginf(rows[half, 0]).any()


def test_integers_include_both_ends() -> None:
    given = argument(IntegerRange(lo=3, hi=5), "int32")
    assert set(np.unique(drawn(given))) == {3, 4, 5}
    assert set(np.unique(drawn(given, "ends"))) == {3, 5}
    assert not applies(given, "large")


def test_a_permutation_holds_each_index_once() -> None:
    values = drawn(argument("permutation", "int32", (100,)))
    assert sorted(values.tolist()) == list(range(100))
    changed = flipped(values, argument("permutation", "int32", (100,)), stream(1, "flip"))
    assert sorted(changed.tolist()) == list(range(100))


def test_offsets_leave_many_segments_empty_and_one_with_everything() -> None:
    lengths = np.diff(drawn(argument(OffsetsTo(last=900), "int32", (64,)), "ends"))
    assert sorted(set(lengths)) == [0, 900]
    lengths = np.diff(drawn(argument(OffsetsTo(last=900), "int32", (64,)), "few"))
    assert sorted(set(lengths)) == [0, 450]


def test_offsets_rise_from_zero_to_the_end() -> None:
    values = drawn(argument(OffsetsTo(last=100), "int32", (9,)))
    assert values[0] == 0
    assert values[-1] == 100
    assert (np.diff(values) >= 0).all()
    assert drawn(argument(OffsetsTo(last=7), "int32", (1,))).tolist() == [7]


def test_flips_change_a_few_elements() -> None:
    values = drawn(argument())
    changed = flipped(values, argument(), stream(1, "flip"))
    assert 1 <= np.count_nonzero(values != changed) <= 2


def test_a_file_must_fit(tmp_path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((3, 3), np.float32))
    given = argument(FromFile(file=str(path)), shape=(3, 3))
    assert np.array_equal(drawn(given), np.ones((3, 3)))
    with pytest.raises(SpecError, match=r"holds shape \(3, 3\)"):
        drawn(argument(FromFile(file=str(path)), shape=(9,)))
    with pytest.raises(SpecError, match="holds float32, not int8"):
        drawn(argument(FromFile(file=str(path)), "int8", (3, 3)))
    with pytest.raises(SpecError, match="cannot read"):
        drawn(argument(FromFile(file=str(tmp_path / "absent.npy"))))


def test_a_pickled_file_is_never_loaded(tmp_path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(SpecError, match="cannot read"):
        drawn(argument(FromFile(file=str(path)), shape=(1,)))


def test_a_python_fill_is_asked_with_its_own_seed() -> None:
    function = FromPython(python=PythonFunction(file="f.py", text="", function="make"))
    seeds = []

    def python(given, name, seed):
        seeds.append(seed)
        return np.full((4,), 2.0)

    values = fill(argument(function, shape=(4,)), stream(1, "a"), "default", python)
    assert (values == 2.0).all()
    fill(argument(function, shape=(4,)), stream(2, "a"), "default", python)
    assert len(set(seeds)) == 2
