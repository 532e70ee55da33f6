"""Scalars and contents of one value: which are changed, and within what."""

from dataclasses import replace

import numpy as np

from tests.workers.test_inputs import no_python
from tuner.experiment.arguments import IntegerRange, ResolvedArgument, ResolvedField
from tuner.experiment.constants import OtherSign
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
        assert 1.4 <= max(value / 1e-6, 1e-6 / value) <= 5.7
        assert np.frexp(value)[0] == 0.5, "a power of two, by which numbers may be ties"
        assert 0.5 <= changed(scalar(1.0, range=(0.5, 2.0)), seed=seed)[0].value <= 2.0
        assert changed(scalar(0.0), seed=seed)[0].value > 0
    assert changed(scalar(3e38))[0].value < 3.4e38
    assert changed(scalar(1e-6))[1].endswith("in place of 1e-06")


def test_integers_are_changed_within_their_range_and_flags_between_0_and_1() -> None:
    for seed in range(20):
        value = changed(scalar(8, "int32", range=(6, 9)), seed=seed)[0].value
        assert value in (6, 7, 9)
    values = [changed(scalar(8, "int32", range=(-9, 99)), seed=seed)[0].value for seed in range(20)]
    assert 3 < values.count(1) < 17
    assert changed(scalar(1, "int32"), "contents")[0].value == 0
    assert changed(scalar(8, "int32"), "contents") == (scalar(8, "int32"), "")


def test_half_of_the_flags_are_changed_and_then_the_others() -> None:
    flags = [replace(scalar(0, "int32"), name=name) for name in "pqr"]
    for what, values in (("some flags", [1, 0, 1]), ("other flags", [0, 1, 0])):
        given = [flags[0], array(), *flags[1:]]
        found, _ = change_constants(given, set("pqr"), what, stream(1, "changed"))
        assert [a.value for a in found if a.kind == "scalar"] == values
        assert array() in found


def test_flags_of_a_struct_take_their_turns() -> None:
    fields = tuple(
        ResolvedField(name=name, dtype="int32", offset=0, values=(0,)) for name in ("p", "q")
    )
    struct = ResolvedArgument(name="s", kind="struct", dtype="", fields=fields)
    for what, values in (("some flags", [(1,), (0,)]), ("other flags", [(0,), (1,)])):
        (found,), _ = change_constants([struct], {"s.p", "s.q"}, what, stream(1, "changed"))
        assert [field.values for field in found.fields] == values


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
    (found,), words = change_constants([given], scalars, "contents", rng)
    assert words == "p.k changed"
    assert [field.values for field in found.fields] == [(1.0, 0.0), (3.0,), (0,)]
    sizes = replace(given, fields=(replace(fields[2], values=(2,)),))
    assert change_constants([sizes], scalars, "contents", rng) == ((sizes,), "")


def test_every_other_scalar_is_0_or_at_an_end_of_its_range() -> None:
    def ends(*given: ResolvedArgument) -> list[list[float]]:
        names = {one.name for one in given}
        rng = stream(1, "changed")
        return [
            [one.value for one in change_constants(given, names, what, rng)[0]]
            for what in ("ends", "other ends")
        ]

    assert ends(scalar(3.0))[0] == [0.0]
    assert ends(scalar(0.0))[0][0] < 0
    [(first, second), (third, fourth)] = ends(scalar(1.0), scalar(2.0))
    assert (first, fourth) == (0.0, 0.0)
    assert min(third, second) > 0
    within = [scalar(1.0, range=r) for r in ((-2, 3), (-2, -1), (1, 2), (0, 1))]
    assert ends(within[0], scalar(8, "int32", range=(4, 9))) == [[0, 9], [-2, 4]]
    assert [ends(one) for one in within[1:]] == [[[-1], [-2]], [[1], [2]], [[0], [1]]]
    kept = scalar(1.0, fixed=True), scalar(8, "int32"), scalar(1, "int32")
    assert ends(*kept) == [[1.0, 8, 1], [1.0, 8, 1]]


def test_a_scalar_without_a_range_takes_the_other_sign_alone() -> None:
    given = scalar(1.5), replace(scalar(-2.0), name="t"), replace(scalar(8, "int32"), name="n")
    names = {one.name for one in given}
    rng = stream(1, "changed")
    found, words = change_constants(given, names, OtherSign("t"), rng)
    assert found[0] == given[0]
    assert 0.5 <= found[1].value <= 8
    assert found[2] == given[2]
    assert words.endswith("in place of -2, which no `range` excludes")
    fields = tuple(
        ResolvedField(name=name, dtype="float32", offset=0, values=(1.0, 2.0)) for name in "st"
    )
    struct = ResolvedArgument(name="p", kind="struct", dtype="", fields=fields)
    (other,), words = change_constants([struct], {"p.s", "p.t"}, OtherSign("p.t"), rng)
    assert (other.fields[0], words) == (fields[0], "p.t changed")
    assert max(other.fields[1].values) < 0


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
