"""The estimate: bounded by budgets, and growing with what there is to do."""

import re
from dataclasses import replace

import pytest

from tests.tuner.engine.driving import CPU, GPU, Run, experiment, fleet
from tests.tuner.engine.simulated_fleet import Durations
from tuner.engine.progress import ENDLESS, seconds_left
from tuner.errors import SpecError
from tuner.experiment.model import Cost
from tuner.expressions import Expression
from tuner.journal.facts import ConfirmationSampled
from tuner.journal.history import History
from tuner.report.estimate import BYTES_PER_SECOND, CHECK_SECONDS_PER_MIB, MOST_TIMES, estimate


def of(
    trials=100,
    device=GPU,
    space=1000,
    slots=1,
    benches=1,
    seconds=1e6,
    size=None,
    left=None,
    **more,
):
    given = experiment(trials=trials, seconds=seconds)
    if size:
        given = replace(given, cost=Cost(bytes=Expression.parse(size)))
    slots_of = {"compile_slots": slots, "bench_slots": benches}
    return estimate(given, device, space, trials=left, **slots_of, **more)


def test_trials_are_bounded_by_the_space_and_seconds_by_the_budget():
    assert of(trials=100, space=40).trials == 40
    assert of(trials=100, space=4000).trials == 100
    found = of(trials=10**6, space=10**7, seconds=30.0)
    whole = found.prepare_seconds + found.search_seconds + found.confirm_seconds
    assert whole == pytest.approx(30.0)


def test_a_budget_that_cannot_hold_preparing_and_confirming_is_refused_with_the_one_needed():
    least = of().least_seconds
    with pytest.raises(SpecError, match=r"search.seconds is 5, .* alone take roughly") as refused:
        of(seconds=5.0).require_time()
    needed = int(re.search(r"--seconds (\d+) or more", str(refused.value)).group(1))
    assert 1.5 * least <= needed < 1.5 * least + 1
    assert "or more (1.5 times as much, so that time is left to search)" in str(refused.value)
    of(seconds=float(needed)).require_time()


def test_measured_times_of_the_baseline_replace_what_is_assumed():
    slow = of(baseline_ns=[1e8, 1e8, 1e8])
    assert slow.prepare_seconds == 0
    assert slow.confirm_seconds > 10 * of(baseline_ns=[1e4, 1e4, 1e4]).confirm_seconds


def searched(bench):
    """The history of a run whose trials take so many seconds of a bench."""
    return Run(experiment()).drive(fleet(durations=Durations(bench=bench))).history


def taking(history, seconds, ratio):
    """Have each trial of a bench take so long, and its configuration so many baseline's times."""
    for one in history.trials.values():
        if one.device_seconds:
            cells = tuple(
                replace(cell, median_ns=ratio * cell.baseline_ns) for cell in one.outcome.cells
            )
            one.device_seconds, one.outcome = seconds, replace(one.outcome, cells=cells)


def test_the_pace_of_trials_corrects_an_estimate():
    quick, slow = searched(0.01), searched(0.01)
    expected = of()
    taking(quick, 0.01, ratio=1.0)
    taking(slow, 0.1, ratio=1.0)
    assert expected.pace(slow) == pytest.approx(0.1 / expected.trial_seconds, rel=0.01)
    assert expected.pace(quick) < expected.pace(slow)
    assert expected.pace(History.of(experiment(), [])) == 1.0
    assert of(baseline_ns=[1e9, 1e9, 1e9]).pace(slow) == 1.0


def test_what_other_processes_use_of_the_devices_takes_time_too():
    alone, shared = (
        Run(experiment()).drive(fleet(durations=Durations(bench=0.1, share=share))).history
        for share in (0.0, 3.0)
    )
    assert (alone.clock.stretch, shared.clock.stretch) == (1.0, pytest.approx(4.0))
    assert of().pace(shared) == pytest.approx(min(MOST_TIMES, 4 * of().pace(alone)))


