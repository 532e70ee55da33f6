"""Scalars and contents of one value: which are changed, and within what."""

from dataclasses import replace

import numpy as np

from tests.workers.test_inputs import no_python
from tuner.experiment.arguments import IntegerRange, ResolvedArgument, ResolvedField
from tuner.experiment.contents import FromFile
from workers.constants import change_constants
from workers.inputs import fill, stream


def scalar(value, dtype="float32", **fields) -> ResolvedArgument:
    return ResolvedArgument(name="s", kind="scalar", dtype=dtype, value=value, **fields)


def array(fill="zeros", dtype="float32", kind="in", **fields) -> ResolvedArgument:
    return ResolvedArgument(
        name="a", kind=kind, dtype=dtype, shape=(64,), strides=(1,), fill=fill, **fields
    )


def changed(argument, what="scalars", seed=1):
    (found,), words = change_constants([argument], {"s"}, what, stream(seed, "changed"))
    return found, words


def test_a_float_is_changed_by_a_factor_or_within_its_range() -> None:
    for seed in range(20):
        value = changed(scalar(1e-6), seed=seed)[0].value
        assert 2 <= max(value / 1e-6, 1e-6 / value) <= 4.001
        assert 0.5 <= changed(scalar(1.0, range=(0.5, 2.0)), seed=seed)[0].value <= 2.0
        assert changed(scalar(0.0), seed=seed)[0].value > 0
    assert changed(scalar(3e38))[0].value < 3.4e38
    assert changed(scalar(1e-6))[1].endswith("in place of 1e-06")


def test_integers_are_changed_within_their_range_and_flags_between_0_and_1() -> None:
    for seed in range(20):
        value = changed(scalar(8, "int32", range=(6, 9)), seed=seed)[0].value
        assert value in (6, 7, 9)
    assert changed(scalar(1, "int32"), "contents")[0].value == 0
    assert changed(scalar(8, "int32"), "contents") == (scalar(8, "int32"), "")


def test_what_is_fixed_or_changed_with_others_stays() -> None:
    for given, what in (
        (scalar(1e-6, fixed=True), "scalars"),
        (array(fixed=True), "contents"),
        (scalar(1e-6), "contents"),
        (array(), "scalars"),
        (array("normal"), "contents"),
        (array(dtype="int32", kind="inout"), "contents"),
    ):
        assert changed(given, what) == (given, "")


def test_floats_of_a_struct_are_changed_that_do_not_follow_from_the_shape() -> None:
    fields = tuple(
        ResolvedField(name=name, dtype=dtype, offset=0, values=values)
        for name, dtype, values in (
            ("s", "float32", (1.0, 0.0)),
            ("n", "float32", (3.0,)),
            ("k", "int32", (1,)),
        )
    )
    given = ResolvedArgument(name="p", kind="struct", dtype="", fields=fields)
    scalars = {"p.s", "p.k"}
    rng = stream(1, "changed")
    (found,), words = change_constants([given], scalars, "scalars", rng)
    assert words == "p.s changed"
    assert set(found.fields[0].values).isdisjoint((1.0, 0.0))
    assert found.fields[1:] == fields[1:]
    for other in (replace(given, fixed=True), replace(given, fields=fields[1:])):
        assert change_constants([other], scalars, "scalars", rng) == ((other,), "")
    assert change_constants([given], scalars, "contents", rng) == ((given,), "")


def test_zeros_and_files_of_one_number_are_drawn() -> None:
    assert changed(array(), "contents")[0].fill == "normal"
    assert changed(array(dtype="int32"), "contents")[0].fill == IntegerRange(lo=0, hi=1)


def test_only_a_file_of_one_number_is_changed(tmp_path) -> None:
    for name, numbers in (("ones", np.ones(64)), ("ramp", np.arange(64.0))):
        path = tmp_path / f"{name}.npy"
        np.save(path, numbers.astype(np.float32))
        given, _ = changed(array(FromFile(file=str(path)), range=(0.0, 64.0)), "contents")
        found = fill(given, stream(1, "x"), "default", no_python)
        assert np.array_equal(found, numbers) == (name == "ramp")
        assert 0 <= found.min() <= found.max() <= 64
