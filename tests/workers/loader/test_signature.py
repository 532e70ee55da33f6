"""What a call says of arrays whose extents do not fit together; needs no device."""

import numpy as np
import pytest

from tuner.errors import SpecError
from tuner.experiment.arguments import row_major
from tuner.experiment.load import load_experiment
from workers.loader.port import ArrayView
from workers.loader.signature import Given, Signature

SPEC = """\
version: 1
name: conv
kernel: {language: opencl, source: conv.cl, entry: conv, launch: {grid: n, block: 1}}
arguments:
  - {name: out, kind: out, dtype: float32, shape: n}
  - {name: x, kind: in, dtype: float32, shape: n + taps - 1}
  - {name: weight, kind: in, dtype: float32, shape: taps}
  - {name: taps, kind: scalar, dtype: int32, value: taps}
shapes: {domain: [1 <= n, 1 <= taps], tune: [{n: 64, taps: 9}]}
"""
KERNEL = """\
kernel void conv(global float *out, global const float *x, global const float *weight, int taps) {
  float sum = 0;
  for (int tap = 0; tap < taps; tap++) sum += weight[tap] * x[get_global_id(0) + tap];
  out[get_global_id(0)] = sum;
}
"""


@pytest.fixture
def signature(tmp_path):
    (tmp_path / "conv.cl").write_text(KERNEL)
    (tmp_path / "spec.yaml").write_text(SPEC)
    return Signature(load_experiment(tmp_path / "spec.yaml"))


def view(*shape):
    size = 4 * int(np.prod(shape))
    strides = row_major(shape)
    return ArrayView(
        given=None, base=0, address=0, size=size, dtype="float32", shape=shape, strides=strides
    )


def checked(signature, out, x, weight, **more):
    given = Given({"out": view(out), "x": view(x), "weight": view(weight)}, **more)
    symbols = signature.shape(given)
    signature.check(given, symbols)
    return symbols


def test_extents_that_agree_are_the_shape(signature):
    assert checked(signature, 64, 72, 9) == {"n": 64, "taps": 9}


@pytest.mark.parametrize(("length", "taps"), [(72, 1), (90, -17)])
def test_arrays_that_disagree_are_both_named(signature, length, taps):
    with pytest.raises(SpecError) as error:
        checked(signature, length, 72, 9)
    assert str(error.value) == (
        "arguments 'x' and 'weight' disagree about 'taps': 'x' of shape (72,) with "
        f"n={length} from 'out' gives {taps}, 'weight' of shape (9,) gives 9"
    )


def test_an_array_that_disagrees_with_a_size_given_by_name_is_named(signature):
    with pytest.raises(SpecError) as error:
        checked(signature, 64, 72, 9, symbols={"n": 60})
    assert str(error.value) == "argument 'out': its shape is (64,), but [n] is (60,)"
