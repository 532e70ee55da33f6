"""A timeline tells benches that work together from benches that take turns."""

import pytest

from tests.benchmarks.timeline import all_busy, timeline
from tuner.journal.facts import BaselinePrepared, Entry, Span, TrialFinished
from tuner.trial import Code, Measured, Rejected, Stage


def finished(trial, bench, begin, end):
    fact = TrialFinished(
        trial=trial,
        outcome=Measured(cells=()),
        device_seconds=end - begin,
        span=Span(worker=bench, began=1e9 + begin, ended=1e9 + end),
    )
    return Entry(fact, t=end)


def timeline_of(*entries):
    return timeline([Entry(BaselinePrepared(result=())), *entries])


def test_two_that_work_together():
    entries = [finished(n, "ab"[n % 2], n // 2, n // 2 + 0.75) for n in range(20)]
    found = timeline_of(*entries)
    assert found["trials"] == 20
    assert found["per_second"] == pytest.approx(20 / 9.75)
    assert found["at_once"] == pytest.approx(2 * 7.5 / 9.75)
    assert found["benches"]["a"] == {"trials": 10, "idle": pytest.approx(1 - 7.5 / 9.75)}
    assert all_busy(found, 2)
    assert not all_busy(found, 3)


def test_two_that_take_turns():
    found = timeline_of(*(finished(n, "ab"[n % 2], n, n + 1) for n in range(20)))
    assert found["at_once"] == pytest.approx(1.0)
    assert not all_busy(found, 2)


def test_an_answer_that_comes_late_leaves_no_bench_idle():
    late = [0.3 * (n % 2) for n in range(9)] + [0.0]
    found = timeline_of(*(finished(n, "a", n + late[n], n + 1 + late[n]) for n in range(10)))
    assert found["benches"]["a"]["idle"] == pytest.approx(0.0)


def test_one_name_for_all_is_one_bench():
    assert not all_busy(timeline_of(*(finished(n, "a", n, n + 1) for n in range(9))), 2)


def test_what_no_bench_ever_saw_counts_as_time_alone():
    refused = TrialFinished(
        trial=0,
        outcome=Rejected(stage=Stage.COMPILE, code=Code.COMPILE_ERROR, detail="no"),
    )
    found = timeline_of(Entry(refused, t=4.0))
    assert (found["trials"], found["seconds"], found["benches"]) == (0, 4.0, {})
