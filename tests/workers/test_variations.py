"""Inputs that follow from others, made where they are launched on."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.workers.test_inputs import argument
from tuner.experiment.arguments import IntegerRange, OffsetsTo
from tuner.experiment.contents import FromFile, Keys, Unordered
from workers.devices.port import OwnInputs, StagedBuffer, Variation
from workers.elements import numpy_dtype
from workers.variations import nudged, numbers, variation, variations, varied


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nudged_numbers_are_all_others_and_mean_the_same(dtype) -> None:
    kind = numpy_dtype(dtype)
    values = np.random.default_rng(2).standard_normal(1000).astype(kind)
    values = values[values != 0]
    changed = nudged(values, np.random.default_rng(1))
    assert changed.dtype == kind
    assert (changed != values).all()
    assert np.array_equal(np.signbit(changed), np.signbit(values))
    least = 2.0 ** -{"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype]
    wide, near = values.astype("f8"), changed.astype("f8")
    assert (np.abs(near - wide) <= 4 * least * np.abs(wide)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_no_ordinary_number_is_not_nudged_and_none_becomes_so(dtype) -> None:
    kind = numpy_dtype(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan]).astype(kind)
    word = np.dtype(f"u{kind.itemsize}")
    assert np.array_equal(nudged(special, np.random.default_rng(1)).view(word), special.view(word))
    infinity = np.array(np.inf, kind).view(word)
    greatest = np.full(64, infinity - word.type(1)).view(kind)
    smallest = np.full(64, 1, word).view(kind)
    for ends in (greatest, smallest):
        changed = nudged(ends, np.random.default_rng(1)).astype("f8")
        assert np.isfinite(changed).all()
        assert (changed > 0).all()


@pytest.mark.parametrize(
    ("given", "how"),
    [
        (argument(), Variation(kind="mixed")),
        (argument(range=(-1.0, 2.0)), Variation(kind="mixed", limits=(-1.0, 2.0))),
        (argument("uniform"), Variation(kind="mixed", limits=(0.0, 1.0))),
        (
            argument(IntegerRange(lo=0, hi=9), dtype="int32"),
            Variation(kind="mixed", limits=(0, 9)),
        ),
        (argument("uniform", dtype="int8"), Variation(kind="mixed", limits=(-128, 127))),
        (argument(dtype="int32"), Variation(kind="rotated")),
        (argument("uniform", dtype="bool"), Variation(kind="rotated")),
        (argument("permutation", dtype="int32", shape=(64,)), Variation(kind="rotated")),
        (argument(shape=(1,)), Variation(kind="nudged")),
        (replace(argument(), strides=(48, 1)), Variation(kind="nudged")),
        (argument(FromFile(file="x.npy")), Variation(kind="nudged")),
        (argument("ones"), Variation(kind="nudged")),
        (argument(FromFile(file="x.npy"), dtype="int32"), None),
        (replace(argument(dtype="int32"), strides=(48, 1)), None),
        (argument(OffsetsTo(last=9), dtype="int32", shape=(8,)), None),
        (argument("zeros"), None),
        (replace(argument(), kind="out"), None),
    ],
)
def test_what_is_drawn_is_mixed_and_other_floats_are_nudged(given, how) -> None:
    assert variation(given) == how


def test_keys_of_groups_do_not_vary_since_outputs_are_compared_by_those_of_the_case() -> None:
    keys = replace(argument(IntegerRange(lo=0, hi=9), dtype="int32"), name="keys")
    out = replace(argument(), name="out", kind="out", compare=Unordered(unordered=Keys(key="keys")))
    assert variations([argument(), keys, out]).keys() == {"x"}
    assert variations([argument(), keys]).keys() == {"x", "keys"}


def staged(values: np.ndarray, dtype: str, varies: Variation) -> StagedBuffer:
    return StagedBuffer(
        name="x",
        kind="in",
        dtype=dtype,
        shape=values.shape,
        strides=(1,),
        size=values.nbytes,
        align=8,
        varies=varies,
    )


def own(values: np.ndarray, dtype: str, varies: Variation, sets: int = 5) -> list[np.ndarray]:
    buffer = staged(values, dtype, varies)
    found = numbers(buffer, OwnInputs(seed=1), sets)
    return [varied(values.view(np.uint8), buffer, one).view(values.dtype) for one in found]


@pytest.mark.parametrize("kind", ["mixed", "rotated", "nudged"])
def test_each_set_has_its_own_inputs_and_again_the_same_for_the_same_seed(kind) -> None:
    values = np.random.default_rng(3).standard_normal(1000).astype("f4")
    varies = Variation(kind=kind)
    first, again = (own(values, "float32", varies) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in combinations([values, *first], 2))
    buffer = staged(values, "float32", varies)
    known = numbers(buffer, OwnInputs(seed=1), 5)
    assert numbers(buffer, OwnInputs(seed=2), 5) != known
    assert numbers(replace(buffer, name="y"), OwnInputs(seed=1), 5) != known


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("limits", [None, (-0.3, 1.3)])
def test_mixed_floats_are_others_of_the_same_kind_within_their_limits(dtype, limits) -> None:
    values = np.random.default_rng(3).standard_normal(4000)
    values = np.clip(values, *(limits or (-9, 9))).astype(numpy_dtype(dtype))
    for found in own(values, dtype, Variation(kind="mixed", limits=limits)):
        wide, before = found.astype("f8"), values.astype("f8")
        assert np.allclose(np.sort(wide), np.sort(before), rtol=0.125, atol=1e-4)
        lowest, highest = limits or (-np.inf, np.inf)
        assert before.min() >= wide.min() - 0.2
        assert (wide >= np.float64(before.min() if limits else lowest)).all()
        assert (wide <= np.float64(before.max() if limits else highest)).all()
        if dtype in ("float32", "float64"):
            fresh = ~np.isin(wide, before)
            assert fresh.mean() > (0.5 if limits else 0.95), "a memo by value finds little"


@pytest.mark.parametrize(
    ("dtype", "limits"),
    [("int32", (-7, 90_000)), ("int8", (-128, 127)), ("uint64", (5, 1 << 62)), ("uint8", (0, 0))],
)
def test_mixed_integers_are_uniform_within_their_limits(dtype, limits) -> None:
    lo, hi = limits
    values = np.random.default_rng(3).integers(lo, hi, 4000, endpoint=True, dtype=dtype)
    for found in own(values, dtype, Variation(kind="mixed", limits=limits)):
        assert lo <= int(found.min())
        assert int(found.max()) <= hi
        assert abs(found.astype("f8").mean() - (lo + hi) / 2) <= (hi - lo) / 20
        assert hi == lo or not np.array_equal(np.sort(found), np.sort(values))


def test_what_no_sum_of_64_bits_can_hold_is_rotated() -> None:
    values = np.arange(10, dtype="u8") << np.uint64(59)
    for found in own(values, "uint64", Variation(kind="mixed", limits=(0, (1 << 64) - 1))):
        assert np.array_equal(np.roll(found, -int(np.argmin(found))), values)
