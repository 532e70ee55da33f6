"""Runs with agents as a whole: over a simulated fleet, then as a process on a real device."""

import asyncio
import json
import os
import re
import signal
import subprocess
from dataclasses import replace

import pytest

from agents.llm.mailbox import answer, pending
from agents.llm.port import REQUESTS, Reply, Role, StepKey
from agents.llm.replay import Exchange, Header, read_transcript, write_transcript
from agents.rounds_summary import read_summary
from agents.settings import AgentSettings, with_agent_settings
from agents.step_journal import recorded_exchanges
from cluster.commands.report import FILES, report
from cluster.commands.results import export, is_over, stop
from cluster.runs.agent_run import AgentRun, open_run
from cluster.runs.model_choice import TRANSCRIPT, UNANSWERED, ModelAccess
from cluster.runs.resuming import allow_seconds
from cluster.runs.run_layout import searches_begun
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tests.agents.devices import CPU
from tests.agents.test_loop import BASELINE_NS, draft, plain, script, suggestion
from tests.cluster.kernels import FAMILY, ROOT, SPEC, command, kernelwright, write_experiment
from tests.tuner.engine.simulated_fleet import Fault, SimulatedFleet
from tuner.engine.work import PrepareWork
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.digest import kernel_digest
from tuner.experiment.load import load_experiment
from tuner.journal.history import History
from tuner.run_directory import RunDirectory, RunView

TWO_ROUNDS = script(
    ([suggestion()], [draft(0.8, "I forgot the rest {"), draft(0.8)]),
    (["no", suggestion()], [draft(0.5)]),
    ([suggestion(stop=True)], []),
)


def cost(point, shape):
    worse = abs(int(point.as_dict()["VEC"]).bit_length() - 4)
    return BASELINE_NS[shape] * 0.5 * (1 + worse / 10)


def begin(path, transcript=TWO_ROUNDS, **agents):
    experiment = with_agent_settings(
        plain(), AgentSettings(**({"model": "replay", "rounds": 3} | agents))
    )
    RunDirectory.create(path, experiment, "").close()
    write_transcript(path / TRANSCRIPT, transcript.header, transcript.exchanges)
    return path


def follow(path, *, fleets=None, leave_after=None, how=None, **options):
    """Go on with a run; after so many pictures of it, ask for an end."""

    async def opener(_backend):
        fleet = SimulatedFleet(device=CPU, baseline_ns=BASELINE_NS, cost=cost, **options)
        if fleets is not None:
            fleets.append(fleet)
        return fleet

    async def go():
        run = open_run(RunProcess(path, opener), ModelAccess())
        assert isinstance(run, AgentRun)
        pictures = []
        async for picture in run.progress():
            pictures.append(str(picture))
            if len(pictures) == leave_after:
                run.stop(how)
        return pictures

    return asyncio.run(go())


def settled(path):
    summary = read_summary(path)
    steps = {
        file.name: json.loads(file.read_text())["result"] for file in (path / "llm").rglob("*.json")
    }
    for result in steps.values():
        result.pop("seconds", None)
    return replace(summary, spent=replace(summary.spent, seconds=0.0)), steps


