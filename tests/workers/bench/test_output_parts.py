"""Which parts of outputs are compared: whole rows, from anywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.experiment.arguments import ResolvedArgument, spanned
from tuner.experiment.contents import Keys, Unordered
from workers.bench import output_parts as module
from workers.bench.output_parts import OutputPart, compared_parts
from workers.elements import from_storage


def output(shape, strides, **fields) -> ResolvedArgument:
    return ResolvedArgument(
        name="out", kind="out", dtype="float64", shape=shape, strides=strides, **fields
    )


@st.composite
def outputs(draw) -> ResolvedArgument:
    """Arrays of up to four axes in any order, with gaps between rows."""
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    strides, step = [0] * len(shape), 1
    for axis in draw(st.permutations(range(len(shape)))):
        strides[axis] = step
        step = step * shape[axis] + draw(st.integers(0, 3))
    return output(tuple(shape), tuple(strides))


@given(argument=outputs(), most=st.integers(1, 200), seed=st.integers(0, 2**32))
def test_a_part_holds_the_rows_that_its_bytes_hold(argument, most, seed) -> None:
    storage = np.arange(spanned(argument.shape, argument.strides), dtype=np.float64)
    dense = from_storage(storage.tobytes(), argument)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "COMPARED", most)
        part = compared_parts([argument], np.random.default_rng(seed))["out"]
    if argument.elements <= most:
        assert part == OutputPart(argument)
        return
    start, stop = part.bytes
    assert 0 <= start < stop <= argument.size
    found = from_storage(storage.tobytes()[start:stop], part.argument)
    assert most / 2 < found.size <= most
    told = part.place.removeprefix("out[").removesuffix("]").split(", ")
    behind = dense[tuple(slice(int(first.removesuffix(":") or 0), None) for first in told)]
    assert np.array_equal(found, behind[tuple(map(slice, found.shape))])


def test_every_row_may_be_compared() -> None:
    argument, rng = output((64, 1 << 14), (1 << 14, 1)), np.random.default_rng(3)
    rows = module.COMPARED >> 14
    firsts = {compared_parts([argument], rng)["out"].start >> 17 for _ in range(1000)}
    assert firsts == set(range(64 - rows + 1))


@pytest.mark.parametrize("unordered", ["whole", "rows", Keys(key="keys")])
def test_what_is_compared_in_any_order_is_compared_as_a_whole_or_not_at_all(unordered) -> None:
    shape = (4 * module.COMPARED,)
    keys = ResolvedArgument(name="keys", kind="out", dtype="int32", shape=shape, strides=(1,))
    together = output(shape, (1,), compare=Unordered(unordered=unordered))
    rng = np.random.default_rng(0)
    found = [compared_parts([keys, together], rng) for _ in range(400)]
    with_all = [parts for parts in found if "out" in parts]
    assert 60 < len(with_all) < 140, "a quarter of the times"
    assert all(parts["out"] == OutputPart(together) for parts in with_all)
    keyed = isinstance(unordered, Keys)
    assert all((parts["keys"] == OutputPart(keys)) == keyed for parts in with_all)
    assert all(parts["keys"] != OutputPart(keys) for parts in found if "out" not in parts)