def test_slow_first_trials_do_not_set_the_pace():
    history = searched(0.01)
    expected = of()
    quick = [one for one in history.trials.values() if one.device_seconds]
    for one in quick[: len(quick) // 2 + 1]:
        one.device_seconds = 100 * expected.trial_seconds
    for one in quick[len(quick) // 2 + 1 :]:
        one.device_seconds = expected.trial_seconds
    assert expected.pace(history) == pytest.approx(1.0)


def test_slow_configurations_do_not_set_the_pace():
    history = searched(0.01)
    expected = of()
    taking(history, 8 * expected.trial_seconds, ratio=4.0)
    assert expected.pace(history) == pytest.approx(2.0)


def test_what_confirming_must_still_take_goes_down_with_its_processes():
    run, expected = Run(experiment(trials=20)), of(checker_bytes=8 << 20)
    run.drive(fleet(durations=Durations(bench=0.01)))
    kinds = [type(fact) for fact in run.facts]
    before = History.of(run.experiment, run.entries[: kinds.index(ConfirmationSampled)])
    at_end = History.of(run.experiment, run.entries)
    assert expected.confirming(before, rest=True) == expected.confirm_seconds
    assert expected.confirming(at_end, rest=True) == expected.checker_seconds > 0
    assert expected.confirming(at_end, rest=False) == 0


def test_more_work_takes_longer_and_more_workers_less():
    assert of(trials=200).search_seconds > of(trials=100).search_seconds
    assert of(size="1024 * n").search_seconds < of(size="1024 * 1024 * n").search_seconds
    assert of(slots=8).search_seconds < of().search_seconds
    assert of(benches=4).confirm_seconds < of().confirm_seconds
    assert of(device=CPU, size="1024 * n").search_seconds > of(size="1024 * n").search_seconds


def test_large_shapes_cost_an_oracle_before_and_after_the_search_and_huge_ones_no_more():
    small, large, huge = (of(size=size) for size in ("n", "2**15 * n", "2**18 * n"))
    assert large.prepare_seconds > 1.5 * small.prepare_seconds
    assert large.confirm_seconds > 1.1 * small.confirm_seconds
    assert huge.prepare_seconds < 2 * large.prepare_seconds


def test_each_round_of_agents_confirms_on_the_tune_shapes_and_prepares_nothing_again():
    assert of().confirm_seconds < of(rounds=3).confirm_seconds < 3 * of().confirm_seconds
    assert of(rounds=3).prepare_seconds == of().prepare_seconds
    assert of(rounds=3).search_seconds == of().search_seconds


def test_where_no_cost_is_given_the_arguments_are_moved_once():
    assert of(device=CPU).search_seconds == of(device=CPU, size="4 * n").search_seconds


def test_large_shapes_are_checked_for_as_long_as_they_are_timed_and_longer():
    mebibytes = 256 + 1024
    measure = experiment().measure
    timed = (measure.warmup + measure.repeats) * mebibytes * 2**20 / BYTES_PER_SECOND[True]
    checked = CHECK_SECONDS_PER_MIB[True] * mebibytes
    found = of(device=CPU, size="2**20 * n", trials=10, slots=10**6)
    assert found.search_seconds > 10 * (timed + checked)
    assert found.confirm_seconds > 3 * 3 * (timed + checked)


def test_the_checkers_at_the_end_count_as_far_as_a_shape_fits_them():
    without = of(device=CPU).confirm_seconds
    assert of(device=CPU, checker_bytes=1 << 19).confirm_seconds > without + 0.3
    assert of(device=CPU, checker_bytes=1).confirm_seconds == without
    assert of(checker_bytes=8 << 20, rounds=2).confirm_seconds > of(rounds=2).confirm_seconds + 1


def test_of_a_run_that_was_begun_only_what_is_left_counts():
    whole, rest = of(trials=40), of(trials=40, left=10, confirmed=1)
    assert (whole.trials, rest.trials) == (40, 10)
    assert rest.search_seconds == pytest.approx(whole.search_seconds / 4)
    assert rest.confirm_seconds < whole.confirm_seconds
    assert rest.prepare_seconds == whole.prepare_seconds
    more, less = (of(trials=10**6, space=10**7, seconds=60.0, spent=s) for s in (0.0, 20.0))
    assert less.search_seconds == pytest.approx(more.search_seconds - 20.0)
    assert str(of(trials=40, left=0)).startswith("confirming, ")


def test_the_budget_that_is_spent_first_ends_it():
    assert seconds_left(10.0, [(2, 6), (5.0, 10.0)]) == 20
    assert seconds_left(10.0, [(2, 6), (0, 10)]) == 30
    assert seconds_left(10.0, [(2, -1)]) == 0
    assert seconds_left(10.0, [(0, 4)]) is None


def test_before_anything_is_measured_the_trials_are_told_or_the_time_whichever_is_sure():
    assert of(trials=40, space=123).prospect == "40 of 123 configurations"
    assert of(trials=40, left=0).prospect == "confirming"
    short = of(trials=40, space=123, seconds=of(trials=40).least_seconds + 1)
    assert short.prospect == f"searching and confirming within {short.budget_seconds:.0f} s"
    spent = of(trials=40, space=123, seconds=0.1)
    assert spent.prospect == f"searching and confirming within {spent.least_seconds:.0f} s"


def test_it_reads_as_one_line_that_promises_no_end_but_the_budget():
    found = of(trials=40, space=123, seconds=600.0)
    whole = found.prepare_seconds + found.search_seconds + found.confirm_seconds
    assert str(found) == (
        f"40 of 123 configurations, {whole:.0f} s or more, up to 10 min (unknown until a run has "
        "timed the baseline)"
    )
    assert str(of(trials=40, space=None)).startswith("at most 40 configurations, ")
    assert " s or more (unknown until" in str(of(seconds=float(ENDLESS)))
    short = of(trials=10**6, space=10**7, seconds=60.0)
    assert str(short) == "1000000 of 10000000 configurations, or as many as 60 s allow"
