"""The session over a simulated fleet: order of events, budgets, failures, leaders, determinism."""

import itertools
import math
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.engine.driving import (
    BASELINE_NS,
    CPU,
    GPU,
    SIZE,
    KilledError,
    Run,
    experiment,
    fleet,
)
from tests.tuner.engine.simulated_fleet import Durations, Fault, SimulatedFleet
from tuner.candidate import BASELINE, INCUMBENT
from tuner.engine.bench_queue import BATCH, QUEUED
from tuner.engine.progress import RunProgress
from tuner.engine.session import PHASE, Phase, Session
from tuner.engine.work import (
    CompileWork,
    ConfirmWork,
    ExamineWork,
    Finish,
    MeasureWork,
    PrepareWork,
    Propose,
)
from tuner.errors import RunInterrupted
from tuner.experiment.fields import Source
from tuner.experiment.model import ConfirmSettings, Experiment, SearchSettings, Template
from tuner.experiment.odd_shapes import odd_shapes
from tuner.expressions import Expression
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Entry,
    EpochOpened,
    Fact,
    IncumbentEntered,
    RunFinished,
    SearchEnded,
    TrialCompiled,
    TrialFinished,
    TrialProposed,
    WinnersExamined,
    WorkLost,
)
from tuner.journal.history import History
from tuner.journal.timeline import spans
from tuner.plan import Binary
from tuner.report.text import render
from tuner.results.summary import summarise, winners
from tuner.trial import Code, Configuration, Full, Measured, Outcome, Rejected, Stage

FAULTS = {
    1: Fault.COMPILE_ERROR,
    3: Fault.LOST_ONCE,
    4: Fault.HANG,
    6: Fault.WRONG,
    7: Fault.LOST,
    9: Fault.WRONG_LATER,
}


def finished(facts: list[Fact]) -> dict[int, TrialFinished]:
    return {fact.trial: fact for fact in facts if isinstance(fact, TrialFinished)}


def given_up(fact: TrialFinished) -> bool:
    return isinstance(fact.outcome, Measured) and not fact.outcome.complete


def told(facts: list[Fact]) -> tuple[object, ...]:
    """What a run found, without when it did, or which cells had been given up by then."""
    history = History.of(experiment(), map(Entry, facts))
    return (
        [
            (t.number, t.configuration, history.losses(t.number) or t.outcome)
            for t in history.trials.values()
        ],
        history.ended,
        history.ranking(),
        history.finalists(),
        [(c.process, c.samples, c.failed) for c in history.confirmations],
        [(e.trials, e.failed) for e in history.examinations],
    )


def test_a_run_goes_from_baseline_through_search_and_confirmation_to_its_end():
    run = Run(experiment())
    session = run.drive(fleet())
    kinds = [key for key, _ in itertools.groupby(fact.kind for fact in run.facts)]
    assert kinds[:5] == [
        "epoch.opened",
        "trial.compiled",
        "work.began",
        "baseline.prepared",
        "trial.proposed",
    ]
    ends = [kind for kind in kinds if kind not in ("trial.compiled", "work.began")]
    found = list(dict.fromkeys(ends[ends.index("search.ended") :]))
    assert found == ["search.ended", "confirmation.sampled", "winners.examined", "run.finished"]
    assert session.phase is Phase.FINISHED
    assert len(session.history.trials) == 12
    assert all(isinstance(t.outcome, Measured) for t in session.history.trials.values())
    assert session.history.ended == "trials"
    assert scopes(session.history) == ["tune"] * 3 + ["rest"] * 3


def scopes(history: History) -> list[str]:
    return [confirmation.scope for confirmation in history.confirmations]


some_kills = pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
"""A process is killed after every 13th fact, and in the slow tier after every one."""


@some_kills
@pytest.mark.parametrize("device", [GPU, CPU])
@pytest.mark.parametrize("faults", [{}, FAULTS, {BASELINE: Fault.WRONG}])
def test_killed_after_any_fact_a_run_ends_as_if_undisturbed(device, faults, every):
    undisturbed = Run(experiment(), device)
    undisturbed.drive(fleet(device, faults=faults))
    for cut in range(0, len(undisturbed.facts), every):
        run = Run(experiment(), device, kill_after=cut)
        with pytest.raises(KilledError):
            run.drive(fleet(device, faults=faults))
        assert len(run.facts) == cut
        before = finished(run.facts)
        run.kill_after = None
        resumed = fleet(device, faults=faults)
        run.drive(resumed)
        assert told(run.facts) == told(undisturbed.facts)
        benched = [
            candidate.trial
            for work in resumed.submitted
            if isinstance(work, MeasureWork)
            for candidate in work.candidates
        ]
        again = before.keys() & set(benched)
        assert all(given_up(before[trial]) for trial in again), "measured again"


@given(
    cuts=st.lists(st.integers(1, 25), min_size=2, max_size=5),
    compile_slots=st.integers(1, 3),
    faults=st.dictionaries(st.integers(0, 11), st.sampled_from(list(Fault)), max_size=6),
    device=st.sampled_from([GPU, CPU]),
)
def test_killed_again_and_again_a_run_ends_as_if_undisturbed(cuts, compile_slots, faults, device):
    options = {"faults": faults, "compile_slots": compile_slots}
    undisturbed = Run(experiment(), device)
    undisturbed.drive(fleet(device, **options))
    run = Run(experiment(), device)
    for cut in cuts:
        run.kill_after = len(run.facts) + cut
        try:
            run.drive(fleet(device, **options))
        except KilledError:
            continue
    run.kill_after = None
    run.drive(fleet(device, **options))
    assert told(run.facts) == told(undisturbed.facts)
    done = [f.trial for f in run.facts if isinstance(f, TrialFinished) and not given_up(f)]
    assert len(done) == len(set(done))