def test_replayed_rounds_end_with_a_summary_variants_and_an_export(tmp_path, capsys):
    fleets = []
    pictures = follow(begin(tmp_path / "run"), fleets=fleets)
    summary = read_summary(tmp_path / "run")
    assert summary.reason == "planned"
    assert summary.gained
    assert summary.over
    assert summary.searched == 1
    assert [past.verdict for past in summary.rounds] == [
        "improved",
        "no significant gain",
    ]
    assert summary.spent.calls == 7
    assert summary.rounds[0].gain is None
    assert summary.rounds[1].gain.speedup == pytest.approx(1.0)
    entered = [
        "incumbent.entered" in (tmp_path / f"run/rounds/{number}/journal.jsonl").read_text()
        for number in ("01", "02")
    ]
    assert entered == [False, True]
    assert len(list((tmp_path / "run" / "variants").iterdir())) == 2
    assert (tmp_path / "run" / "export" / "twice.h").is_file()
    assert any(text.startswith("round 2: search") for text in pictures)
    (again,) = (text for text in pictures if "generation (attempt 2" in text)
    assert again.startswith("round 1: generation (attempt 2, since the parser of replies reports: ")
    assert "\n" not in again
    prepared = [work for work in fleets[0].submitted if isinstance(work, PrepareWork)]
    assert len(prepared) == 1, "the baseline is prepared once for all rounds"
    assert read_transcript(tmp_path / "run" / TRANSCRIPT) == TWO_ROUNDS
    report(tmp_path / "run", as_json=False)
    told = capsys.readouterr().out
    assert re.search(r"[0-9]× when the round ended", " ".join(told.split()))
    tried = sum(
        (tmp_path / f"run/rounds/{number}/journal.jsonl").read_text().count('"trial.finished"')
        for number in ("01", "02")
    )
    assert told.startswith(f"{tried} trials in 2 rounds; the result below is from round 1:\n")
    report(tmp_path / "run", html_files=True, as_json=False)
    written = capsys.readouterr().out.split()
    assert written[: len(FILES)] == [str(tmp_path / "run" / name) for name in FILES]
    page = (tmp_path / "run" / "report.html").read_text()
    for words in ("Round 2: no significant gain", "against the template of round 1", "<ins>+"):
        assert words in page
    assert "Round 2: no significant gain" in (tmp_path / "run" / "report.md").read_text()


def test_a_timeline_has_the_calls_of_the_model_and_the_searches_of_all_rounds(
    finished_rounds, capsys
):
    path, _ = finished_rounds
    report(path, timeline=True, as_json=True)
    found = json.loads(capsys.readouterr().out)
    kinds = {one["kind"]: one["count"] for one in found["kinds"]}
    assert kinds["model"] == 7
    assert kinds["prepare"] == 1, "the baseline is prepared once for all rounds"
    finished = [
        fact
        for view in map(RunView.open, (path, path / "rounds" / "01", path / "rounds" / "02"))
        for fact in view.facts()
        if fact.kind == "trial.finished" and fact.span is not None
    ]
    assert kinds["measure"] == len(finished)
    report(path, timeline=True, as_json=False)
    assert "language model" in capsys.readouterr().out


def test_the_report_says_what_was_rejected_in_which_round(tmp_path, capsys):
    run = begin(tmp_path / "run")
    follow(run, faults={0: Fault.HANG})
    report(run, as_json=True)
    rejected = json.loads(capsys.readouterr().out)["agents"]["rejected"]
    assert list(rejected) == ["1", "2"]
    assert re.fullmatch(r"1 of \d rejected: 1 hung at tokens=\S+ \(trial 0: .+\)", rejected["1"])
    report(run, as_json=False)
    told = " ".join(capsys.readouterr().out.split())
    assert all(words in told for words in rejected.values() if words)


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_left_anywhere_and_resumed_it_ends_the_same(tmp_path, every):
    total = len(follow(begin(tmp_path / "whole")))
    expected = settled(tmp_path / "whole")
    secret = (tmp_path / "whole" / "secret").read_text()
    for leave_after in range(1, total, every):
        path = begin(tmp_path / f"left{leave_after}")
        (path / "secret").write_text(secret)
        follow(path, leave_after=leave_after, how="interrupted")
        assert read_summary(path) is None
        follow(path)
        assert settled(path) == expected, f"left after {leave_after} pictures"


def test_a_resumed_round_searches_no_longer_than_the_whole_run_is_given(tmp_path):
    path = begin(tmp_path / "run")
    follow(path, leave_after=12, how="interrupted")
    [search] = searches_begun(path)
    spent = History.of(plain(), RunView.open(search).entries()).clock.spent
    for seconds in (1e5, 2.0):
        share = RunView.open(search).experiment.search.seconds
        allow_seconds(path, seconds)
        assert seconds <= RunView.open(path).experiment.search.seconds < seconds + 5
        expected = min(share, spent + seconds)
        assert RunView.open(search).experiment.search.seconds == pytest.approx(expected)


