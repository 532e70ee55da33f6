import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tuner.experiment.arguments import ResolvedArgument
from workers.elements import GAP, from_storage, gaps_changed, numpy_dtype, to_storage


def argument(shape, strides, dtype="float32") -> ResolvedArgument:
    return ResolvedArgument(name="x", kind="out", dtype=dtype, shape=shape, strides=strides)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_strided_storage_gives_back_what_it_was_given(rows, columns, pad, transposed) -> None:
    strides = (1, rows + pad) if transposed else (columns + pad, 1)
    given_ = argument((rows, columns), strides)
    dense = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    storage = to_storage(dense, given_)
    assert len(storage) == given_.size
    assert np.array_equal(from_storage(storage, given_), dense)
    assert not gaps_changed(storage.tobytes(), given_, GAP)


def test_gaps_are_told_from_elements() -> None:
    padded = argument((2, 2), (3, 1))
    words = np.full(5, 0xFFFFFFFF, np.uint32).view(np.float32).copy()
    words[[0, 1, 3, 4]] = 1.0
    assert not gaps_changed(words.tobytes(), padded, 0xFF)
    words[2] = 1.0
    assert gaps_changed(words.tobytes(), padded, 0xFF)
    assert not gaps_changed(words[:4].tobytes(), argument((2, 2), (2, 1)), 0xFF)


def test_bfloat16_has_two_bytes() -> None:
    assert numpy_dtype("bfloat16").itemsize == 2
