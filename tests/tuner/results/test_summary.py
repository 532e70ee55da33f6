"""The result of a run: winners from confirmed samples, honest labels, lines to act on."""

import json
from dataclasses import replace

import pytest

from tests.tuner.engine.driving import GPU, KilledError, Run, experiment, fleet
from tests.tuner.engine.simulated_fleet import Fault
from tests.tuner.results.runs import finished_run
from tuner.candidate import BASELINE, INCUMBENT
from tuner.experiment.fields import Source
from tuner.experiment.model import Launch, Template
from tuner.expressions import Expression
from tuner.journal.facts import (
    BaselinePrepared,
    Entry,
    EpochOpened,
    IncumbentEntered,
    TrialFinished,
    TrialProposed,
)
from tuner.journal.history import History
from tuner.report.tables import results_csv, results_jsonl, status_json
from tuner.report.text import render, time_text
from tuner.results.rejections import advise, baseline_rejection
from tuner.results.result import Cell
from tuner.results.summary import summarise
from tuner.results.verdict import outcome_text
from tuner.trial import Code, Configuration, CutShort, Full, Measured, Rejected, Stage

BASE = [1000.0, 2000.0, 4000.0]
WRONG = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="out[3]: 1 is not 2", shape=1)


def run(*trials, **options):
    return finished_run(
        experiment(), GPU, BASE, [({"x": n}, times) for n, times in enumerate(trials)], **options
    )


def test_the_general_winner_has_the_best_weighted_mean_and_each_shape_its_own():
    result = summarise(
        run([500.0, 1000.0, 2000.0], [400.0, 2000.0, 4000.0], [900.0, 800.0, 8000.0], noise=0.001)
    )
    assert result.outcome == "improved"
    assert result.general.trial == 0
    assert result.general.speedup == pytest.approx(2.0, rel=0.01)
    assert result.general.held_out == pytest.approx(2.0, rel=0.01)
    assert result.general.comparison.verdict == "faster"
    assert [best.trial for best in result.specialised] == [1, 2]
    assert [best.gain.verdict for best in result.specialised] == ["faster", "faster"]
    assert result.specialised[0].gain.speedup == pytest.approx(1.25, rel=0.01)
    assert [shape.held_out for shape in result.shapes] == [False, False, True]
    assert result.speedup == result.general.speedup
    assert result.confirmed


ENERGIES = {BASELINE: 8.0, 0: 4.0, 1: 2.0}


@pytest.mark.parametrize(
    ("objective", "best", "speedup"), [("energy", 1, 4.0), ("energy_delay", 0, 8**0.5)]
)
def test_another_objective_decides_and_is_named(objective, best, speedup):
    """Trial 0 takes a quarter of the time and half of the energy, trial 1 half and a quarter."""
    history = run([250.0, 500.0, 1000.0], [600.0, 1200.0, 2400.0], noise=0.001)
    history.experiment = replace(history.experiment, objective=objective)
    history.confirmations = [
        replace(
            one,
            samples=tuple(replace(s, millijoules=ENERGIES[s.trial]) for s in one.samples),
        )
        for one in history.confirmations
    ]
    result = summarise(history)
    assert result.general.trial == best
    assert result.general.speedup == pytest.approx(speedup, rel=0.01)
    assert result.general.cells[0].millijoules == ENERGIES[best]
    assert result.shapes[0].baseline_mj == 8.0
    text = render(result)
    assert f"Objective: {objective}. A speedup is the baseline's" in text
    assert "1 µs, 8 mJ" in text
    assert result.to_json()["objective"] == objective


def test_weights_decide():
    """The second shape weighs two: 4× there beats 4× on the first."""
    result = summarise(run([250.0, 2000.0, 4000.0], [1000.0, 500.0, 4000.0]))
    assert result.general.trial == 1
    assert result.general.speedup == pytest.approx(4 ** (2 / 3))


def test_no_difference_is_no_gain():
    result = summarise(run(BASE, [1100.0, 2200.0, 4400.0], noise=0.002))
    assert result.outcome == "no_gain"
    assert result.general.trial == 0
    assert {cell.comparison.verdict for cell in result.general.cells} == {"same"}