@pytest.mark.parametrize("suffix", ["/../../../other/rounds/01", "\0", "-d0" * 99])
def test_a_summary_names_no_place_outside_its_run(run, suffix):
    summary = json.loads((run / "rounds.json").read_text())
    (run / "rounds.json").write_text(json.dumps(summary | {"suffix": suffix}))
    with pytest.raises(EnvironmentProblem, match=r"rounds\.json cannot be read; delete it"):
        report(run, as_json=False)


def test_a_step_of_endless_digits_is_damage(run):
    step = run / "llm" / "r1-d0-planning-a0.json"
    record = json.loads(step.read_text())
    step.write_text(json.dumps(record | {"seconds": 10**400}))
    (run / "rounds.json").unlink()
    with pytest.raises(SpecError, match="r1-d0-planning-a0 is damaged"):
        follow(run)


def test_what_lies_beside_an_export_and_is_no_text_is_named(run):
    summary = read_summary(run)
    (run / "rounds.json").unlink()
    stray = run / "rounds" / f"{summary.searched:02d}{summary.suffix}" / "export" / "stray"
    stray.write_bytes(b"\xff")
    with pytest.raises(EnvironmentProblem, match="stray is not UTF-8"):
        follow(run)
    stray.unlink()
    stray.symlink_to("/etc/hostname")
    with pytest.raises(EnvironmentProblem, match="stray is a link"):
        follow(run)


def test_an_export_replaces_a_link_and_follows_none(run, tmp_path):
    link = run / "export" / "twice.h"
    link.unlink()
    link.symlink_to(tmp_path / "victim")
    export(run, output=None, form="sources")
    assert not (tmp_path / "victim").exists()
    assert link.is_file()
    assert not link.is_symlink()


def test_how_an_earlier_life_ended_is_not_told_of_the_next(tmp_path):
    path = begin(tmp_path / "run", script(([suggestion()], [draft(0.8)])))
    follow(path)
    assert read_summary(path).reason == "model"
    write_transcript(path / TRANSCRIPT, TWO_ROUNDS.header, TWO_ROUNDS.exchanges)
    follow(path, leave_after=1, how="interrupted")
    assert read_summary(path) is None


def test_a_request_without_a_reply_is_kept_for_whoever_goes_on(tmp_path):
    path = begin(tmp_path / "run", script(([suggestion()], [draft(0.8)])))
    follow(path)
    summary = read_summary(path)
    assert summary.gained
    assert summary.detail == "the transcript has no reply for r2-d0-planning-a0"
    request = REQUESTS.validate_json((path / "llm" / UNANSWERED).read_bytes())
    assert str(request.position.step) == "r2-d0-planning-a0"
    assert "Results of the last search" in request.messages[1].content


def test_asked_to_stop_it_keeps_what_it_has(tmp_path, finished_rounds):
    path = begin(tmp_path / "run")
    _, pictures = finished_rounds
    second = next(n for n, text in enumerate(pictures) if text.startswith("round 2: search"))
    follow(path, leave_after=second, how="stopped")
    summary = read_summary(path)
    assert summary.reason == "stopped"
    assert summary.gained
    assert summary.over


def test_asked_to_stop_before_it_found_anything_it_goes_on_later(tmp_path, finished_rounds):
    path = begin(tmp_path / "run")
    _, pictures = finished_rounds
    first = next(n for n, text in enumerate(pictures) if text.startswith("round 1: planning"))
    follow(path, leave_after=first, how="stopped")
    assert not read_summary(path).over
    follow(path)
    assert read_summary(path).gained


def test_a_template_that_fails_on_the_device_goes_back_to_its_author(tmp_path):
    path = begin(tmp_path / "run", script(([suggestion()], [draft(0.5)] * 4)), rounds=1)
    faults = dict.fromkeys(range(99), Fault.WRONG)
    follow(path, faults=faults)
    summary = read_summary(path)
    assert summary.model_failed
    assert "no usable template" in summary.rounds[0].verdict
    assert "wrong_result" in summary.rounds[0].verdict
    assert summary.spent.calls == 5


REPLIES = {
    Role.PLANNING: suggestion(),
    Role.GENERATION: """
```json
{"entry": "scale", "parameters": {"ITEMS": {"values": [1, 2, 4], "reason": "fewer items"},
  "BLOCK": {"values": [16, 64], "reason": "group size"}},
 "launch": {"grid": ["ceil_div(n, BLOCK * ITEMS)"], "block": ["BLOCK"]},
 "rationale": "several elements to a work-item"}
```
```c
"""
    + FAMILY
    + "```\n",
}
ONE_ROUND = SPEC.replace("template: template.yaml\n", "agents: {rounds: 1}\n")


