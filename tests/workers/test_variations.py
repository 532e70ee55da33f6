"""Inputs that follow from others, made where they are launched on."""

from dataclasses import replace

import numpy as np
import pytest

from tests.workers.test_inputs import argument
from tuner.experiment.arguments import IntegerRange, OffsetsTo
from tuner.experiment.contents import FromFile, Keys, Unordered
from workers.devices.port import OwnInputs, StagedBuffer
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
        (argument(), "rotated"),
        (argument(IntegerRange(lo=0, hi=9), dtype="int32"), "rotated"),
        (argument("permutation", dtype="int32", shape=(64,)), "rotated"),
        (argument(shape=(1,)), "nudged"),
        (replace(argument(), strides=(48, 1)), "nudged"),
        (argument(FromFile(file="x.npy")), "nudged"),
        (argument("ones"), "nudged"),
        (argument(FromFile(file="x.npy"), dtype="int32"), None),
        (replace(argument(dtype="int32"), strides=(48, 1)), None),
        (argument(OffsetsTo(last=9), dtype="int32", shape=(8,)), None),
        (argument("zeros"), None),
        (replace(argument(), kind="out"), None),
    ],
)
def test_what_is_drawn_is_rotated_and_other_floats_are_nudged(given, how) -> None:
    assert variation(given) == how


def test_keys_of_groups_do_not_vary_since_outputs_are_compared_by_those_of_the_case() -> None:
    keys = replace(argument(IntegerRange(lo=0, hi=9), dtype="int32"), name="keys")
    out = replace(argument(), name="out", kind="out", compare=Unordered(unordered=Keys(key="keys")))
    assert variations([argument(), keys, out]) == {"x": "rotated"}
    assert variations([argument(), keys]) == {"x": "rotated", "keys": "rotated"}


@pytest.mark.parametrize("varies", ["rotated", "nudged"])
def test_each_set_has_its_own_inputs_and_again_the_same_for_the_same_seed(varies) -> None:
    buffer = StagedBuffer(
        name="x",
        kind="in",
        dtype="float32",
        shape=(9,),
        strides=(1,),
        size=36,
        align=4,
        varies=varies,
    )
    values = np.arange(1, 10, dtype=np.float32).view(np.uint8)
    first, again, others = (numbers(buffer, OwnInputs(seed=seed), 5) for seed in (1, 1, 2))
    assert first == again != others
    found = [varied(values, buffer, number).tobytes() for number in first]
    assert values.tobytes() not in found
    assert len(set(found)) > 2
    assert found == [varied(values, buffer, number).tobytes() for number in again]
    assert numbers(replace(buffer, name="y"), OwnInputs(seed=1), 5) != first