def test_a_configuration_for_one_shape_alone_can_be_the_gain():
    result = summarise(run([250.0, None, None]))
    assert result.general is None
    assert result.outcome == "improved"
    assert result.specialised[0].cell.speedup == pytest.approx(4.0)
    assert result.specialised[1] is None
    assert result.confirmed
    assert "none: no configuration is valid on every tune shape" in render(result)
    searched = replace(result.specialised[0], cell=Cell(shape=1, time_ns=1.0, speedup=9.0))
    both = replace(result, specialised=(result.specialised[0], searched, None))
    assert (both.speedup, both.confirmed) == (result.speedup, True)


def test_nothing_valid_says_why():
    result = summarise(run(WRONG, WRONG))
    assert result.outcome == "nothing_valid"
    assert result.speedup is None
    text = render(result)
    assert "No configuration was valid." in text
    assert "2 of 2 rejected: 2 gave wrong results at n=1024\n" in text
    assert "  hint: check the template at that shape" in text
    assert "trial 0 (x=0) gave wrong results at n=1024: out[3]: 1 is not 2" in text


def test_a_budget_that_ended_before_anything_was_measured_is_said_so():
    result = replace(summarise(run(WRONG)), ended="seconds", rejected=0)
    assert "ended (seconds) before anything was measured: begin a new run" in render(result)


def test_what_failed_confirmation_is_neither_winner_nor_forgotten():
    result = summarise(run([250.0, 500.0, 1000.0], [500.0, 1000.0, 2000.0], failed={0: WRONG}))
    assert result.general.trial == 1
    assert [(r.code, r.trial) for r in result.rejections] == [(Code.WRONG_RESULT, 0)]


ENTERED = IncumbentEntered(
    template=Template(source=Source(name="other.cu", text=""), entry="f", parameters={"y": (7,)}),
    configuration=Configuration.of({"y": 7}),
)


def against(times, *trials, **options):
    return summarise(run(*trials, incumbents=[(ENTERED, times)], **options))


def test_the_incumbent_is_the_general_one_until_another_is_surely_faster():
    result = against([250.0, 500.0, 1000.0], [500.0, 1000.0, 2000.0], noise=0.001)
    assert result.general.trial == INCUMBENT
    assert result.general.configuration == ENTERED.configuration
    assert result.general.speedup == pytest.approx(4.0, rel=0.01)
    assert result.general.gain is None
    assert result.best_new.trial == 0
    assert result.best_new.speedup == pytest.approx(2.0, rel=0.01)
    assert result.best_new.gain.speedup == pytest.approx(0.5, rel=0.01)
    assert result.best_new.gain.verdict == "slower"
    assert [best.trial for best in result.specialised] == [INCUMBENT, INCUMBENT]
    assert "general      incumbent: y=7\n" in render(result)
    assert (
        f"[{result.best_new.gain.low:.3f}, {result.best_new.gain.high:.3f}] slower, compared"
        in (render(result))
    )
    assert result.to_json()["best_new"]["configuration"] == {"x": 0}


def test_whoever_is_surely_faster_than_the_incumbent_is_the_general_one():
    result = against([501.0, 1002.0, 2000.0], [500.0, 1000.0, 2000.0])
    assert result.general.trial == 0
    assert result.general.gain.speedup > 1
    assert result.best_new is None
    alone = summarise(run([500.0, 1000.0, 2000.0]))
    assert (alone.general.gain, alone.best_new) == (None, None)


def test_a_drift_from_process_to_process_leaves_the_paired_gain_alone():
    """All but the baseline get slower with each process; the incumbent by as much."""

    def drifting(fact):
        if fact.kind != "confirmation.sampled":
            return fact
        slower = 1.2**fact.process
        return replace(
            fact,
            samples=tuple(
                sample
                if sample.trial == BASELINE
                else replace(sample, median_ns=slower * sample.median_ns)
                for sample in fact.samples
            ),
        )

    result = against([550.0, 1100.0, 2200.0], [500.0, 1000.0, 2000.0], told=drifting)
    assert result.general.speedup == pytest.approx(2 / 1.2**2)
    assert result.general.gain.speedup == pytest.approx(1.1)
    assert result.general.comparison.low < 1.2
    assert result.general.gain.low == pytest.approx(1.1)


