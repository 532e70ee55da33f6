"""Why a baseline is rejected: what rounding explains is told from what it does not."""

import pytest

from tuner.experiment.arguments import ResolvedArgument
from tuner.trial import Code
from workers.bench.baseline_rejections import disagreement, is_wrong
from workers.comparison import ArrayComparison, Expected


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol", "got", "want", "code"),
    [
        ("float32", 1e-5, 1e-4, 12.1912, 12.1917, Code.ROUNDING),
        ("float32", 1e-5, 1e-4, 0.0014, 0.001, Code.ROUNDING),  # a sum whose terms cancel
        ("float32", 1e-5, 1e-4, 12.3, 12.1917, Code.DISAGREES),
        ("float32", 1e-2, 0.0, 12.4, 12.1917, Code.DISAGREES),
        ("float16", 1e-3, 1e-3, 12.1, 12.1917, Code.ROUNDING),
        ("float32", 0.0, 0.0, 12.1912, 12.1917, Code.DISAGREES),
        ("float32", 1e-5, 1e-4, float("nan"), 12.1917, Code.DISAGREES),
        ("int32", 0.0, 1.0, 14.0, 12.0, Code.DISAGREES),
    ],
)
def test_an_error_of_the_size_of_rounding_is_told_from_a_gross_one(
    dtype, rtol, atol, got, want, code
):
    bound = atol + rtol * abs(want)
    error = abs(got - want) / bound if bound and got == got else float("inf")
    found = ArrayComparison(
        failures=1, unwritten=0, poisoned=0, index=0, first=0, got=got, want=want, error=error
    )
    own = Expected(path="", dtype=dtype, mode="close", rtol=rtol, atol=atol)
    rejection = disagreement(
        ResolvedArgument(name="out", kind="out", dtype=dtype, shape=(6,)), found, own
    )
    assert rejection.code is code
    assert is_wrong(rejection)