def write_transcript_beside(spec, replies=REPLIES, kernel=None):
    experiment = load_experiment(spec)
    header = Header(
        experiment=experiment.name,
        kernel=kernel or kernel_digest(experiment.kernel),
        made="by a test",
    )
    exchanges = [
        Exchange(
            step=StepKey(round=1, draft=0, role=role, attempt=attempt),
            request="0" * 64,
            reply=Reply(text=text),
        )
        for role, text in replies.items()
        for attempt in range(4)
    ]
    language = experiment.kernel.language
    write_transcript(spec.parent / f"transcript_{language}.jsonl", header, exchanges)


@pytest.mark.slow
def test_a_transcript_beside_the_spec_is_replayed_killed_and_resumed(tmp_path):
    spec, run = write_experiment(tmp_path / "spec", spec=ONE_ROUND), tmp_path / "run"
    write_transcript_beside(spec)
    journal = run / "rounds" / "01" / "journal.jsonl"
    process = subprocess.Popen(
        command("run", spec, "--fleet", "local", "--run-dir", run),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in process.stderr:
        if journal.is_file() and b"trial.finished" in journal.read_bytes():
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    asked = {file.name: file.read_bytes() for file in (run / "llm").glob("*.json")}
    finished = journal.read_bytes()

    result = kernelwright("resume", run, "--fleet", "local")
    assert result.returncode == 0, result.stderr
    assert re.search(
        r"^kernelwright: outcome=(improved|no_gain) .*rounds=1 calls=2 tokens=0 cost=0\.00 run=",
        result.stdout.splitlines()[-1],
    )
    assert journal.read_bytes().startswith(finished)
    assert all((run / "llm" / name).read_bytes() == text for name, text in asked.items())
    status = json.loads(kernelwright("status", run, "--json").stdout)
    assert (status["state"], status["rounds"], status["calls"]) == ("finished", 1, 2)
    assert status["trials"] == len(re.findall(b'"trial.finished"', journal.read_bytes()))
    assert status["speedup_there"] > 0
    assert status["outcome"] in ("improved", "no_gain")
    assert "×" in status["result"]
    assert "=" in status["best_of_search"]
    exported = kernelwright("export", run, "--output", tmp_path / "again")
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "again" / "scale.h").read_bytes() == (run / "export/scale.h").read_bytes()
    report = json.loads(kernelwright("report", run, "--json").stdout)
    assert report["agents"]["rounds"][0]["verdict"] in (
        "improved",
        "no significant gain",
    )


@pytest.mark.parametrize(
    ("replies", "arguments", "words"),
    [
        ({Role.PLANNING: "I cannot do that"}, (), "no usable suggestion"),
        ({}, (), "the transcript has no reply for r1-d0-planning-a0"),
        (REPLIES, ("--kernel",), "was recorded for another kernel"),
        (
            {
                **REPLIES,
                Role.GENERATION: REPLIES[Role.GENERATION].replace(
                    "kernel void", '#include "/etc/passwd"\nkernel void'
                ),
            },
            (),
            "passwd",
        ),
    ],
)
def test_where_the_model_side_gives_out_the_exit_code_is_5(tmp_path, replies, arguments, words):
    spec = write_experiment(tmp_path / "spec", spec=ONE_ROUND)
    write_transcript_beside(spec, replies, kernel="0" * 64 if arguments else None)
    options = ("--fleet", "local", "--model", "replay", "--run-dir", tmp_path / "run")
    result = kernelwright("run", spec, *options)
    assert result.returncode == 5, result.stderr
    assert words in result.stderr.strip().splitlines()[-1] + result.stdout