OTHER = Template(source=Source(name="other.cu", text=""), entry="f", parameters={"x": (11, 13, 14)})
ENTERED = IncumbentEntered(template=OTHER, configuration=Configuration.of({"x": 13}))


def entrants(busy: SimulatedFleet) -> list[list[int]]:
    """The finalists in each process that times the tune shapes."""
    works = [work for work in busy.submitted if isinstance(work, ConfirmWork)]
    return [list(work.trials) for work in works if work.scope != "rest"]


def test_the_incumbent_is_in_every_process_that_confirms_and_is_no_trial():
    alone, beside, busy = Run(experiment()), Run(experiment(), incumbents=(ENTERED,)), fleet()
    plain, history = alone.drive(fleet()).history, beside.drive(busy).history
    assert history.trials == plain.trials
    assert history.finalists() == plain.finalists()
    assert entrants(busy) == [[*history.finalists(), INCUMBENT]] * 3
    assert history.configuration(INCUMBENT).as_dict() == {"x": 13}
    assert history.template(INCUMBENT) is OTHER
    assert [fact.kind for fact in beside.facts].count("incumbent.entered") == 1


def test_every_incumbent_is_in_every_process_that_confirms():
    further = replace(ENTERED, configuration=Configuration.of({"x": 14}))
    run, busy = Run(experiment(), incumbents=(ENTERED, further)), fleet()
    history = run.drive(busy).history
    assert entrants(busy) == [[*history.finalists(), INCUMBENT, INCUMBENT - 1]] * 3
    assert history.configuration(INCUMBENT - 1).as_dict() == {"x": 14}


def test_who_is_confirmed_later_meets_the_incumbent_too():
    first = Run(experiment()).drive(fleet()).history.finalists()[0]
    run, busy = Run(experiment(), incumbents=(ENTERED,)), fleet(faults={first: Fault.WRONG_LATER})
    history = run.drive(busy).history
    assert len(entrants(busy)) > 3
    assert all(trials[-1] == INCUMBENT for trials in entrants(busy))
    for finalist in history.finalists():
        together = [
            c
            for c in history.confirmations
            if c.scope == "tune" and {finalist, INCUMBENT} <= trials_of(c)
        ]
        assert len(together) >= 3


def trials_of(confirmation: ConfirmationSampled) -> set[int]:
    return {sample.trial for sample in confirmation.samples}


@pytest.mark.parametrize(
    ("fault", "processes", "failed_later"),
    [
        (Fault.COMPILE_ERROR, 0, False),
        (Fault.COMPILER_LOST, 0, False),
        (Fault.WRONG_LATER, 1, True),
    ],
)
def test_an_incumbent_that_fails_leaves_the_others_alone(fault, processes, failed_later):
    run, busy = Run(experiment(), incumbents=(ENTERED,)), fleet(faults={INCUMBENT: fault})
    history = run.drive(busy).history
    assert history.finished
    assert sum(INCUMBENT in trials for trials in entrants(busy)) == processes
    assert (INCUMBENT in history.failed_later) is failed_later
    tuned = [c for c in history.confirmations if c.scope == "tune"]
    assert {c.process for c in tuned if trials_of(c)} == {0, 1, 2}


def test_where_nothing_is_valid_there_is_nobody_to_beat_the_incumbent():
    run = Run(experiment(), incumbents=(ENTERED,))
    busy = fleet(faults=dict.fromkeys(range(12), Fault.WRONG))
    assert run.drive(busy).history.finished
    assert entrants(busy) == []


@some_kills
@pytest.mark.parametrize("device", [GPU, CPU])
@pytest.mark.parametrize("faults", [FAULTS, {INCUMBENT: Fault.WRONG_LATER}])
def test_beside_an_incumbent_too_a_killed_run_ends_as_if_undisturbed(device, faults, every):
    undisturbed = Run(experiment(), device, incumbents=(ENTERED,))
    undisturbed.drive(fleet(device, faults=faults))
    for cut in range(0, len(undisturbed.facts), every):
        run = Run(experiment(), device, incumbents=(ENTERED,), kill_after=cut)
        with pytest.raises(KilledError):
            run.drive(fleet(device, faults=faults))
        run.kill_after = None
        run.drive(fleet(device, faults=faults))
        assert told(run.facts) == told(undisturbed.facts)


def test_several_workers_measure_every_trial_once_and_keep_all_benches_busy():
    run = Run(experiment(trials=60))
    four = fleet(bench_slots=4, compile_slots=8, durations=Durations(compile=0.01))
    session = run.drive(four)
    outcomes = [fact.trial for fact in run.facts if isinstance(fact, TrialFinished)]
    assert sorted(outcomes) == list(range(60))
    benches = {trial.bench for trial in session.history.trials.values()}
    assert len(benches) == 4


@pytest.mark.parametrize(("seconds", "size"), [(0.2, 1), (0.05, 1), (0.02, 2), (0.001, BATCH)])
def test_a_job_is_about_fifty_milliseconds_of_work(seconds, size):
    run = Run(experiment(trials=80))
    busy = fleet(compile_slots=16, durations=Durations(compile=1e-4, bench=seconds))
    run.drive(busy)
    sizes = [len(work.candidates) for work in busy.submitted if isinstance(work, MeasureWork)]
    assert max(sizes) == size
    assert sizes[0] == 1, "nothing is known of how long a trial takes"


def test_a_trial_budget_counts_rejected_configurations_too():
    run = Run(experiment(trials=5))
    session = run.drive(fleet(faults={0: Fault.COMPILE_ERROR, 1: Fault.COMPILE_ERROR}))
    assert len(session.history.trials) == 5
    assert session.history.trials[0].outcome == Rejected(
        stage=Stage.COMPILE, code=Code.COMPILE_ERROR, detail="simulated"
    )


