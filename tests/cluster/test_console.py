"""What the live line says."""

from dataclasses import replace
from io import StringIO

import pytest

from cluster.cli.console import Activity, display
from tests.tuner.engine.driving import Run, experiment, fleet
from tests.tuner.engine.simulated_fleet import Fault
from tuner.engine.progress import ENDLESS, Pace, RunProgress, phase_left
from tuner.engine.session import Session
from tuner.journal.facts import Entry, EpochOpened, TrialFinished
from tuner.journal.history import History

SEARCHING = RunProgress(
    phase="search",
    now=106.2,
    finished=3,
    merged=0,
    rejected=1,
    trials=10,
    searched=6.2,
    seconds=20.0,
    device=3.0,
    device_seconds=None,
    speedup=2.97,
    leader="TC=1 TR=64",
    confirmations=2,
    processes=5,
)


def test_what_only_the_search_saw_is_not_told_as_the_result():
    found = "2.97× with TC=1 TR=64"
    assert str(SEARCHING) == f"search: 3/10 trials, 1 rejected, 6/20 s; best {found}"
    confirming = replace(SEARCHING, phase="confirm")
    assert (
        str(confirming)
        == f"confirm: 2 of at most 5 processes, 1 rejected; best of the search {found}"
    )
    confirmed = replace(confirming, confirmations=5)
    assert str(confirmed).startswith("confirm: 5 of at most 5 processes, 1 rejected; best")
    assert str(replace(confirmed, checkers=True)) == str(confirmed)
    assert str(replace(confirmed, checkers=True, examining=True)).startswith(
        "confirm: 5 of at most 5 processes, 1 rejected, "
        "checking winners for memory errors and races; best"
    )
    finished = replace(SEARCHING, phase="finished", round=2)
    assert str(finished) == "round 2: finished: 3 trials, 1 rejected"


def test_what_is_left_is_told_once_it_is_known():
    assert "3/10 trials, 1 rejected, 6/20 s, about 14 s left; best" in str(
        replace(SEARCHING, left=14.4)
    )
    assert "left" not in str(replace(SEARCHING, left=0.4))
    confirming = replace(SEARCHING, phase="confirm", left=300.0)
    assert "confirm: 2 of at most 5 processes, 1 rejected, about 5 min left; best" in str(
        confirming
    )


def test_a_search_whose_time_is_over_says_what_the_rest_is_for():
    late = replace(SEARCHING, searched=7.0, seconds=7.0)
    assert "1 rejected, 7 s; any time left is for confirming; best" in str(late)
    first = replace(late, finished=0, rejected=0, speedup=None)
    assert str(first).endswith("0 rejected, 7 s; the time is over, so only few are tried")


BEGUN = replace(SEARCHING, now=0.0, finished=0, searched=0.0, seconds=1e6, device=0.0, trials=60)
LATER = replace(BEGUN, now=30.0, finished=3, searched=30.0, device=6.0)


@pytest.mark.parametrize(
    ("changed", "space", "seconds"),
    [
        ({}, 1000, 570),
        ({"finished": 2}, 1000, None),
        ({"merged": 3}, 60, 270),
        ({"merged": 3}, 1000, 570),
        ({"seconds": 100.0}, 1000, 70),
        ({"device_seconds": 8.0}, 1000, 10),
        ({"seconds": ENDLESS}, 1000, None),
        ({"again": "1 measured again, since it is"}, 1000, None),
    ],
)
def test_a_search_ends_with_the_first_budget_that_is_spent(changed, space, seconds):
    assert phase_left(BEGUN, replace(LATER, **changed), space) == (
        None if seconds is None else pytest.approx(seconds)
    )


def test_a_resumed_search_goes_by_its_own_pace():
    begun = replace(BEGUN, finished=40, searched=4000.0)
    later = replace(begun, now=30.0, finished=43, searched=4030.0)
    assert phase_left(begun, later, 1000) == pytest.approx(170)


def test_confirming_takes_what_its_processes_tell_and_other_phases_have_no_pace():
    pace = Pace(1000)
    pace.left(BEGUN)
    assert pace.left(LATER) == pytest.approx(570)
    first = replace(LATER, phase="confirm", now=100.0, confirmations=0)
    assert pace.left(first) is None
    second = replace(first, now=120.0, confirmations=2, confirming=6.0)
    assert pace.left(second) == pytest.approx(6)
    assert pace.left(replace(second, now=121.0)) == pytest.approx(5)
    assert pace.left(replace(second, phase="finished", confirming=None)) is None


