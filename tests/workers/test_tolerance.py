"""How far an answer may be off: as much as its numbers are large, and no more."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.workers.harness import Laboratory, opened_oracle
from tuner.trial import Measured, Rejected
from workers.bench.input_specs import FIRST, InputSpec
from workers.bench.oracle import magnitude
from workers.integrity.launch_checks import VerificationCase

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
