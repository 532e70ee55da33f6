"""Runs whose own Ray dies: the result if everything was measured, else how to go on."""

import asyncio
import subprocess

import pytest

from cluster.jobs import own_run
from cluster.jobs.own_run import OwnRun
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tests.agents.devices import CPU
from tests.cluster.faults import finished_count, kill, processes, until
from tests.cluster.kernels import ROOT, SPEC, command, write_experiment
from tests.tuner.engine.simulated_fleet import SimulatedFleet
from tuner.errors import RunInterrupted
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView


def follow(path, monkeypatch, died):
    """A run on a simulated fleet, beside a Ray that has died once ``died`` holds."""

    async def opener(_backend):
        return SimulatedFleet(device=CPU, baseline_ns=(1e4,) * 9, cost=lambda *_: 5e3)

    async def go():
        async for _ in OwnRun(path, SearchRun(RunProcess(path, opener))).progress():
            pass

    RunDirectory.create(path, load_experiment(write_experiment(path.parent / "spec")), SPEC).close()
    monkeypatch.setattr(own_run, "ended_process", lambda: "raylet" if died() else "")
    asyncio.run(go())


def kinds(path):
    return [fact.kind for fact in RunView.open(path).facts()]


def test_a_run_whose_ray_died_says_so(tmp_path, monkeypatch):
    with pytest.raises(RunInterrupted, match="the Ray on this machine died: its process raylet"):
        follow(tmp_path / "run", monkeypatch, lambda: True)
    assert "run.finished" not in kinds(tmp_path / "run")


def test_a_ray_that_dies_when_all_is_measured_takes_no_result_away(tmp_path, monkeypatch):
    run = tmp_path / "run"
    follow(run, monkeypatch, lambda: "run.finished" in kinds(run))
    assert kinds(run)[-1] == "run.finished"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("process", ["gcs_server", "raylet"])
@pytest.mark.parametrize("starting", [True, False])
def test_a_command_whose_ray_dies_ends_with_how_to_go_on(tmp_path, process, starting):
    text = SPEC.replace("trials: 6, seconds: 60", "trials: 6, seconds: 120")
    spec, run = write_experiment(tmp_path / "spec", spec=text), tmp_path / "run"
    with subprocess.Popen(
        command("run", spec, "--fleet", "ray", "--run-dir", run),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:

        def ready():
            if starting:  # its last process is this one
                return processes("raylet", started.pid)
            return finished_count(run) > 0

        until(lambda: ready() or started.poll() is not None)
        for number in processes(process, started.pid):
            kill(number)
        out, said = started.communicate(timeout=40)
    assert started.returncode == 3, said
    last = said.splitlines()[-1]
    assert f"the Ray on this machine died: its process {process} ended" in last
    assert f"continue with: kernelwright resume {run}" in last
    assert starting or "outcome=unfinished" in out.splitlines()[-1]
    assert "state-dump" not in out + said
