"""From what a launch left behind to a verdict, without a device."""

from dataclasses import replace

import numpy as np
import pytest

from tuner.experiment.arguments import ResolvedArgument
from tuner.trial import Code, Stage
from workers.comparison import ArrayComparison, Expected
from workers.devices.port import Damage, DeviceFailure, Inspection
from workers.integrity.launch_checks import (
    VerificationCase,
    agreeing,
    check,
    rejected,
)
from workers.integrity.trivial_answers import trivial_answer

POISON = 0xFF
WANT = np.arange(12.0).reshape(3, 4) - 3


def argument(kind="out", name="out", **fields) -> ResolvedArgument:
    fields = {"shape": (3, 4), "strides": (4, 1)} | fields
    return ResolvedArgument(name=name, kind=kind, dtype="float32", **fields)


def case(want=WANT, contents=None, atol=1e-3, rtol=1e-3) -> VerificationCase:
    return VerificationCase(
        shape=1,
        label="first seed",
        contents=contents or {},
        expected={"out": Expected(path="", dtype="float64", mode="close", rtol=rtol, atol=atol)},
        wants={"out": want},
    )


def seen(array=WANT, damage=None, comparisons=None) -> Inspection:
    outputs = {"out": np.asarray(array, np.float32).tobytes()}
    return Inspection(damage=damage, outputs=outputs, comparisons=comparisons or {})


def verdict(inspection: Inspection, given: ResolvedArgument | None = None) -> DeviceFailure | None:
    try:
        check(case(), inspection, {"out": given or argument()}, POISON)
    except DeviceFailure as failure:
        return failure
    return None


def test_the_right_answer_passes() -> None:
    assert verdict(seen()) is None


def test_a_wrong_element_is_named_with_what_was_expected() -> None:
    wrong = WANT.copy()
    wrong[2, 1] = 7
    failure = verdict(seen(wrong))
    assert failure.code == Code.WRONG_RESULT
    assert failure.detail.startswith("out[2, 1] is 7 instead of 6, ")
    assert "1 of 12 elements wrong; first seed" in failure.detail


def test_the_first_wrong_element_is_named_beside_the_worst() -> None:
    wrong = WANT.copy()
    wrong[0, 2], wrong[2, 1] = 2.5, 700
    detail = verdict(seen(wrong)).detail
    assert detail.startswith("out[2, 1] is 700 instead of 6, ")
    assert "2 of 12 elements wrong, the first out[0, 2]; first seed" in detail


def test_elements_that_still_hold_the_poison_were_not_written() -> None:
    partly = np.asarray(WANT, np.float32)
    partly[2] = np.full(4, 0xFFFFFFFF, np.uint32).view(np.float32)
    failure = verdict(seen(partly))
    assert failure.code == Code.NOT_WRITTEN
    assert "4 of 12 elements of out not written, such as out[2, 0]" in failure.detail


def test_damage_comes_before_wrong_values() -> None:
    nothing = np.zeros((3, 4))
    failure = verdict(seen(nothing, Damage(argument="out", where="back", offset=16)))
    assert failure.code == Code.OUT_OF_BOUNDS
    assert "writes 16 bytes behind the end of out" in failure.detail
    failure = verdict(seen(nothing, Damage(argument="out", where="idle", offset=16)))
    assert failure.code == Code.OUT_OF_BOUNDS
    assert "writes out of a launch that has not begun" in failure.detail
    failure = verdict(seen(nothing, Damage(argument="x", where="input", offset=8)))
    assert failure.code == Code.INPUT_OVERWRITTEN


def test_a_device_may_have_compared_already() -> None:
    found = ArrayComparison(
        failures=2, unwritten=0, poisoned=0, index=5, first=5, got=1.0, want=2.0, error=9.0
    )
    inspection = Inspection(damage=None, outputs={}, comparisons={"out": found})
    assert "out[1, 1] is 1 instead of 2, 9 times the bound;" in verdict(inspection).detail