def spent_before_confirming(run: Run) -> float:
    """Seconds until the search ended, over all processes."""
    ended = [n for n, entry in enumerate(run.entries) if isinstance(entry.fact, SearchEnded)]
    return History.of(run.experiment, run.entries[: ended[0] + 1]).clock.spent


def test_trials_that_were_all_done_are_why_it_ended_though_time_ran_out_meanwhile():
    full = Run(experiment(trials=5))
    full.drive(fleet(durations=Durations(bench=0.25)))
    almost = spent_before_confirming(full) - 0.1
    run = Run(experiment(trials=5, seconds=almost))
    session = run.drive(fleet(durations=Durations(bench=0.25)))
    assert spent_before_confirming(run) > almost
    assert session.history.ended == "trials"


def test_a_time_budget_is_kept_and_summed_over_resumes():
    run = Run(experiment(trials=1000, seconds=4.0), kill_after=12)
    slow = {"durations": Durations(bench=0.25)}
    with pytest.raises(KilledError):
        run.drive(fleet(**slow))
    run.kill_after = None
    session = run.drive(fleet(**slow))
    assert session.history.ended == "seconds"
    assert 4.0 <= spent_before_confirming(run) < 4.0 + 2 * BATCH * 0.25 + 0.5
    ends = [n for n, entry in enumerate(run.entries) if isinstance(entry.fact, TrialFinished)]
    times = [History.of(run.experiment, run.entries[: n + 1]).clock.searched for n in ends]
    assert times == sorted(times)
    left = [t for t in session.history.trials.values() if t.outcome is None]
    assert left
    assert all(trial.abandoned for trial in left)
    assert session.history.finished


def test_a_search_leaves_of_its_budget_what_confirming_takes():
    run = Run(experiment(trials=1000, seconds=20.0), reserve=12.0)
    session = run.drive(fleet(durations=Durations(bench=0.05, confirm=0.5)))
    assert session.history.ended == "seconds"
    assert 8.0 <= spent_before_confirming(run) < 9.0
    assert 8.0 < session.history.clock.spent < 20.0


@pytest.mark.parametrize("domain", ["", "1 <= n"])
def test_a_search_that_left_the_rest_for_confirming_says_how_much_and_how_long_all_would_take(
    domain,
):
    spec = experiment(trials=1000, seconds=20.0)
    if domain:
        spec = replace(spec, shapes=replace(spec.shapes, domain=(Expression.parse(domain),)))
    run = Run(spec, reserve=12.0)
    history = run.drive(fleet(durations=Durations(bench=1.0))).history
    odd = f" and checks finalists on {len(odd_shapes(spec))} odd shapes" if domain else ""
    (said,) = (line for line in summarise(history).advice if "for confirming" in line)
    left = 20.0 - spent_before_confirming(run)
    took = history.clock.spent - spent_before_confirming(run)
    tried = history.outcomes.total()
    more = history.clock.searched / tried * (SIZE - tried)
    assert said == (
        f"the search tried {tried} of at most {SIZE} configurations, then left {left:.0f} of 20 s "
        f"for confirming, which took {took:.0f} s{odd}: about {more:.0f} s more of --seconds would "
        "try all"
    )
    assert 0 < left <= 12.0
    shown = render(summarise(history))
    assert "search ended: its time is spent; any rest of search.seconds is for confirming" in shown
    assert f"{len(history.trials) - tried} more not yet measured when the search ended" in shown


def test_however_small_a_time_budget_is_something_is_tried_and_confirmed():
    session = Run(experiment(trials=1000, seconds=0.5), reserve=12.0).drive(fleet())
    assert session.history.ended == "seconds"
    assert winners(session.history)
    exceeded, few = summarise(session.history).advice[:2]
    history = session.history
    assert exceeded == (
        f"the run took {history.clock.spent - 0.5:.0f} s longer than search.seconds allows: {FEW}"
    )
    tried = history.outcomes.total()
    more = history.clock.spent - 0.5 + history.clock.searched / tried * (SIZE - tried)
    assert few == (
        f"the search tried {tried} of at most {SIZE} configurations, by when search.seconds were "
        f"over: about {more:.0f} s more of --seconds would try all"
    )


FEW = "preparing and the fewest checks and timings took longer than expected"


@pytest.mark.parametrize(("seconds", "more"), [(2.0, f"; {FEW}"), (20.0, "")])
def test_a_run_that_waited_for_devices_in_use_says_for_how_long(seconds, more):
    run = Run(experiment(trials=4, seconds=seconds), reserve=1.0)
    session = run.drive(fleet(durations=Durations(confirm=1.0, share=3.0)))
    exceeded = session.history.clock.spent - seconds
    waited = sum(span.waited for _, span in spans(run.facts))
    assert RunProgress.of(session, 0.0).waited == pytest.approx(waited)
    assert (waited < exceeded) == bool(more)
    assert summarise(session.history).advice[0] == (
        f"the run took {exceeded:.0f} s longer than search.seconds allows: "
        f"its benches waited {waited:.0f} s for devices in use by other processes{more}"
    )


def test_a_space_smaller_than_the_budget_ends_the_search():
    session = Run(experiment(trials=50), proposer_size=7).drive(fleet())
    assert len(session.history.trials) == 7
    assert session.history.ended == "exhausted"
    assert session.history.finished