def test_through_a_mailbox_it_waits_with_6_and_goes_on_when_answered(tmp_path):
    spec, run, box = write_experiment(tmp_path / "spec", spec=ONE_ROUND), tmp_path / "run", tmp_path
    begun = ("--model", f"mailbox:{box / 'box'}", "--fleet", "local", "--run-dir", run)
    result = kernelwright("run", spec, *begun, "--trials", 1, "--exit-when-waiting")
    for role in (Role.PLANNING, Role.GENERATION):
        assert result.returncode == 6, result.stderr
        again = f"kernelwright resume {run} --exit-when-waiting\n"
        assert result.stderr.endswith(f"; continue with: {again}")
        (request,) = pending(box / "box")
        answer(box / "box", request, Reply(text=REPLIES[role]))
        result = kernelwright("resume", run, "--exit-when-waiting")
    assert result.returncode == 0, result.stderr
    recorded = read_transcript(run / TRANSCRIPT)
    assert recorded.exchanges == recorded_exchanges(run / "llm")
    assert [exchange.reply.text for exchange in recorded.exchanges] == list(REPLIES.values())


CUDA_KERNEL = """\
extern "C" __global__ void scale(float *out, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 3.0f * x[i];
}
"""
CUDA_REPLIES = {
    Role.PLANNING: REPLIES[Role.PLANNING],
    Role.GENERATION: REPLIES[Role.GENERATION].replace(
        FAMILY,
        CUDA_KERNEL.replace(
            "int i = blockIdx.x * blockDim.x + threadIdx.x;\n",
            "for (int k = 0; k < ITEMS; ++k) {\n"
            "    int i = (blockIdx.x * ITEMS + k) * BLOCK + threadIdx.x;\n",
        ).replace("x[i];", "x[i]; }"),
    ),
}


PARKED = "a b;$(c)"
"""A folder whose name a hint must quote for the shell."""


def parked(tmp_path, *more):
    """A CUDA run that goes as far as it can without a GPU."""
    spec = ONE_ROUND.replace("opencl", "cuda").replace("scale.cl", "scale.cu")
    path = write_experiment(tmp_path / "spec", spec=spec)
    (path.parent / "scale.cu").write_text(CUDA_KERNEL)
    write_transcript_beside(path, CUDA_REPLIES)
    return kernelwright("run", path, "--target", "sm_90", "--run-dir", tmp_path / PARKED, *more)


def test_without_the_device_it_goes_as_far_as_the_corners_and_waits_with_6(tmp_path):
    pytest.importorskip("cupy_backends")
    result = parked(tmp_path)
    assert result.returncode == 6, result.stderr
    words = "r1-d0-admission-a0: the corners compile; this needs the device itself (NVIDIA H100"
    assert words in result.stderr.splitlines()[-1]
    run = tmp_path / PARKED
    assert result.stderr.endswith(f"continue with: kernelwright resume '{run}'\n")
    steps = sorted(file.stem for file in (run / "llm").rglob("*.json"))
    assert steps == ["baseline", "r1", "r1-d0-generation-a0", "r1-d0-planning-a0"]
    baseline = json.loads((run / "llm/baseline.json").read_text())["result"]
    assert baseline["static"]["usage"]["registers"] > 0
    assert ["global load of 4 B", 1] in baseline["static"]["usage"]["mix"]
    assert set(baseline["times_us"]) == {None}
    again = kernelwright("resume", run, "--target", "sm_90")
    assert again.returncode == 6, again.stderr
    status = json.loads(kernelwright("status", run, "--json").stdout)
    assert (status["calls"], status["state"]) == (2, "waiting")


