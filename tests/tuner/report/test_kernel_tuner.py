"""Trials in Kernel Tuner's formats: every state, times, and back again as seeds."""

import json
from dataclasses import replace

import pytest

from tests.tuner.results.runs import finished_facts, with_energy
from tests.tuner.space.devices import opencl_cpu
from tuner.experiment.load import load_experiment
from tuner.experiment.recorded_results import best_recorded
from tuner.journal.facts import Entry, TrialFinished
from tuner.journal.history import History
from tuner.report.kernel_tuner import cache_file, t4_results
from tuner.trial import Code, CutShort, Full, Measured, Rejected, Stage

FAILURES = [
    (Stage.COMPILE, Code.COMPILE_ERROR, "compile", "CompilationFailedConfig"),
    (Stage.COMPILE, Code.COMPILE_TIMEOUT, "timeout", "RuntimeFailedConfig"),
    (Stage.LIMITS, Code.THREADS, "constraints", "InvalidConfig"),
    (Stage.LAUNCH, Code.ILLEGAL_ADDRESS, "runtime", "RuntimeFailedConfig"),
    (Stage.LAUNCH, Code.HANG, "timeout", "RuntimeFailedConfig"),
    (Stage.VERIFY, Code.WRONG_RESULT, "correctness", "RuntimeFailedConfig"),
    (Stage.TIME, Code.SLOWER_AGAIN, "correctness", "RuntimeFailedConfig"),
]


OBJECTIVES = [("energy", 2.0, "mJ"), ("energy_delay", 4.0, "mJ ms")]


@pytest.fixture(scope="module")
def run():
    """A good trial, one for each failure, and one that was cut short."""
    experiment = load_experiment("deploy/experiments/silu_and_mul/opencl.yaml")
    parameters = experiment.template.parameters
    first = {name: values[0] for name, values in parameters.items()}
    name, values = max(parameters.items(), key=lambda one: len(one[1]))
    trials = [(first, [4e6, 1e6, 1e6, 1e6])]
    for number, (stage, code, *_) in enumerate(FAILURES):
        other = first | {name: values[1 + number % (len(values) - 1)]}
        trials.append((other, Rejected(stage=stage, code=code, detail="told to")))
    trials.append((first | {name: values[-1]}, [3e6] * 4))
    facts = finished_facts(experiment, opencl_cpu(), [1e6] * 4, trials)
    short = CutShort(median_ns=9e6, samples=1, baseline_ns=1e6)
    full = Full(median_ns=3e6, mad_ns=1.0, samples=9, baseline_ns=1e6)
    facts = [
        replace(fact, outcome=Measured(cells=(short, full)))
        if isinstance(fact, TrialFinished) and fact.trial == len(trials) - 1
        else fact
        for fact in facts
        if fact.kind not in ("search.ended", "confirmation.sampled", "run.finished")
    ]
    entries = [Entry(fact, at=1795953135.5) for fact in facts]
    return History.of(experiment, entries), entries, first


def test_t4_has_every_state_and_what_was_measured(run):
    told = json.loads(t4_results(*run[:2]))
    assert told["schema_version"] == "1.0.0"
    good, *failed, short = told["results"]
    assert good["configuration"] == run[2]
    assert (good["invalidity"], good["correctness"]) == ("correct", 1)
    assert good["measurements"][0] == {"name": "time", "value": pytest.approx(2.0), "unit": "ms"}
    assert good["times"]["runtimes"] == pytest.approx([2.0])
    assert [one["value"] for one in good["measurements"][1:]] == [4.0, 1.0]
    assert good["timestamp"] == "2026-11-29 11:52:15.500000+00:00"
    states = [(one["invalidity"], one["correctness"], one["objectives"]) for one in failed]
    assert states == [(state, 0, []) for *_, state, _ in FAILURES]
    assert (short["invalidity"], short["objectives"]) == ("correct", [])
    assert "cut_short" in [one["name"] for one in short["measurements"]]


def test_a_cache_has_the_fields_that_its_schema_asks_for(run):
    told = json.loads(cache_file(*run[:2]))
    key = ",".join(map(str, run[2].values()))
    assert told["cache"][key]["time"] == pytest.approx(2.0)
    assert {
        *("time", "compile_time", "verification_time", "benchmark_time", "strategy_time"),
        *("framework_time", "timestamp", *told["tune_params_keys"]),
    } <= told["cache"][key].keys()
    words = {one["time"] for one in told["cache"].values() if isinstance(one["time"], str)}
    assert words <= {"CompilationFailedConfig", "InvalidConfig", "RuntimeFailedConfig"}
    assert told["tune_params"][told["tune_params_keys"][0]]


@pytest.mark.parametrize("render", [t4_results, cache_file])
def test_what_was_written_is_read_as_seeds(run, render, tmp_path):
    path = tmp_path / "recorded.json"
    path.write_text(render(*run[:2]))
    assert best_recorded(path) == (run[2],)


@pytest.mark.parametrize(("objective", "cost", "unit"), OBJECTIVES)
def test_what_was_minimised_stands_beside_the_time(objective, cost, unit, tmp_path):
    spec = load_experiment("deploy/experiments/silu_and_mul/opencl.yaml")
    spec = replace(spec, objective=objective)
    parameters = spec.template.parameters
    thrifty = {name: values[0] for name, values in parameters.items()}
    fast = {name: values[-1] for name, values in parameters.items()}
    facts = finished_facts(spec, opencl_cpu(), [4e6] * 4, [(fast, [1e6] * 4), (thrifty, [2e6] * 4)])
    facts = [with_energy(fact, 2.0 if getattr(fact, "trial", 0) else 9.0) for fact in facts]
    entries = [Entry(fact) for fact in facts]
    history = History.of(spec, entries)
    for render in (t4_results, cache_file):
        (tmp_path / "recorded.json").write_text(render(history, entries))
        assert best_recorded(tmp_path / "recorded.json") == (thrifty, fast)
    told = json.loads(t4_results(history, entries))["results"][1]
    assert told["objectives"] == [objective]
    assert {"name": objective, "value": pytest.approx(cost), "unit": unit} in told["measurements"]
    assert {"name": "time", "value": pytest.approx(2.0), "unit": "ms"} in told["measurements"]
    cache = json.loads(cache_file(history, entries))
    assert cache["objective"] == objective
    assert [one[objective] for one in cache["cache"].values()][1] == pytest.approx(cost)


def test_a_cache_without_its_end_is_read(tmp_path):
    path = tmp_path / "cache.json"
    rows = "".join(f'"{n}": {{"bx": {n}.0, "time": {9 - n}}},\n' for n in range(8))
    failed = '"9": {"bx": 9, "time": "InvalidConfig"},'
    path.write_text(f'{{"tune_params_keys": ["bx"], "cache": {{\n{rows}{failed}')
    assert best_recorded(path) == tuple({"bx": n} for n in (7, 6, 5, 4, 3))


HUGE = f'{{"cache": {{"1": {{"bx": 1, "time": {"9" * 400}}}}}, "tune_params_keys": ["bx"]}}'


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"cache": 3}', '{"results": [{}]}', "x" * 99, HUGE]
)
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "file.json"
    path.write_text(text)
    if text:
        with pytest.raises(ValueError, match=r"file\.json: neither the results\.jsonl of a run"):
            best_recorded(path)
    else:
        assert best_recorded(path) == ()
    with pytest.raises(ValueError, match="no such file"):
        best_recorded(tmp_path / "none")