def test_on_a_cpu_compiling_and_timing_never_overlap():
    run = Run(experiment(trials=20), CPU)
    busy = fleet(CPU, compile_slots=2)
    run.drive(busy)
    kinds = [
        type(work)
        for work in busy.submitted
        if isinstance(work, MeasureWork | CompileWork) and work.trials != (BASELINE,)
    ]
    phases = [(kind, len(list(jobs))) for kind, jobs in itertools.groupby(kinds)]
    assert [kind for kind, _ in phases[:6]] == [CompileWork, MeasureWork] * 3
    assert [jobs for _, jobs in phases[:6:2]] == [PHASE, PHASE, 4]
    benched = [work for work in busy.submitted if isinstance(work, MeasureWork)]
    assert sum(len(work.candidates) for work in benched) == 20


def test_on_a_slow_cpu_a_time_budget_ends_the_search_within_its_first_trials():
    run = Run(experiment(trials=1000, seconds=8.0), CPU)
    session = run.drive(fleet(CPU, durations=Durations(bench=3.0)))
    assert session.history.ended == "seconds"
    assert 8.0 <= spent_before_confirming(run) < 8.0 + QUEUED * 3.0
    assert 0 < session.history.outcomes.total() < PHASE


def test_a_lost_worker_costs_a_trial_only_after_three_attempts():
    run = Run(experiment())
    session = run.drive(fleet(faults={2: Fault.LOST, 5: Fault.LOST_ONCE, 6: Fault.COMPILER_LOST}))
    outcomes = {t.number: t.outcome for t in session.history.trials.values()}
    rejected = {n: o.code for n, o in outcomes.items() if isinstance(o, Rejected)}
    assert rejected == {2: Code.WORKER_LOST, 6: Code.WORKER_LOST}


@pytest.mark.parametrize("benches", [1, 3])
def test_a_fleet_that_loses_everything_ends_the_search(benches):
    run = Run(experiment(trials=200))
    broken = fleet(faults=dict.fromkeys(range(200), Fault.LOST), bench_slots=benches)
    session = run.drive(broken)
    assert len(session.history.trials) < 70
    assert session.history.ended == "fleet"
    assert session.history.finished
    assert not session.history.finalists()


@pytest.mark.parametrize("fault", [Fault.COMPILE_ERROR, Fault.WRONG])
def test_a_baseline_that_cannot_be_trusted_ends_the_run(fault):
    run = Run(experiment())
    session = run.drive(fleet(faults={BASELINE: fault}))
    assert session.history.refused is not None
    assert session.history.ended == "baseline"
    assert session.history.finished
    assert not session.history.trials


def test_a_baseline_lost_once_is_prepared_again():
    session = Run(experiment()).drive(fleet(faults={BASELINE: Fault.LOST_ONCE}))
    assert session.history.refused is None
    assert session.history.ended == "trials"


def test_stopped_confirms_the_best_so_far():
    run = Run(experiment(trials=1000))
    stops = itertools.chain([None] * 20, ["stopped"])
    session = run.drive(fleet(), stops)
    assert session.history.ended == "stopped"
    assert 0 < len(session.history.trials) < 1000
    assert scopes(session.history).count("tune") == 3
    assert session.history.finished


def test_stopped_before_anything_was_measured_just_ends():
    session = Run(experiment()).drive(fleet(), ["stopped"])
    assert session.history.ended == "stopped"
    assert session.history.finished
    assert not session.history.trials


def test_interrupted_leaves_at_once_and_can_be_resumed():
    run = Run(experiment())
    stops = itertools.chain([None] * 8, ["interrupted"])
    session = run.drive(fleet(), stops)
    assert not session.history.finished
    assert session.history.ended is None
    undisturbed = Run(experiment())
    undisturbed.drive(fleet())
    run.drive(fleet())
    assert told(run.facts) == told(undisturbed.facts)


@pytest.mark.parametrize("environment", ["one", "two"])
def test_a_finished_run_resumes_to_nothing(environment):
    run = Run(experiment())
    finalists = run.drive(fleet()).history.finalists()
    again = fleet()
    run.environment = environment
    session = run.drive(again)
    assert session.history.finished
    assert session.history.finalists() == finalists
    assert not again.submitted


def test_finalists_are_the_best_general_ones_and_the_best_of_each_shape():
    run = Run(experiment(trials=40, top=2))
    session = run.drive(fleet(noise=0.0))
    history = session.history
    losses = {n: history.loss(n) for n in history.trials}
    best_two = sorted(losses, key=lambda n: (losses[n], n))[:2]
    assert history.ranking()[:2] == best_two
    by_shape = [
        min(history.trials, key=lambda n: (history.trials[n].outcome.cells[s].ratio, n))
        for s in range(2)
    ]
    assert set(history.finalists()) == {*best_two, *by_shape}


def test_a_configuration_that_skips_a_shape_leads_no_general_ranking():
    skips_a_shape = experiment(trials=30, constraints=("x % 2 != 0 or n != 1024",))
    session = Run(skips_a_shape).drive(fleet())
    for number in session.history.ranking():
        assert session.history.trials[number].configuration.as_dict()["x"] % 2 == 1
    even = [t for t in session.history.trials.values() if t.configuration.as_dict()["x"] % 2 == 0]
    assert even
    assert all(not trial.outcome.general for trial in even)


def test_a_finalist_that_fails_confirmation_is_replaced_by_the_next_best():
    undisturbed = Run(experiment(trials=20))
    best = undisturbed.drive(fleet()).history.ranking()
    run = Run(experiment(trials=20))
    history = run.drive(fleet(faults={best[0]: Fault.WRONG_LATER})).history
    assert history.ranking()[0] == best[1]
    assert best[0] not in history.finalists()
    for number in history.finalists():
        assert scopes_of(history, number).count("tune") == 3


def scopes_of(history: History, trial: int) -> list[str]:
    """What the processes that timed a trial were for."""
    return [c.scope for c in history.confirmations if trial in trials_of(c)]