@pytest.mark.parametrize(("more", "code"), [(("--target", "sm_1"), 2), (("--model", "none"), 6)])
def test_a_target_that_nobody_knows_and_a_run_that_is_all_device(tmp_path, more, code):
    pytest.importorskip("cupy_backends")
    result = parked(tmp_path, *more)
    assert result.returncode == code, result.stderr
    assert "bug" not in result.stderr
    assert ("continue with: kernelwright resume " in result.stderr) == (code == 6)
    if code == 6:
        status = json.loads(kernelwright("status", tmp_path / PARKED, "--json").stdout)
        assert status["state"] == "waiting"


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        ("nosuch/model", SpecError, "does not know the model"),
        ("openai/gpt-4o-mini", EnvironmentProblem, "set OPENAI_API_KEY"),
        ("mailbox:/proc/none", EnvironmentProblem, "cannot be created"),
    ],
)
def test_a_model_that_cannot_be_asked_is_noticed_before_anything_is_compiled(
    tmp_path, monkeypatch, model, error, says
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path, fleets = begin(tmp_path / "run", model=model), []
    with pytest.raises(error, match=says):
        follow(path, fleets=fleets)
    assert fleets == []


def test_told_to_stop_now_it_leaves_a_model_that_does_not_answer(tmp_path):
    box = tmp_path / "box"
    path = begin(tmp_path / "run", model=f"mailbox:{box}")

    async def opener(_backend):
        return SimulatedFleet(device=CPU, baseline_ns=BASELINE_NS, cost=cost)

    async def ask():
        while not (box.exists() and list(pending(box))):
            await asyncio.sleep(0.01)
        stop(path, now=True)

    async def go():
        asking = asyncio.create_task(ask())
        async for _ in AgentRun(RunProcess(path, opener), ModelAccess()).progress():
            pass
        await asking

    asyncio.run(asyncio.wait_for(go(), 30))
    assert not is_over(path)


def test_a_run_that_only_waits_brings_no_fleet_up(tmp_path):
    path, fleets = begin(tmp_path / "run", model=f"mailbox:{tmp_path / 'box'}"), []

    async def opener(_backend):
        fleets.append(SimulatedFleet(device=CPU, baseline_ns=BASELINE_NS, cost=cost))
        return fleets[-1]

    async def go():
        async for _ in AgentRun(
            RunProcess(path, opener), ModelAccess(exit_when_waiting=True)
        ).progress():
            pass

    for _ in range(3):
        asyncio.run(go())
        assert read_summary(path).waiting
    assert len(fleets) == 1


def test_while_a_model_thinks_the_best_template_is_searched_on(tmp_path, monkeypatch):
    monkeypatch.setattr("agents.round.OVERLAP_AFTER_SECONDS", 0.01)
    box, path = tmp_path / "box", tmp_path / "run"
    begin(path, model=f"mailbox:{box}", overlap=True)
    further = path / "rounds" / "01-meanwhile2" / "journal.jsonl"
    texts = {exchange.step: exchange.reply.text for exchange in TWO_ROUNDS.exchanges}

    def far(point, shape):
        values = point.as_dict()
        return BASELINE_NS[shape] * (0.1 if values["VEC"] * values["BLOCK"] == 1 else 0.5)

    async def opener(_backend):
        return SimulatedFleet(device=CPU, baseline_ns=BASELINE_NS, cost=far, noise=0.002)

    async def reply():
        while True:
            for request in list(pending(box)) if box.exists() else []:
                if request.position.step.round < 2 or further.exists():
                    answer(box, request, Reply(text=texts[request.position.step]))
            await asyncio.sleep(0.01)

    async def go():
        replying = asyncio.create_task(reply())
        shown = [
            str(one) async for one in AgentRun(RunProcess(path, opener), ModelAccess()).progress()
        ]
        replying.cancel()
        return shown

    shown = asyncio.run(go())
    further_on = [
        line for line in shown if line.startswith("round 1 (while a model was asked): search: ")
    ]
    assert further_on
    assert not any("left" in line or "1000000000 s" in line for line in further_on)
    summary = read_summary(path)
    assert (summary.searched, summary.suffix) == (1, "-meanwhile2-final1")
    best = json.loads((path / "llm" / "r2-meanwhile.json").read_text())["result"]
    assert best["speedup"] == pytest.approx(10, rel=0.1)
    assert best["trials"] == 20
    own = (path / "rounds" / "01" / "journal.jsonl").read_text()
    assert own.count("trial.finished") == 3
    assert "BLOCK=1" in (path / "export" / "twice.h").read_text()
    result = json.loads(kernelwright("report", path, "--json").stdout)
    assert result["speedup"] == pytest.approx(10, rel=0.1)


def test_without_agents_it_is_an_ordinary_run(tmp_path):
    RunDirectory.create(tmp_path / "run", replace(plain(), agents=None), "").close()

    async def never(_backend):
        raise AssertionError

    assert isinstance(open_run(RunProcess(tmp_path / "run", never), ModelAccess()), SearchRun)
