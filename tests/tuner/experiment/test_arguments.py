"""Arguments on one shape: sizes, strides, defaults and type symbols."""

import math

import ml_dtypes
import pytest

from tests.tuner.experiment import specs
from tuner.errors import SpecError
from tuner.experiment.arguments import (
    IntegerRange,
    holds,
    integer_limits,
    item_bytes,
    resolve_argument,
    resolve_arguments,
    type_name,
)
from tuner.experiment.contents import Tolerance
from tuner.experiment.load import load_experiment
from tuner.experiment.model import DTYPES, Argument
from tuner.experiment.tolerances import DEFAULT_TOLERANCES, EXACT, default_tolerance
from tuner.expressions import Expression
from workers.elements import is_float, numpy_dtype

parse = Expression.parse


def argument(kind="in", dtype="float32", shape=("n",), **rest):
    return Argument(name="a", kind=kind, dtype=dtype, shape=tuple(map(parse, shape)), **rest)


def test_every_argument_of_a_shape(tmp_path):
    experiment = load_experiment(specs.write(tmp_path, specs.CUDA_SPEC))
    out, x, n64, sums, n, table = resolve_arguments(experiment, {"n": 100, "T": "float16"})
    assert (out.dtype, out.shape, out.strides, out.size) == ("float16", (100, 4), (8, 1), 1592)
    assert out.tolerance == DEFAULT_TOLERANCES["float16"]
    assert (x.strides, x.align, x.elements, x.size) == ((4, 1), 16, 400, 800)
    assert (n64.value, n64.dtype) == (100, "int64")
    assert (sums.kind, sums.shape, sums.align) == ("scratch", (100,), 4)
    assert n.value == 100
    assert (table.fill, table.symbol) == (IntegerRange(lo=0, hi=100), "t")


def test_type_symbols_change_size_and_tolerance():
    wide = resolve_argument(argument("out", "T"), {"n": 3, "T": "float64"})
    assert (wide.size, wide.align, wide.tolerance) == (24, 8, DEFAULT_TOLERANCES["float64"])
    own = Tolerance(rtol=1.0, atol=2.0)
    assert resolve_argument(argument("out", tolerance=own), {"n": 3}).tolerance == own


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (argument(shape=["n - 3"]), "argument 'a' at n=3: shape: 'n - 3' is 0"),
        (argument(shape=["n // 0"]), "division by zero"),
        (argument(shape=["m"]), "unknown name 'm'"),
        (argument(shape=["2**40", "2**20"]), "the buffer takes"),
        (argument(dtype="T"), "unknown element type 'T'"),
        (argument(strides=(parse(1), parse(1))), "2 strides for 1 dimensions"),
        (argument("out", strides=(parse(0),)), "overlap"),
        (argument("out", shape=["n", 4], strides=(parse(3), parse(1))), "overlap"),
        (argument("scalar", "int32", ()), "needs a value"),
        (argument("scalar", "uint8", (), value=parse("n - 4")), "is -1, outside uint8"),
        (argument("scalar", "bool", (), value=parse(2)), "outside bool"),
        (argument("scalar", "float16", (), value=65520.0), "'65520.0' is 65520, outside float16"),
        (argument("scalar", "bfloat16", (), value=-3.4e38), r"-3.4e\+38, outside bfloat16"),
        (argument("scalar", "float32", (), value=1e39), r"1e\+39, outside float32"),
    ],
)
def test_what_does_not_come_out_right_says_where(given, said):
    with pytest.raises(SpecError, match=said.replace("*", ".")):
        resolve_argument(given, {"n": 3})


def test_inputs_may_overlap_and_scalars_take_their_type():
    broadcast = resolve_argument(argument(strides=(parse(0),)), {"n": 3})
    assert (broadcast.elements, broadcast.size) == (3, 4)
    half = resolve_argument(argument("scalar", "float16", (), value=parse("n")), {"n": 3})
    assert half.value == 3.0
    assert isinstance(half.value, float)
    assert resolve_argument(argument("null", ""), {}).dtype == ""


def test_the_tables_know_every_element_type():
    for dtype in DTYPES:
        assert item_bytes(dtype) in (1, 2, 4, 8)
        assert type_name(dtype, "cuda")
        tolerance = default_tolerance(dtype)
        assert (tolerance == EXACT) == (dtype not in DEFAULT_TOLERANCES)
        assert math.isfinite(tolerance.rtol)
    assert integer_limits("int8") == (-128, 127)
    assert integer_limits("uint64") == (0, 2**64 - 1)
    for dtype in (one for one in DTYPES if is_float(one)):
        largest = float(ml_dtypes.finfo(numpy_dtype(dtype)).max)
        for value in (largest, math.nextafter(largest, math.inf), -math.inf, math.nan):
            assert holds(dtype, value)
        assert not holds(dtype, 2 ** math.frexp(largest)[1])
    with pytest.raises(SpecError, match="opencl has no element type 'bfloat16'"):
        type_name("bfloat16", "opencl")