def test_the_checkers_see_an_incumbent_that_wins():
    best = replace(ENTERED, configuration=Configuration.of({"x": 11}))
    history = Run(experiment(trials=20), incumbents=(best,)).drive(fleet()).history
    assert INCUMBENT in winners(history)
    seen = [number for fact in history.examinations for number in fact.trials]
    assert sorted(seen) == sorted(winners(history))


def test_without_a_rest_no_checker_runs_and_the_best_is_profiled_for_a_model():
    plain = Run(experiment(trials=20), rest=False).drive(fleet()).history
    assert not plain.examinations
    best = winners(plain)[0]
    run = Run(experiment(trials=20), rest=False, profile=True)
    busy = fleet(faults={best: Fault.DEFECT})
    history = run.drive(busy).history
    (work,) = (work for work in busy.submitted if isinstance(work, ExamineWork))
    assert (work.trials, work.checkers, work.profiler) == ((best,), False, True)
    assert history.finished
    assert winners(history)[0] == best


def test_a_winner_that_the_checkers_refuse_is_replaced_by_the_next_best_which_they_see_too():
    undisturbed = Run(experiment(trials=20))
    first = undisturbed.drive(fleet()).history
    best = winners(first)[0]
    assert [fact.trials for fact in first.examinations] == [winners(first)]
    run = Run(experiment(trials=20))
    history = run.drive(fleet(faults={best: Fault.DEFECT})).history
    assert best in history.failed_later
    assert best not in winners(history)
    seen = [number for fact in history.examinations for number in fact.trials]
    assert set(seen) == {best, *winners(history)}
    assert len(seen) == len(set(seen)), "nobody is examined twice"
    for number in winners(history):
        assert scopes_of(history, number) == ["tune"] * 3 + ["rest"] * 3


@pytest.mark.parametrize(
    "seed", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (14, 16, 25))]
)
def test_who_is_measured_in_full_once_those_above_were_refused_is_compiled_again(seed):
    def special(configuration):
        return configuration.as_dict()["x"] % 5 == 3

    def cost(configuration, shape):
        if special(configuration):
            return BASELINE_NS[shape] * (0.5 if shape == 0 else 1.5)
        return BASELINE_NS[shape] * (0.5 + 0.002 * (configuration.as_dict()["x"] % 7))

    simulated = fleet(seed=seed, cost=cost)
    trials = Run(experiment(trials=20)).drive(simulated).history.trials
    refused = {n: Fault.DEFECT for n, t in trials.items() if not special(t.configuration)}
    history = Run(experiment(trials=20)).drive(replace(simulated, faults=refused)).history
    assert history.finished
    assert not set(winners(history)) & set(refused)


def losing(usual, kind, task, reason):
    """The usual fleet, which loses the worker of each answer of a kind."""

    class Losing(SimulatedFleet):
        async def answers(self, timeout):
            return tuple(
                WorkLost(work=answer.work, task=task, worker="gpu", reason=reason)
                if isinstance(answer, kind)
                else answer
                for answer in await super().answers(timeout)
            )

    return Losing(device=GPU, baseline_ns=usual.baseline_ns, cost=usual.cost)


@pytest.mark.parametrize(
    ("kind", "task", "reason", "told"),
    [
        (ConfirmationSampled, "confirm", "no descriptors", "the confirmation"),
        (BaselinePrepared, "prepare", "out of memory", "preparing the baseline"),
    ],
)
def test_needed_work_that_loses_every_worker_interrupts_the_run_which_can_be_resumed(
    kind, task, reason, told
):
    usual = fleet()
    undisturbed = Run(experiment()).drive(usual).history
    run = Run(experiment())
    with pytest.raises(RunInterrupted, match=f"^{told} lost its worker 3 times, gpu: {reason}"):
        run.drive(losing(usual, kind, task, reason))
    losses = [fact for fact in run.facts if isinstance(fact, WorkLost)]
    assert [(fact.attempt, fact.final) for fact in losses] == [(1, False), (2, False), (3, True)]
    assert not any(isinstance(fact, kind | RunFinished) for fact in run.facts)
    history = run.drive(fleet()).history
    assert history.finished
    assert winners(history) == winners(undisturbed)


def test_winners_whose_examination_is_lost_again_and_again_are_reported_with_a_note():
    usual = fleet()
    run = Run(experiment())
    history = run.drive(losing(usual, WinnersExamined, "examine", "gone")).history
    losses = [fact for fact in run.facts if isinstance(fact, WorkLost)]
    assert [(fact.attempt, fact.final) for fact in losses] == [(1, False), (2, False), (3, True)]
    assert history.finished
    assert winners(history)
    assert any("not examined" in note for note in history.notes)


def test_confirmation_gives_up_when_every_finalist_fails():
    run = Run(experiment(trials=30))
    history = run.drive(fleet(faults=dict.fromkeys(range(30), Fault.WRONG_LATER))).history
    assert history.finished
    assert len(history.confirmations) <= 12


def test_held_out_shapes_are_for_winners_alone():
    run = Run(experiment())
    simulated = fleet()
    run.drive(simulated)
    for work in simulated.submitted:
        if isinstance(work, MeasureWork):
            assert all(len(candidate.plan.cells) == 2 for candidate in work.candidates)
        if isinstance(work, ConfirmWork):
            assert all(len(candidate.plan.cells) == 3 for candidate in work.finalists)
    history = History.of(run.experiment, run.entries)
    assert set(winners(history)) < set(history.finalists())
    for sampled in history.confirmations:
        seen = {(sample.shape, sample.cache) for sample in sampled.samples}
        if sampled.scope == "tune":
            assert seen == {(0, "cold"), (1, "cold")}
        else:
            assert seen == {(2, "cold"), (0, "hot"), (1, "hot"), (2, "hot")}
            assert trials_of(sampled) == {BASELINE, *winners(history)}