def test_without_two_common_processes_there_is_no_gain_to_speak_of():
    def parted(fact):
        if fact.kind != "confirmation.sampled" or fact.process == 0:
            return fact
        kept = tuple(sample for sample in fact.samples if sample.trial != INCUMBENT)
        return replace(fact, samples=kept)

    result = against([550.0, 1100.0, 2200.0], [500.0, 1000.0, 2000.0], told=parted)
    assert result.general.comparison is not None
    assert result.general.gain is None


def test_an_incumbent_that_fails_is_told_and_is_no_trial():
    result = against(BASE, [500.0, 1000.0, 2000.0], failed={INCUMBENT: WRONG})
    assert result.general.gain is None
    assert result.rejections == ()
    assert result.advice == ("the incumbent (y=7) failed in confirmation: out[3]: 1 is not 2",)


def test_another_incumbent_that_fails_is_told_too():
    other = replace(ENTERED, configuration=Configuration.of({"y": 8}))
    result = summarise(
        run(
            [500.0, 1000.0, 2000.0],
            incumbents=[(ENTERED, [900.0, 1800.0, 3600.0]), (other, BASE)],
            failed={INCUMBENT - 1: WRONG},
        )
    )
    assert result.general.gain.speedup == pytest.approx(1.8)
    assert result.advice == ("the incumbent (y=8) failed in confirmation: out[3]: 1 is not 2",)


def test_what_became_of_a_lucky_leader_is_told():
    def sobered(fact):
        if fact.kind != "confirmation.sampled":
            return fact
        return replace(
            fact,
            samples=tuple(
                replace(s, median_ns=2.5 * s.median_ns) if s.trial == 1 else s for s in fact.samples
            ),
        )

    trials = [500.0, 1000.0, 2000.0], [400.0, 800.0, 1600.0]
    result = summarise(run(*trials, noise=0.001, told=sobered))
    assert result.general.trial == 0
    (said,) = result.advice
    assert said.startswith("trial 1 (x=1) was the search's best at 2.50×, but is 0.999×")
    assert not summarise(run(*trials, noise=0.001)).advice


def test_impossible_samples_count_as_none():
    history = run([250.0, 500.0, 1000.0], [500.0, 1000.0, 2000.0])
    history.confirmations = [
        replace(
            confirmation,
            samples=tuple(
                replace(s, median_ns=0.0 if s.shape else float("nan")) if s.trial == 0 else s
                for s in confirmation.samples
            ),
        )
        for confirmation in history.confirmations
    ]
    assert summarise(history).general.trial == 1


def test_figures_of_a_run_under_way_are_marked_unconfirmed():
    under_way = Run(experiment(trials=30), kill_after=30)
    with pytest.raises(KilledError):
        under_way.drive(fleet())
    result = summarise(History.of(under_way.experiment, under_way.entries))
    assert result.outcome == "unfinished"
    assert not result.confirmed
    assert result.general.comparison is None
    assert "unconfirmed" in render(result)
    assert "faster" not in render(result)


def test_a_refused_baseline_is_the_whole_report():
    refused = Run(experiment())
    session = refused.drive(fleet(faults={BASELINE: Fault.WRONG}))
    result = summarise(session.history)
    assert result.outcome == "nothing_valid"
    assert "The baseline cannot be used" in render(result)


