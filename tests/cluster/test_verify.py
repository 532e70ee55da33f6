"""``verify`` on a real run: its numbers hold, and an export that was touched is seen."""

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from cluster.commands.results import write_export
from cluster.commands.verify import verify
from tests.cluster import test_compare
from tests.cluster.kernels import ROOT, command, kernelwright, write_experiment
from tuner.errors import EnvironmentProblem
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory


@pytest.fixture
def run(finished_run):
    return finished_run[0]


def test_claims_are_measured_again_from_the_export_alone(run):
    result = kernelwright("verify", run, "--json")
    report = json.loads(result.stdout)
    assert {check["shape"] for check in report["checks"]} == {"n=1000", "n=4096", "n=777"}
    assert all(check["measured"]["processes"] == 4 for check in report["checks"])
    verdicts = {check["verdict"] for check in report["checks"]}
    assert (report["outcome"] == "fails") == ("fails" in verdicts)
    assert (report["outcome"] == "unclear") == ("unclear" in verdicts and "fails" not in verdicts)
    assert report["holds"] == (report["outcome"] == "holds")
    assert ("rerun on an idle device" in result.stderr) == ("unclear" in verdicts)
    assert result.returncode == (4 if "fails" in verdicts else 0), result.stderr
    first, second, *steps = (
        line.removeprefix("kernelwright: measuring again: ")
        for line in result.stderr.splitlines()
        if "measuring again" in line
    )
    assert (first, second) == (
        "compiling the exported sources",
        "checking and timing the baseline",
    )
    assert [step.partition(",")[0] for step in steps] == [
        *(f"process {number} of 4" for number in range(1, 5)),
        *(["checking winners with oclgrind"] if shutil.which("oclgrind") else []),
    ]
    assert "left" not in steps[0]


def test_a_run_without_a_gain_claims_nothing(tmp_path, capsys):
    path = test_compare.run(tmp_path / "run", 1.0)
    write_export(path, path / "export")
    verify(path, device=None, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "the run claims no gain, so there is nothing to measure again",
        f"kernelwright: outcome=no_claims run={path}",
    ]
    verify(path, device=None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["outcome"], found["holds"], found["checks"]) == ("no_claims", True, [])


def living_with(folder):
    """Processes that were started with a folder's path in their environment."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(folder).encode() in (process / "environ").read_bytes():
                yield process.name


@pytest.mark.parametrize(
    ("number", "code", "at"),
    [
        (signal.SIGINT, 130, "process 1 of 4"),
        pytest.param(signal.SIGTERM, 143, "compiling", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_it_and_all_that_it_started(run, tmp_path, number, code, at):
    process = subprocess.Popen(
        command("verify", run),
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stderr:
        if at in line:
            break
    os.killpg(process.pid, number)
    said, errors = process.communicate(timeout=30)
    told = (
        "0 of 4 processes had been measured again; none is kept: verify begins with the first again"
    )
    assert (process.returncode, said, errors) == (code, "", f"kernelwright: interrupted; {told}\n")
    end = time.monotonic() + 10
    while left := list(living_with(tmp_path)):  # the kernel ends children a little later
        assert time.monotonic() < end, left
    assert list(tmp_path.rglob("*.scratch")) == []


@pytest.mark.parametrize("name", ["scale_general.cl", "scale.h", "record.json"])
def test_a_tampered_export_is_seen(run, name):
    path = run / "export" / name
    text = path.read_text()
    path.write_text(text.replace("3.0f", "2.0f") if name.endswith(".cl") else text + " ")
    result = kernelwright("verify", run)
    path.write_text(text)
    assert result.returncode == 4
    assert f"{name} was changed" in result.stderr


def test_a_run_without_export_is_told_how_to_get_one(run, tmp_path):
    aside = (run / "export").rename(tmp_path / "export")
    try:
        with pytest.raises(EnvironmentProblem) as finished:
            verify(run, device=None, as_json=False)
    finally:
        aside.rename(run / "export")
    assert str(finished.value) == (
        f"the run {run} has no export any more: write it again with `kernelwright export {run}`"
    )
    begun = tmp_path / "begun"
    held = RunDirectory.create(begun, load_experiment(write_experiment(tmp_path / "spec")), "")
    with closing(held), pytest.raises(EnvironmentProblem) as running:
        verify(begun, device=None, as_json=False)
    assert str(running.value) == (
        f"the run {begun} has no export yet: wait until it ends, or stop it with "
        f"`kernelwright stop {begun}`"
    )
    with pytest.raises(EnvironmentProblem) as interrupted:
        verify(begun, device=None, as_json=False)
    assert str(interrupted.value) == (
        f"the run {begun} has no export yet, since it has not ended: go on with "
        f"`kernelwright resume {begun}`"
    )


def test_what_is_missing_is_named(run, tmp_path):
    path = run / "export" / "record.json"
    path.rename(tmp_path / "record.json")
    result = kernelwright("verify", run)
    (tmp_path / "record.json").rename(path)
    assert result.returncode == 4
    assert "record.json is missing" in result.stderr
    nothing = kernelwright("verify", tmp_path)
    assert nothing.returncode == 2