def test_a_finalist_without_rival_is_timed_on_all_shapes_at_once():
    history = Run(experiment(trials=1)).drive(fleet()).history
    assert scopes(history) == ["all"] * 3
    assert {s.shape for c in history.confirmations for s in c.samples} == {0, 1, 2}


def at_most(processes: int) -> Experiment:
    problem = experiment(trials=20)
    return replace(problem, confirm=replace(problem.confirm, processes=processes))


def test_a_certain_verdict_ends_confirmation_early():
    history = Run(at_most(7)).drive(fleet(noise=1e-4)).history
    assert scopes(history) == ["tune"] * 3 + ["rest"] * 3
    assert summarise(history).general.comparison.processes == 3


@pytest.mark.parametrize(("width", "processes", "told"), [(0.1, 3, False), (1e-7, 7, True)])
def test_a_decided_verdict_is_confirmed_further_until_its_interval_is_narrow(
    width, processes, told
):
    problem = at_most(7)
    problem = replace(problem, confirm=replace(problem.confirm, until=width))
    history = Run(problem).drive(fleet(noise=1e-4)).history
    result = summarise(history)
    assert result.general.comparison.processes == processes
    wider = "the interval is wider than confirm.until after 7 processes"
    assert any(line.startswith(wider) for line in result.advice) == told
    assert scopes(Run(problem, rest=False).drive(fleet(noise=1e-4)).history) == ["tune"] * 3


def test_only_winners_go_on_and_no_longer_than_they_may():
    run, busy = Run(at_most(5), incumbents=(ENTERED,)), fleet(noise=0.2)
    history = run.drive(busy).history
    assert scopes(history) == ["tune"] * 3 + ["rest", "all", "all", "rest", "rest"]
    assert summarise(history).general.comparison.processes == 5
    for number in history.finalists():
        seen = scopes_of(history, number)
        assert seen[:3] == ["tune"] * 3
        assert number in winners(history) or len(seen) == 3
    works = [work for work in busy.submitted if isinstance(work, ConfirmWork)]
    assert [bool(work.extra_checks) for work in works] == [True, False, False, True] + [False] * 4
    for trial in winners(history):  # an incumbent had those of the tune shapes when it won
        given = (works[0].extra_checks + works[3].extra_checks).count(trial)
        assert given == (1 if trial == INCUMBENT else 2)


def test_without_time_left_confirmation_takes_the_fewest_processes_and_says_so():
    busy = {"noise": 0.2, "durations": Durations(confirm=1.0)}
    ample = Run(at_most(5)).drive(fleet(**busy)).history
    hurried = replace(at_most(5), search=SearchSettings(trials=20, seconds=ample.clock.spent))
    history = Run(hurried, reserve=20.0).drive(fleet(**busy)).history
    assert scopes(ample) == ["tune"] * 3 + ["rest", "all", "all", "rest", "rest"]
    assert scopes(history) == ["tune"] * 3 + ["rest"] * 3
    assert history.clock.spent < hurried.search.seconds
    (said,) = summarise(history).advice
    assert said.startswith("no time was left to confirm the tune shapes in more than 3 processes (")
    assert not summarise(ample).advice


def test_how_long_confirming_takes_is_told_by_processes_without_extra_checks():
    run = Run(at_most(5))
    run.drive(fleet(noise=0.2, durations=Durations(confirm=1.0)))
    told = []
    for count, fact in enumerate(run.facts, start=1):
        if isinstance(fact, ConfirmationSampled):
            history = History.of(run.experiment, run.entries[:count])
            found = Session(history, secret=1).confirming
            one = [c.span.seconds for c in history.confirmations if not c.extra_checks]
            left = None if found.seconds is None else round(found.seconds / fmean(one))
            told.append((found.processes, left))
    # The first of each part has extra checks: none is told before it, nor before another answered.
    assert told == [(8, left) for left in (None, 6, None, 4, 3, 2, 1, 0)]


def test_of_many_finalists_those_that_lead_in_the_first_process_go_on():
    problem = replace(at_most(5), confirm=ConfirmSettings(top=6, processes=5))
    run, busy = Run(problem, incumbents=(ENTERED,)), fleet(noise=1e-4)
    history = run.drive(busy).history
    finalists = history.finalists()
    first, second, third, *others = [w for w in busy.submitted if isinstance(w, ConfirmWork)]
    assert first.trials == (*finalists, INCUMBENT)
    assert first.extra_checks == ()
    assert {len(candidate.plan.cells) for candidate in first.finalists} == {2}
    assert second.trials == third.trials
    assert len(second.trials) < len(first.trials)
    assert set(second.extra_checks) == set(second.trials) - {INCUMBENT}
    for later in (second, third, *others):
        assert {len(candidate.plan.cells) for candidate in later.finalists} == {3}
    between = busy.submitted[busy.submitted.index(first) : busy.submitted.index(second)]
    meanwhile = [work for work in between if isinstance(work, CompileWork)]
    assert {work.trial for work in meanwhile} >= set(finalists)
    assert {len(work.plan.cells) for work in meanwhile} == {3}
    assert set(winners(history)) <= set(second.trials)
    best = min(finalists, key=lambda trial: history.loss(trial))
    assert best in second.trials


def test_rounds_look_at_the_verdicts_over_all_shapes_alone():
    history = Run(at_most(5), rest=False).drive(fleet(noise=0.08)).history
    assert scopes(history) == ["tune"] * 3
    whole = Run(at_most(5)).drive(fleet(noise=0.08)).history
    assert scopes(whole) == ["tune"] * 3 + ["rest", "all", "all", "rest"]