def test_a_refused_baseline_names_the_shape_where_it_failed():
    run = Run(experiment())
    session = run.drive(fleet(faults={BASELINE: Fault.WRONG}))
    held_out = len(run.experiment.shapes.tune)
    session.history.refused = replace(session.history.refused, shape=held_out)
    result = summarise(session.history)
    where = f"{run.experiment.shapes.held_out[0]}: {session.history.refused.detail}"
    assert f"The baseline cannot be used: {where} (" in render(result)
    assert outcome_text(result) == f"The baseline cannot be used: {where}."


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (Code.DISAGREES, "; correct the kernel, its reference or the tolerance"),
        (Code.ROUNDING, "; widen the tolerance, or sum more accurately"),
        (Code.NOT_DETERMINISTIC, ""),
    ],
)
def test_a_refused_baseline_comes_with_what_to_do(code, remedy):
    why = Rejected(stage=Stage.VERIFY, code=code, detail="1 is not 2", shape=0)
    first = experiment().shapes.tune[0]
    assert baseline_rejection(why, experiment()).detail == f"{first}: 1 is not 2{remedy}"


def test_a_run_that_has_just_begun_can_be_reported():
    result = summarise(History(experiment()))
    assert result.outcome == "unfinished"
    assert "Nothing was measured yet." in render(result)


def test_a_live_run_improves_and_its_report_reads_well():
    live = Run(
        experiment(trials=30, processes=5, constraints=("(x != 9 and x != 10) or n != 256",))
    )
    faults = {1: Fault.HANG, 2: Fault.CRASH, 3: Fault.COMPILE_ERROR, 4: Fault.COMPILE_ERROR}
    session = live.drive(fleet(faults=faults, noise=0.001))
    result = summarise(session.history)
    assert result.outcome == "improved"
    best = session.history.trials[result.general.trial].configuration.as_dict()["x"]
    assert best == min(
        (t.configuration.as_dict()["x"] for t in session.history.trials.values() if t.number > 4),
        key=lambda x: abs(x - 35 / 3),
    )
    text = render(result)
    for part in (
        "simulated on test sm_90 (cuda)",
        "30 trials",
        "4 rejected",
        "search ended: trial budget spent",
        "n=4096 *",
        "faster",
        "4 of 30 rejected: 2 did not compile, 1 hung at n=256, 1 crashed at n=256\n  hint: fix",
        "trial 1 (x=",
    ):
        assert part in text, text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_cache_state_that_did_not_decide_is_shown_too():
    history = run([500.0, 1000.0, 2000.0], [400.0, 4000.0, 8000.0], noise=0.001)
    history.confirmations = [
        replace(
            c,
            samples=c.samples
            + tuple(
                replace(s, cache="hot", median_ns=s.median_ns / (2 if s.trial == BASELINE else 1))
                for s in c.samples
            ),
        )
        for c in history.confirmations
    ]
    result = summarise(history)
    assert result.cache == "cold"
    assert result.general.speedup == pytest.approx(2.0, rel=0.01)
    assert result.other_cache.cache == "hot"
    assert result.other_cache.baseline_ns == pytest.approx([500.0, 1000.0, 2000.0], rel=0.01)
    assert [cell.comparison.verdict for cell in result.other_cache.general] == ["same"] * 3
    assert result.other_cache.specialised[0].speedup == pytest.approx(1.25, rel=0.01)
    text = render(result)
    assert text.index("cold cache") < text.index("hot cache")


def test_dependent_launches_are_compared_with_the_baselines_plain_ones_openly():
    history = run([500.0, 1000.0, 2000.0], noise=0.001)
    launch = Launch(grid=(Expression.parse("n"),), block=(Expression.parse(32),))
    dependent = replace(launch, dependent=Expression.parse("x == 0"))
    template = Template(
        source=Source(name="t.cu", text=""), entry="f", parameters={"x": (0, 1)}, launch=dependent
    )
    history.experiment = replace(history.experiment, template=template)
    history.confirmations = [
        replace(
            c,
            samples=c.samples
            + tuple(
                replace(s, median_ns=2 * s.median_ns, serialised=True)
                for s in c.samples
                if s.trial != BASELINE
            ),
        )
        for c in history.confirmations
    ]
    result = summarise(history)
    assert (result.baseline_dependent, result.dependent) == (False, (0,))
    assert result.general.serialised == pytest.approx(result.general.speedup / 2, rel=0.01)
    cell = result.general.cells[0]
    assert cell.serialised_ns == pytest.approx(2 * cell.time_ns, rel=0.01)
    assert cell.serialised.speedup == pytest.approx(cell.speedup / 2, rel=0.01)
    text = render(result)
    assert text.count("launched plainly") >= 1 + len(result.shapes)
    assert "the baseline is launched plainly" in " ".join(text.split())
    assert results_csv(history).splitlines()[1].split(",")[4] == "dependent"
    assert json.loads(results_jsonl(history).splitlines()[0])["dependent"] is True
    assert result.to_json()["general"]["serialised"] == result.general.serialised