def test_where_there_is_no_bound_none_is_named() -> None:
    found = ArrayComparison(
        failures=1, unwritten=0, poisoned=0, index=5, first=5, got=1234567.0, want=2.0, error=np.inf
    )
    inspection = Inspection(damage=None, outputs={}, comparisons={"out": found})
    failure = verdict(inspection, replace(argument(), dtype="int32"))
    assert failure.detail.startswith("out[1, 1] is 1234567 instead of 2; 1 of 12 elements wrong;")


@pytest.mark.parametrize("outputs", [{}, {"out": b"short"}])
def test_bytes_that_are_not_there_are_a_crash(outputs) -> None:
    inspection = Inspection(damage=None, outputs=outputs, comparisons={})
    failure = verdict(inspection)
    assert failure.code == Code.CRASH
    assert failure.sticky


@pytest.mark.parametrize("kind", ["out", "inout"])
def test_gaps_of_strides_are_out_of_bounds(kind) -> None:
    padded = argument(kind, shape=(3, 4), strides=(5, 1))
    storage = np.full(14, 0xFFFFFFFF, np.uint32).view(np.float32).copy()
    for row in range(3):
        storage[5 * row : 5 * row + 4] = WANT[row]
    assert verdict(seen(storage), padded) is None
    storage[4] = 1.0
    assert verdict(seen(storage), padded).code == Code.OUT_OF_BOUNDS


@pytest.mark.parametrize(
    ("code", "stage"),
    [
        (Code.WRONG_RESULT, Stage.VERIFY),
        (Code.OUT_OF_BOUNDS, Stage.VERIFY),
        (Code.IMPOSSIBLE_TIME, Stage.TIME),
        (Code.SLOWER_AGAIN, Stage.TIME),
        (Code.HANG, Stage.LAUNCH),
        (Code.THREADS, Stage.LAUNCH),
    ],
)
def test_the_stage_follows_from_the_code(code, stage) -> None:
    outcome = rejected(DeviceFailure(code, "why"), 3)
    assert (outcome.stage, outcome.code, outcome.detail, outcome.shape) == (stage, code, "why", 3)


@pytest.mark.parametrize(
    ("want", "inputs", "atol", "says"),
    [
        (WANT, {}, 10.0, "filling it with zeros"),
        (WANT + 100, {}, 6.0, "filling it with its mean"),
        (WANT + 0.5, {"x": WANT}, 0.6, "a copy of x"),
        (0.5 - WANT, {"x": WANT}, 0.6, "the negation of x"),
        (WANT, {"out": WANT}, 1e-3, "leaving it as it was"),
    ],
)
def test_an_experiment_under_which_a_trivial_answer_passes_is_refused(
    want, inputs, atol, says
) -> None:
    given = [argument("inout" if "out" in inputs else "out")]
    inputs = {name: array.astype(np.float32) for name, array in inputs.items()}
    outcome = trivial_answer(case(want, atol=atol), given, inputs)
    assert outcome is not None
    assert says in outcome.detail


def test_a_tolerance_that_lets_half_of_an_answer_pass_is_refused() -> None:
    outcome = trivial_answer(case(rtol=0.6), [argument()], {})
    assert outcome is not None
    assert "half of the right answer passes for out" in outcome.detail
    assert trivial_answer(case(rtol=0.4), [argument()], {}) is None


@pytest.mark.parametrize("sign", [1, -1])
def test_a_copy_or_negation_is_let_pass_where_the_operation_is_one(sign) -> None:
    inputs = {"x": WANT.astype(np.float32)}
    assert trivial_answer(case(sign * WANT), [argument()], inputs) is None


def test_on_other_inputs_no_element_has_the_bound_of_another() -> None:
    bounded = replace(case(), bounds={"out": np.full(WANT.shape, 1e-9)})
    other = agreeing(bounded, seen(10 * WANT), {"out": argument()})
    check(other, seen(10 * WANT * 1.001), {"out": argument()}, POISON)
