"""How far an answer may be off: as much as its numbers are large, and no more."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.workers.harness import Laboratory, opened_oracle
from tuner.experiment.arguments import ResolvedArgument
from tuner.experiment.contents import Tolerance
from tuner.experiment.tolerances import default_tolerance
from tuner.trial import Measured, Rejected
from workers.bench.input_specs import FIRST, InputSpec
from workers.bounds import depend_on_each_other, local_bounds, magnitude, output_bound, widened
from workers.comparison import compare
from workers.integrity.launch_checks import VerificationCase
from workers.integrity.trivial_answers import unnoticed_omissions

ROWSUM = Path(__file__).parent.parent / "exploits" / "experiments" / "rowsum"
GIVEN = ", tolerance: {rtol: 1e-5, atol: 1e-3}"
LARGE = InputSpec(label="large magnitudes", distribution="large")
SERIAL = """\
kernel void rowsum(global float *out, global const float *x)
{
    if (get_local_id(0)) return;
    float sum = 0.0f;
    for (int k = 0; k < 4096; k++) sum += x[get_group_id(0) * 4096 + k];
    out[get_group_id(0)] = sum * SCALE;
}
"""


@pytest.fixture(scope="module", params=["default", "given"])
def laboratory(request, tmp_path_factory):
    """The row sums without a reference, and but for one without a tolerance."""
    folder = tmp_path_factory.mktemp("rowsum") / "copy"
    shutil.copytree(ROWSUM, folder)
    spec = folder / "experiment.yaml"
    text = spec.read_text().replace("reference: reference.py:rowsum\n", "")
    spec.write_text(text if request.param == "given" else text.replace(GIVEN, ""))
    made = Laboratory(spec)
    yield made
    made.close()


def test_sums_in_another_order_are_right_and_others_are_not(laboratory) -> None:
    right = laboratory.outcome(SERIAL.replace("SCALE", "1.0f"))
    assert isinstance(right, Measured), right
    wrong = laboratory.outcome(SERIAL.replace("SCALE", "1.001f"))
    assert isinstance(wrong, Rejected)
    assert "times the bound" in wrong.detail


def test_the_absolute_tolerance_grows_with_the_answers(laboratory, tmp_path) -> None:
    with opened_oracle(laboratory, tmp_path) as (_, oracle):
        first, large = oracle.case(0, FIRST), oracle.case(0, LARGE)
    assert isinstance(first, VerificationCase)
    assert isinstance(large, VerificationCase)
    grown = magnitude(large.wants["out"]) / magnitude(first.wants["out"])
    assert grown == pytest.approx(32, rel=0.5)
    (argument,) = [a for a in laboratory.experiment.arguments if a.name == "out"]
    base = 1e-3 if argument.tolerance else 1e-5 * magnitude(first.wants["out"])
    assert first.expected["out"].atol == pytest.approx(base)
    assert large.expected["out"].atol == pytest.approx(base * grown)
    assert large.expected["out"].rtol == first.expected["out"].rtol


def test_what_is_no_number_says_nothing_of_how_large_the_others_are() -> None:
    odd = np.array([0.0, np.nan, np.inf, -np.inf, -3.0, 2.0, 4.0], np.float16)
    assert magnitude(odd) == 3.0
    assert magnitude(odd[:4]) == 0.0
    assert magnitude(np.zeros((0, 3))) == 0.0
    assert magnitude(np.full((3, 2**20), 5, np.float32)) == 5.0


def output(shape, dtype="float32", tolerance=None) -> ResolvedArgument:
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    return ResolvedArgument(
        name="out",
        kind="out",
        dtype=dtype,
        shape=shape,
        strides=strides,
        tolerance=tolerance or default_tolerance(dtype),
    )


def bounds_of(want, dtype="float32", given=None, growth=1.0):
    argument = output(want.shape, dtype, given)
    bound = output_bound(argument, growth)
    return bound, local_bounds(argument, bound, want, given=given is not None)


@pytest.mark.parametrize("shape", [(5,), (40_000,), (16, 4), (300, 700), (3, 5, 7, 64)])
def test_elements_of_one_magnitude_have_one_bound(shape) -> None:
    for seed in range(10):
        want = np.random.default_rng(seed).standard_normal(shape)
        assert bounds_of(want)[1] is None


@pytest.mark.parametrize("small", [(slice(None), 3), (5,), (slice(0, 512),)])
def test_small_neighbours_are_checked_by_their_own_magnitude(small) -> None:
    want = np.random.default_rng(1).standard_normal(
        (2048,) if small[0] == slice(0, 512) else (64, 32)
    )
    want[small] *= 1e-3
    bound, bounds = bounds_of(want)
    answer = want.copy()
    answer[small] = 0
    assert compare(answer, want, bound, bounds=bounds).failures > 0.9 * want[small].size
    noise = 3e-6 * np.random.default_rng(2).standard_normal(want.shape)
    noise[small] *= 1e-3
    assert compare(want + noise, want, bound, bounds=bounds).failures == 0


def test_a_large_row_may_have_larger_errors() -> None:
    want = np.random.default_rng(1).standard_normal((64, 64))
    want[7] *= 1e4
    want[7, 3] = 0.5
    bound, bounds = bounds_of(want)
    answer = want.copy()
    answer[7, 3] += 0.01
    assert compare(answer, want, bound, bounds=bounds).failures == 0
    answer[8, 3] += 0.01
    assert compare(answer, want, bound, bounds=bounds).failures == 1


@pytest.mark.parametrize("part", [(5, slice(4, None)), (slice(8, None), 3)], ids=["row", "column"])
def test_a_row_or_column_is_small_only_if_all_its_numbers_are(part) -> None:
    """Behind an activation most are nearly 0, and the rest as far off as elsewhere."""
    want = np.random.default_rng(3).standard_normal((64, 32))
    want[part] *= 1e-3
    _, bounds = bounds_of(want)
    assert bounds is None


def test_a_given_tolerance_never_shrinks_but_grows_less_where_results_are_small() -> None:
    want = np.random.default_rng(1).standard_normal((64, 32))
    want[:, 3] *= 1e-3
    given = Tolerance(rtol=0.0, atol=1e-3)
    assert bounds_of(want, given=given)[1] is None
    _, bounds = bounds_of(want, given=given, growth=32.0)
    assert bounds is not None
    assert np.unique(bounds[:, 3]) == pytest.approx([1e-3])
    assert bounds[:, 4] == pytest.approx(32e-3)


def test_bounds_widen_where_the_baseline_errs() -> None:
    want = np.random.default_rng(1).standard_normal((2048, 4))
    bound, _ = bounds_of(want)
    errors = np.zeros(want.shape)
    assert widened(bound, None, want, errors) == (bound, None)
    wider, bounds = widened(bound, None, want, errors + 5.0)
    assert (wider.atol, wider.rtol, bounds) == (5 * bound.atol, 5 * bound.rtol, None)
    errors[100, 2] = 40.0
    wider, bounds = widened(bound, None, want, errors)
    assert (wider.atol, wider.rtol) == (40 * bound.atol, 40 * bound.rtol)
    assert bounds is not None
    plain = bound.atol + bound.rtol * np.abs(want)
    assert bounds[101, 2] == pytest.approx(40 * plain[101, 2])
    assert bounds[101, 1] == pytest.approx(plain[101, 1])
    assert bounds[2000, 2] == pytest.approx(plain[2000, 2])


@pytest.mark.parametrize("running", [True, False])
def test_a_running_sum_has_no_local_bounds_and_other_small_results_have(running) -> None:
    numbers = np.random.default_rng(3).standard_normal(600_000).astype(np.float32)
    if running:
        numbers -= numbers.mean()  # the last sums are near 0, their errors are those of large ones
        want, got = np.cumsum(numbers, dtype=np.float64), np.cumsum(numbers)
    else:
        numbers[20_000:20_512] *= 1e-3
        want, got = numbers * np.pi, numbers * np.float32(np.pi)
    bound, bounds = bounds_of(want, growth=magnitude(want))
    assert bounds is not None
    whole, local = np.zeros(want.size, np.float32), np.zeros(want.size, np.float32)
    compare(got, want, bound, largest=whole)
    compare(got, want, bound, bounds=bounds, largest=local)
    assert depend_on_each_other(want, local, whole) == running
    rows = np.resize(want, (600, 100))
    assert not depend_on_each_other(rows, local, whole)


@pytest.mark.parametrize(("atol", "noted"), [(1e-5, False), (0.1, True)])
def test_results_that_may_be_left_out_unnoticed_are_noted(atol, noted) -> None:
    want = np.random.default_rng(1).standard_normal((64, 32))
    argument = output(want.shape, tolerance=Tolerance(rtol=1e-5, atol=atol))
    case = VerificationCase(
        shape=0,
        label="",
        contents={},
        expected={"out": output_bound(argument, 1.0)},
        wants={"out": want},
    )
    notes = list(unnoticed_omissions([argument], case))
    assert bool(notes) == noted
    assert all("its smallest 1 % (up to 0.01" in note for note in notes)