def test_the_time_on_inputs_never_seen_is_told_beside_the_winner():
    history = run([500.0, 1000.0, 2000.0], noise=0.001)
    history.confirmations = [
        replace(
            c,
            samples=tuple(
                replace(s, unseen=None if s.trial == BASELINE else 1.02 + c.process / 100)
                for s in c.samples
            ),
        )
        for c in history.confirmations
    ]
    result = summarise(history)
    ratio = result.general.cells[0].unseen
    assert 1.02 < ratio < 1.02 + len(history.confirmations) / 100
    told = f"{ratio:.2f} times as long on inputs never seen as on repeated ones"
    assert told in " ".join(render(result).split())


def test_the_result_is_json():
    data = json.loads(
        json.dumps(summarise(run([500.0, 1000.0, 2000.0])).to_json(), allow_nan=False)
    )
    assert data["outcome"] == "improved"
    assert data["speedup"] == pytest.approx(2.0)
    assert data["confirmed"] is True
    assert data["general"]["configuration"] == {"x": 0}
    assert data["other_cache"] is None
    assert data["general"]["cells"][2]["comparison"]["verdict"] == "faster"


def test_every_trial_is_a_row_for_programs_and_for_spreadsheets():
    history = run([500.0, 1000.0, 2000.0], WRONG, [500.0, None, None])
    template = Template(source=Source(name="t.cu", text=""), entry="f", parameters={"x": (0, 1)})
    history.experiment = replace(history.experiment, template=template)
    rows = [json.loads(line) for line in results_jsonl(history).splitlines()]
    assert [row["outcome"] for row in rows] == ["measured", "rejected", "measured"]
    assert rows[0]["shapes"]["n=256"]["median_ns"] == 500.0
    assert rows[0]["loss"] == pytest.approx(0.5)
    assert (rows[1]["code"], rows[1]["shape"], rows[1]["loss"]) == ("wrong_result", 1, None)
    assert rows[2]["shapes"]["n=1024"] == {"infeasible": "told to"}
    table = [line.split(",") for line in results_csv(history).splitlines()]
    assert table[0][:7] == ["trial", "outcome", "loss", "code", "launch", "x", "n=256 ns"]
    assert table[0][7:11] == ["n=256 mad ns", "n=256 baseline ns", "n=256 speedup", "n=1024 ns"]
    assert table[2] == ["1", "rejected", "", "wrong_result", "plain", "1", *[""] * 8]
    status = json.loads(status_json(summarise(history), 9))
    assert (status["trials"], status["facts"]) == (3, 9)


def test_many_kinds_of_failure_are_told_by_the_commonest():
    kinds = [
        Rejected(stage=Stage.LAUNCH, code=code, detail="d") for code in list(Code)[:7] for _ in "ab"
    ]
    result = summarise(run(*kinds, [500.0, 1000.0, 2000.0]))
    assert result.advice == advise(result.rejections, 15, [])
    assert result.advice[0].startswith("14 of 15 rejected: 2 ")
    assert "3 more kinds" in result.advice[0]
    assert len(result.advice) == 1 + 1 + 4


def test_one_that_was_slower_again_is_no_matter_of_its_cost():
    again = Rejected(stage=Stage.TIME, code=Code.SLOWER_AGAIN, detail="2.4 times as long", shape=1)
    result = summarise(run(again, [500.0, 1000.0, 2000.0]))
    assert result.advice[:2] == (
        "1 of 2 rejected: 1 slower when timed again at n=1024",
        "  hint: rerun on an idle machine",
    )


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(None, "-"), (812.0, "812 ns"), (1500.0, "1.5 µs"), (2.5e6, "2.5 ms"), (3e9, "3 s")],
)
def test_times_have_units(nanoseconds, text):
    assert time_text(nanoseconds) == text