def test_time_that_passes_without_an_answer_is_taken_off_what_is_left():
    pace = Pace(1000)
    pace.left(BEGUN)
    assert pace.left(LATER) == pytest.approx(570)
    assert pace.left(replace(LATER, now=50.0, searched=50.0)) == pytest.approx(550)
    assert pace.left(replace(LATER, now=999.0, searched=999.0)) == 0


def shown_lines(*pictures):
    stream = StringIO()
    with display(stream) as show:
        for picture in pictures:
            show(picture)
    return stream.getvalue().splitlines()


def test_a_bench_that_is_lost_is_worth_a_line():
    lost = replace(SEARCHING, missing="1 bench lost (on node7: no driver)")
    first, second = shown_lines(SEARCHING, lost)
    assert second == f"{first}; 1 bench lost (on node7: no driver)"
    assert "no driver" not in str(replace(lost, lost="gpu: it died"))


def test_a_long_wait_for_a_device_is_worth_a_line():
    waiting = replace(SEARCHING, waiting="gpu-1 is in use by process 7, waiting for it")
    first, second, *_ = shown_lines(SEARCHING, waiting)
    assert second == f"{first}; gpu-1 is in use by process 7, waiting for it"


def test_short_waits_for_devices_are_worth_a_line_once_they_sum_up():
    first, second, *_ = shown_lines(
        *(replace(SEARCHING, waited=seconds) for seconds in (4.9, 5.1, 6.2))
    )
    assert second == f"{first}; waited 5 s for devices in use by other processes"


def test_the_last_confirmation_is_named_in_words():
    last = replace(SEARCHING, round=1, suffix="-meanwhile2-final1")
    assert str(last).startswith("round 1 (while a model was asked, confirming the winners): ")


def test_no_line_is_printed_twice():
    further = replace(SEARCHING, round=1, suffix="-meanwhile2")
    asking = Activity(round=2, words="planning")
    assert shown_lines(further, asking, further, asking) == [
        f"kernelwright: {further}",
        f"kernelwright: {asking}",
    ]


def test_the_searches_of_a_round_and_what_is_asked_for_a_draft_are_told_apart():
    rungs = [replace(SEARCHING, round=1, suffix=one) for one in ("-d0-rung0", "-d1-rung0", "")]
    drafts = [Activity(round=1, suffix=suffix, words="generation") for suffix in ("", "-d1")]
    lines = shown_lines(*drafts, *rungs)
    assert [line.split(": ")[1] for line in lines] == [
        "round 1",
        "round 1 (draft 1)",
        "round 1 (draft 0, rung 0)",
        "round 1 (draft 1, rung 0)",
        "round 1",
    ]


def test_a_search_without_an_end_names_none():
    assert "6 s; best" in str(replace(SEARCHING, seconds=float(ENDLESS)))


def progress_lines(history, facts):
    """What is shown while these facts are added to a history."""
    stream = StringIO()
    with display(stream) as show:
        for fact in facts:
            if isinstance(fact, EpochOpened):
                history.apply(Entry(fact))
                session = Session(history, secret=1)
            else:
                session.apply(Entry(fact))
            show(RunProgress.of(session, 0.0))
    return stream.getvalue().splitlines()


def test_what_another_environment_measures_again_is_said_once():
    run = Run(experiment())
    run.drive(fleet())
    history = History(run.experiment)
    kinds = [fact.kind for fact in run.facts]
    facts = run.facts[: kinds.index("search.ended")]
    assert not any("again" in line for line in progress_lines(history, facts))
    best = history.finalists()
    other = EpochOpened(device=run.device, environment="two")
    finished = [fact for fact in facts if isinstance(fact, TrialFinished) and fact.trial in best]
    lines = progress_lines(history, [other, *finished])
    why = f"{len(best)} measured again, since the device, its driver or a compiler has changed"
    assert sum(why in line for line in lines) == 1
    assert "again" not in lines[-1]


def test_what_is_measured_again_after_those_above_it_were_refused_is_said():
    undisturbed = Run(experiment(trials=30, top=2))
    before = undisturbed.drive(fleet()).history
    last = next(n for n in before.ranking() if not before.trials[n].outcome.complete)
    better = before.ranking()[: before.ranking().index(last)]
    run = Run(experiment(trials=30, top=2))
    run.drive(fleet(faults=dict.fromkeys(better, Fault.WRONG_LATER)))
    history = History(run.experiment)
    lines = progress_lines(history, run.facts)
    assert any("1 measured again, since those that led them were refused" in one for one in lines)
