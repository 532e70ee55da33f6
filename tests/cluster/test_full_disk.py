"""Runs on a full disk: derived files can wait, a journal ends a run that is resumed later."""

import asyncio
import json
import os
import re
import resource
import shutil
import subprocess
import time

import pytest
import typer

from cluster.commands.report import FILES, conclude, finish
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tests.agents.devices import CPU
from tests.cluster.faults import finished, note, recovery
from tests.cluster.kernels import ROOT, SPEC, command, kernelwright, write_experiment
from tests.tuner.engine.simulated_fleet import SimulatedFleet
from tuner.errors import JournalUnwritable
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView

DERIVED = ("status.json", "results.jsonl", "results.csv", "export", *FILES)


def begin(folder):
    spec = write_experiment(folder / "spec")
    RunDirectory.create(folder / "run", load_experiment(spec), SPEC).close()
    return folder / "run"


def follow(path):
    async def opener(_backend):
        return SimulatedFleet(device=CPU, baseline_ns=(1e4,) * 9, cost=lambda *_: 5e3)

    async def go():
        async for _ in SearchRun(RunProcess(path, opener)).progress():
            pass

    asyncio.run(go())


def proposed(path):
    return [fact.trial for fact in RunView.open(path).facts() if fact.kind == "trial.proposed"]


def test_derived_files_that_cannot_be_written_are_named_and_written_later(tmp_path, capsys):
    path = begin(tmp_path)
    blocked = [path / name for name in DERIVED]
    for place in blocked:
        (place / "in the way").mkdir(parents=True)
    (path / "export").chmod(0)
    follow(path)
    assert RunView.open(path).facts()[-1].kind == "run.finished"
    result = finish(path)
    assert result.outcome == "improved"
    capsys.readouterr()
    with pytest.raises(typer.Exit) as ended:
        conclude(path, as_json=False)
    assert ended.value.exit_code == 7
    printed, said = capsys.readouterr()
    assert "outcome=improved" in printed
    assert f"the result is kept: `kernelwright resume {path}` then writes the missing files" in said
    assert f"cannot be written (Is a directory); move {path / DERIVED[1]} away" in said
    assert "cannot be written" in (path / "log.txt").read_text()
    (path / "export").chmod(0o700)
    for place in blocked:
        shutil.rmtree(place)
    assert finish(path) == result
    assert capsys.readouterr().err == ""
    assert all(place.exists() for place in blocked)
    assert json.loads((path / "status.json").read_text())["outcome"] == "improved"


def test_a_journal_that_cannot_be_written_ends_the_run_which_goes_on_with_nothing_lost(tmp_path):
    path = begin(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(JournalUnwritable, match=r"cannot write .*/journal\.jsonl: File too"):
            follow(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    first = RunView.open(path).facts()
    (path / "lease.json").write_text("{")  # as a killed process may leave it
    os.utime(path / "lease.json", (0, 0))
    assert any(fact.kind == "trial.finished" for fact in first)
    assert first[-1].kind != "run.finished"
    follow(path)
    whole = RunView.open(path).facts()
    assert whole[: len(first)] == first
    assert whole[-1].kind == "run.finished"
    log = (path / "log.txt").read_text()
    assert "the run directory is taken over from an unknown process" in log
    assert proposed(path) == sorted(set(proposed(path)))


@pytest.mark.slow
@pytest.mark.usefixtures("fault_time")
@pytest.mark.parametrize(
    ("size", "code", "said"),
    [
        ("32k", 3, r"No space left on device; everything before is kept; continue with: "),
        ("64k", 7, r"No space left on device\).*; the result is kept: "),
    ],
    ids=["journal", "derived"],
)
def test_a_run_on_a_full_file_system_prints_its_result_and_how_to_go_on(tmp_path, size, code, said):
    small = tmp_path / "small"
    small.mkdir()
    spec = write_experiment(tmp_path / "spec")
    words = command("run", spec, "--fleet", "local", "--run-dir", small / "run")
    # The run is copied out before the file system goes with its namespace.
    script = (
        'mount -t tmpfs -o size=$1 none "$2" || exit 99; small=$2; kept=$3; shift 3; '
        '"$@"; code=$?; cp -r "$small/run" "$kept"; exit $code'
    )
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", size, small, tmp_path / "run", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 99 or "unshare:" in done.stderr:
        pytest.skip("this machine lets no user mount a file system")
    assert done.returncode == code, done.stderr
    assert ("outcome=unfinished" in done.stdout) == (code == 3)
    assert re.search(f"{said}.*kernelwright resume {small}/run", done.stderr.splitlines()[-1])
    run, began = tmp_path / "run", time.time()
    before = finished(run)
    again = kernelwright("resume", run, "--fleet", "local")
    seconds = recovery(run, began) or time.time() - began
    assert again.returncode == 0, again.stderr
    assert finished(run)[: len(before)] == before
    assert re.search("outcome=(improved|no_gain)", again.stdout)
    row = f"the disk is full, {'for the journal' if code == 3 else 'for derived files'}"
    note(row, run, seconds, done.stderr.splitlines())
    assert {"results.csv", "report.html"} <= {path.name for path in run.iterdir()}