def test_configurations_that_are_nearly_equal_take_no_turns():
    def cost(configuration, shape):
        return BASELINE_NS[shape] * 0.995

    problem = replace(at_most(7), confirm=ConfirmSettings(top=4, processes=7))
    busy = fleet(noise=0.01, cost=cost)
    history = Run(problem, incumbents=(ENTERED,), rest=False).drive(busy).history
    assert len(history.confirmations) == 7
    further = entrants(busy)[3:]
    assert all(set(later) <= set(before) for before, later in itertools.pairwise(further))


def test_several_benches_confirm_at_once():
    history = Run(at_most(5)).drive(fleet(noise=0.2, bench_slots=4)).history
    assert sorted(scopes(history)) == sorted(["tune"] * 3 + ["rest", "all", "all", "rest", "rest"])
    began = [confirmation.span.began for confirmation in history.confirmations]
    assert len(set(began)) < len(began)


def test_without_held_out_shapes_and_another_cache_state_there_is_no_rest():
    problem = experiment()
    problem = replace(problem, shapes=replace(problem.shapes, held_out=()))
    assert scopes(Run(problem, CPU).drive(fleet(CPU)).history) == ["tune"] * 3


def test_a_winner_that_fails_on_a_held_out_shape_gives_way_to_the_next_best():
    best = winners(Run(experiment(trials=20)).drive(fleet()).history)[0]

    class WrongElsewhere(SimulatedFleet):
        async def answers(self, timeout):
            return tuple(
                replace(answer, failed=((best, WRONG),))
                if isinstance(answer, ConfirmationSampled) and answer.scope == "rest"
                else answer
                for answer in await super().answers(timeout)
            )

    simulated = fleet()
    wrong = WrongElsewhere(
        device=GPU, baseline_ns=simulated.baseline_ns, cost=simulated.cost, compile_slots=2
    )
    history = Run(experiment(trials=20)).drive(wrong).history
    assert history.finished
    assert best in history.failed_later
    assert winners(history)
    assert best not in winners(history)
    for number in winners(history):
        assert scopes_of(history, number).count("rest") >= 3


def test_another_environment_measures_the_incumbents_again_and_forgets_old_leads():
    run = Run(experiment(trials=20), kill_after=40)
    with pytest.raises(KilledError):
        run.drive(fleet())
    run.kill_after = None
    before = History.of(run.experiment, run.entries)
    incumbents = before.finalists()
    assert incumbents
    kept = len(run.facts)
    run.environment = "two"
    history = run.drive(fleet(seed=5)).history
    again = {f.trial for f in run.facts[kept:] if isinstance(f, TrialFinished)}
    old = {n for n, t in before.trials.items() if t.outcome is not None}
    assert again & old == set(incumbents)
    for number in history.ranking():
        assert history.trials[number].current
    assert not set(history.ranking()) & (old - set(incumbents))


def test_another_environment_after_the_search_confirms_only_what_was_measured_in_it():
    run = Run(experiment())
    run.drive(fleet())
    end = next(i for i, f in enumerate(run.facts) if isinstance(f, SearchEnded))
    run.entries = run.entries[: end + 2]
    incumbents = History.of(run.experiment, run.entries).finalists()
    run.environment = "two"
    history = run.drive(fleet(seed=5)).history
    assert set(history.ranking()) <= set(incumbents)
    assert scopes(history) == ["tune"] * 3 + ["rest"] * 3
    assert history.finished


def test_facts_rebuild_the_history_of_a_live_session():
    run = Run(experiment())
    session = run.drive(fleet(faults=FAULTS))
    rebuilt = History.of(run.experiment, run.entries)
    assert rebuilt.trials == session.history.trials
    assert rebuilt.finalists() == session.history.finalists()
    assert rebuilt.clock.searched == session.history.clock.searched
    assert isinstance(run.facts[0], EpochOpened)
    assert isinstance(run.facts[-1], RunFinished)
    proposed = [fact.trial for fact in run.facts if isinstance(fact, TrialProposed)]
    assert proposed == list(range(12))


def test_a_budget_of_device_seconds_counts_all_benches_and_is_kept_over_resumes():
    problem = experiment(trials=1000)
    problem = replace(problem, search=replace(problem.search, device_seconds=2.0))
    run = Run(problem, kill_after=12)
    slow = {"durations": Durations(bench=0.25), "bench_slots": 2}
    with pytest.raises(KilledError):
        run.drive(fleet(**slow))
    run.kill_after = None
    session = run.drive(fleet(**slow))
    assert session.history.ended == "device_seconds"
    assert 2.0 <= session.history.device_seconds < 2.0 + 2 * 2 * BATCH * 0.25 + 0.25
    assert session.history.finished


def measured(run: Run) -> list[TrialFinished]:
    facts = [fact for fact in run.facts if isinstance(fact, TrialFinished)]
    return [fact for fact in facts if isinstance(fact.outcome, Measured)]


def test_jobs_carry_the_cutoffs_of_their_sending_and_hopeless_cells_are_given_up():
    run = Run(experiment(trials=40, top=2))
    busy = fleet()
    history = run.drive(busy).history
    jobs = [work for work in busy.submitted if isinstance(work, MeasureWork)]
    assert jobs[0].cutoffs == (math.inf,) * 3
    assert all(math.isfinite(cutoff) for cutoff in jobs[-1].cutoffs)
    for one, other in itertools.pairwise(jobs):
        assert all(n <= t for n, t in zip(other.cutoffs, one.cutoffs, strict=True))
    assert any(given_up(fact) for fact in measured(run))
    for place, number in enumerate(history.ranking()[:2]):
        assert history.trials[number].outcome.complete, place
    for shape in range(2):
        best = history.trials[history.leader_for(shape)].outcome
        assert isinstance(best.cells[shape], Full)