def unfinished(*cells, same_as=None):
    """A run whose trials, on two shapes, have these cells, and that goes on."""
    facts = [EpochOpened(device=GPU, environment="one")]
    for number, two in enumerate(cells):
        facts.append(TrialProposed(trial=number, configuration=Configuration.of({"x": number})))
        facts.append(
            TrialFinished(
                trial=number,
                outcome=Measured(cells=two),
                device_seconds=0.1,
                same_as=(same_as or {}).get(number),
            )
        )
    return History.of(experiment(), map(Entry, facts))


def resumed(*baselines, environments=("one", "one")):
    """A run with a trial whose baseline was prepared in two epochs."""
    history = unfinished((TIMED, TIMED))
    for cells, environment in zip(baselines, environments, strict=True):
        history.apply(Entry(EpochOpened(device=GPU, environment=environment)))
        history.apply(Entry(BaselinePrepared(result=cells, notes=("its own",))))
    return summarise(history).notes


def baseline(median, mad=1.0):
    return Full(median_ns=median, mad_ns=mad, samples=5, baseline_ns=median)


def test_a_baseline_that_a_resume_changed_is_told_of():
    first, second = (baseline(6000.0), baseline(100.0)), (baseline(2000.0), baseline(110.0))
    told = resumed(first, second)
    assert told[1:] == ("its own",)
    assert "the baseline took 0.33 times as long after a resume" in told[0]
    assert resumed(first, second, environments=("one", "two")) == ("its own",)
    assert resumed(first, first) == ("its own",)


def test_a_baseline_whose_times_scatter_is_told_of_once():
    scattered = (baseline(100.0, mad=36.0), baseline(100.0))
    told = resumed(scattered, scattered)
    assert told[1:] == ("its own",)
    assert "scatter by 36%" in told[0]


TIMED = Full(median_ns=800.0, mad_ns=1.0, samples=5, baseline_ns=1000.0)
SHORT = CutShort(median_ns=123.0, samples=2, baseline_ns=1000.0)


@pytest.mark.parametrize("cells", [(SHORT, SHORT), (SHORT, TIMED), (TIMED, SHORT)])
def test_a_time_that_was_given_up_is_quoted_nowhere(cells):
    history = unfinished((TIMED, TIMED), cells)
    result = summarise(history)
    assert result.general.trial == 0
    assert result.speedup == pytest.approx(1.25)
    text = render(result) + results_csv(history)
    assert "123" not in text
    assert all(best.cell.time_ns in (None, 800.0) for best in result.specialised)
    row = json.loads(results_jsonl(history).splitlines()[1])
    assert row["outcome"] == "measured"
    kept = [value for value in row["shapes"].values() if "cut_short_at_ns" in value]
    assert len(kept) == sum(cell is SHORT for cell in cells)


def test_where_all_was_given_up_nothing_is_quoted():
    result = summarise(unfinished((SHORT, SHORT)))
    assert result.general is None
    assert result.speedup is None


def test_trials_with_the_code_of_another_are_counted_apart():
    history = unfinished((TIMED, TIMED), (TIMED, TIMED), (TIMED, TIMED), same_as={1: 0, 2: 0})
    result = summarise(history)
    assert (result.trials, result.measured, result.merged) == (3, 1, 2)
    assert "1 measured, 0 rejected, 2 more with the same code as another" in render(result)
    rows = [json.loads(line) for line in results_jsonl(history).splitlines()]
    assert [row["same_as"] for row in rows] == [None, 0, 0]


def test_parameters_without_effect_are_named():
    times = [[500.0, 1000.0, 2000.0]] * 6
    result = summarise(run(*times))
    assert [(one.parameter, one.why) for one in result.inactive] == [("x", "time")]
    assert "no effect    x (times within 2% in all 5 comparisons)" in render(result)
    different = [[500.0 + 50 * n, 1000.0, 2000.0] for n in range(6)]
    assert summarise(run(*different)).inactive == ()
