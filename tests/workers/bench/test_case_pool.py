"""Each case is made once, however often it is asked for, and some are made ahead."""

import os
import threading
from collections import Counter

import pytest

from tuner.errors import EnvironmentProblem
from tuner.trial import Code, Rejected, Stage
from workers.bench.case_pool import LARGE_AT_ONCE, LARGE_ELEMENTS, CasePool
from workers.bench.input_specs import FIRST, FRESH, InputSpec
from workers.integrity.launch_checks import VerificationCase

WHOLE = InputSpec(label="whole", key="whole", distribution="whole")


def case(shape: int, spec: InputSpec) -> VerificationCase:
    return VerificationCase(shape=shape, label=spec.label, contents={}, expected={}, wants={})


@pytest.fixture
def pooled():
    pools = []

    def make(function, elements=1) -> CasePool:
        pools.append(CasePool(function, lambda _: elements))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def test_what_is_asked_for_while_it_is_made_is_made_once(pooled):
    made: Counter[tuple[int, str]] = Counter()
    begun, go_on = threading.Event(), threading.Event()

    def slow(shape: int, spec: InputSpec) -> VerificationCase:
        made[shape, spec.label] += 1
        begun.set()
        assert go_on.wait(10)
        return case(shape, spec)

    pool = pooled(slow)
    pool.make_ahead([(0, FIRST), (1, FIRST)])
    assert begun.wait(10)
    go_on.set()
    found = pool.cases([(1, FIRST), (0, FIRST), (0, FRESH)])
    assert [(one.shape, one.label) for one in found] == [
        (1, FIRST.label),
        (0, FIRST.label),
        (0, FRESH.label),
    ]
    assert pool.case(0, FIRST) is found[1]
    assert set(made.values()) == {1}


def test_a_narrower_case_stands_for_one_on_which_the_baseline_is_undefined(pooled):
    undefined = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="overflows")
    pool = pooled(lambda shape, spec: undefined if spec == WHOLE else case(shape, spec))
    (found,) = pool.cases([(0, WHOLE)])
    assert found.label == "values of most of the type's range"
    assert pool.case(0, WHOLE) is undefined


def test_what_failed_ahead_is_tried_again_when_it_is_asked_for(pooled):
    attempts = iter([EnvironmentProblem("not yet"), None])

    def make(shape: int, spec: InputSpec) -> VerificationCase:
        if problem := next(attempts):
            raise problem
        return case(shape, spec)

    pool = pooled(make, elements=LARGE_ELEMENTS)
    pool.make_ahead([(0, FIRST)])
    pool.settle()
    assert pool.cases([(0, FIRST)])[0].label == FIRST.label


def test_none_is_begun_in_a_pause_and_none_is_under_way(pooled):
    begun, go_on, made = threading.Event(), threading.Event(), []

    def slow(shape: int, spec: InputSpec) -> VerificationCase:
        begun.set()
        assert go_on.wait(10)
        made.append(shape)
        return case(shape, spec)

    pool = pooled(slow)
    pool.make_ahead([(0, FIRST)])
    assert begun.wait(10)
    threading.Timer(0.01, go_on.set).start()
    with pool.paused():
        assert made == [0]
        pool.make_ahead([(1, FIRST)])
        assert made == [0]
    assert pool.cases([(1, FIRST)])[0].shape == 1


@pytest.mark.parametrize(
    ("elements", "at_once"),
    [(LARGE_ELEMENTS, LARGE_AT_ONCE), (LARGE_ELEMENTS // (LARGE_AT_ONCE + 1), LARGE_AT_ONCE + 1)],
)
def test_more_large_cases_are_made_at_once_where_they_take_little_memory(
    pooled, monkeypatch, elements, at_once
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    together, most = threading.Barrier(at_once), Counter[str]()
    guard = threading.Lock()

    def make(shape: int, spec: InputSpec) -> VerificationCase:
        with guard:
            most["now"] += 1
            most["most"] = max(most["most"], most["now"])
        together.wait(10)
        with guard:
            most["now"] -= 1
        return case(shape, spec)

    pool = pooled(make, elements)
    pool.cases([(shape, FIRST) for shape in range(2 * at_once)])
    assert most["most"] == at_once


def test_closed_it_makes_nothing(pooled):
    pool = pooled(case)
    pool.close()
    with pytest.raises(EnvironmentProblem, match="closed"):
        pool.cases([(0, FIRST)])