def test_racing_changes_no_loss_and_no_finalist():
    run, plain = Run(experiment(trials=40, top=2)), Run(experiment(trials=40, top=40))
    raced, full = run.drive(fleet()).history, plain.drive(fleet()).history
    assert all(outcome.outcome.complete for outcome in full.trials.values())
    assert [raced.losses(n) for n in raced.trials] == [full.losses(n) for n in full.trials]
    assert raced.ranking() == full.ranking()
    assert raced.leader() == full.leader()


def test_what_was_given_up_is_chosen_only_after_it_is_measured_in_full():
    undisturbed = Run(experiment(trials=30, top=2))
    before = undisturbed.drive(fleet()).history
    last = next(n for n in before.ranking() if not before.trials[n].outcome.complete)
    better = before.ranking()[: before.ranking().index(last)]
    run = Run(experiment(trials=30, top=2))
    history = run.drive(fleet(faults=dict.fromkeys(better, Fault.WRONG_LATER))).history
    again = [fact for fact in measured(run) if fact.trial == last]
    assert [given_up(fact) for fact in again] == [True, False]
    assert last in history.finalists()
    assert history.leader() == last
    for number in history.ranking()[:2]:
        assert history.trials[number].outcome.complete
    sampled = [f for f in run.facts if isinstance(f, ConfirmationSampled)]
    assert any(sample.trial == last for fact in sampled for sample in fact.samples)
    assert History.of(run.experiment, run.entries).trials == history.trials


@given(
    faults=st.dictionaries(st.integers(0, 24), st.sampled_from(list(Fault)), max_size=20),
    seed=st.integers(0, 5),
    benches=st.integers(1, 3),
)
def test_whatever_fails_only_what_is_complete_is_chosen(faults, seed, benches):
    run = Run(experiment(trials=25, top=2))
    history = run.drive(fleet(faults=faults, seed=seed, bench_slots=benches, noise=0.1)).history
    assert history.finished
    for number in history.ranking()[:2]:
        assert history.trials[number].outcome.complete
    for shape in range(2):
        best = history.leader_for(shape)
        assert best is None or isinstance(history.trials[best].outcome.cells[shape], Full)


FULL = Full(median_ns=500.0, mad_ns=1.0, samples=5, baseline_ns=1000.0)
LOST = Rejected(stage=Stage.FLEET, code=Code.WORKER_LOST, detail="lost")
WRONG = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="wrong")


class Told:
    """A session that a test tells what happened, once its baseline is ready.

    ``twins`` have the machine code of trial 0.
    """

    def __init__(self, trials: int, twins: tuple[int, ...] = ()) -> None:
        history = History(experiment(trials=trials))
        history.apply(
            Entry(EpochOpened(device=GPU, environment="one", compile_slots=4, bench_slots=1))
        )
        self.session = Session(history, secret=1)
        self.twins = twins
        self.sent: list[object] = []
        self.works: dict[int, CompileWork] = {}
        self.asked = 0
        self.act()
        self.compiled(BASELINE)
        self.happens(BaselinePrepared(result=(FULL, FULL, FULL)))

    def happens(self, fact: Fact) -> None:
        self.session.apply(Entry(fact))
        self.act()

    def act(self) -> None:
        while commands := self.session.decide(0.0):
            for command in commands:
                match command:
                    case Propose(trial=trial):
                        self.asked += 1
                        values = Configuration.of({"x": trial})
                        fact = TrialProposed(trial=trial, configuration=values)
                        self.session.apply(Entry(fact))
                    case CompileWork():
                        self.works[command.trial] = command
                    case PrepareWork() | MeasureWork() | ConfirmWork() | ExamineWork() | Finish():
                        self.sent.append(command)
                    case fact:
                        self.session.apply(Entry(fact))

    def compiled(self, trial: int) -> None:
        code = b"first" if trial in (0, *self.twins) else str(trial).encode()
        binaries = tuple(
            Binary(build=build.digest, code=code, usage=(), symbols=(), compile_seconds=0.1)
            for build in self.works[trial].plan.builds
        )
        self.happens(TrialCompiled(work=0, trial=trial, binaries=binaries))

    def finished(self, trial: int, outcome: Outcome) -> None:
        self.happens(TrialFinished(trial=trial, outcome=outcome, device_seconds=0.01))

    def benched(self) -> list[int]:
        works = [one for one in self.sent if isinstance(one, MeasureWork)]
        return [trial for work in works for trial in work.trials]


def test_equal_code_waits_for_the_trial_that_is_measured_and_costs_no_budget():
    run = Told(trials=2, twins=(1,))
    assert run.asked == 2
    run.compiled(0)
    run.compiled(1)
    assert run.benched() == [0]
    assert run.session.history.trials[1].outcome is None
    run.finished(0, Measured(cells=(FULL, FULL)))
    twin = run.session.history.trials[1]
    assert twin.outcome == run.session.history.trials[0].outcome
    assert twin.same_as == 0
    assert run.session.history.merged == 1
    assert run.asked == 3, "a merged trial is made up for"
    assert run.session.history.ended is None
    run.compiled(2)
    run.finished(2, Measured(cells=(FULL, FULL)))
    assert run.session.history.ended == "trials"


def test_equal_code_is_measured_itself_where_the_first_was_lost_by_the_fleet():
    run = Told(trials=2, twins=(1,))
    run.compiled(0)
    run.compiled(1)
    run.finished(0, LOST)
    assert run.benched() == [0, 1]


def test_equal_code_shares_a_rejection_of_its_own():
    run = Told(trials=2, twins=(1,))
    run.compiled(0)
    run.finished(0, WRONG)
    run.compiled(1)
    assert run.benched() == [0]
    assert run.session.history.trials[1].outcome == WRONG
