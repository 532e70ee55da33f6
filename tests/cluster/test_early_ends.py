"""How a run ends early: told to, or since its last bench is gone."""

import asyncio
from pathlib import Path

import pytest

from cluster.cli.console import Activity
from cluster.commands.results import stop
from cluster.commands.runs import follow_run
from cluster.runs.placement import Placement
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tests.agents.devices import CPU
from tests.cluster.kernels import SPEC, write_experiment
from tests.tuner.engine.simulated_fleet import SimulatedFleet
from tuner.engine.engine import LOST_SECONDS
from tuner.engine.work import MeasureWork
from tuner.errors import EnvironmentProblem, Preempted, RunInterrupted, SpecError
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView

WHY = "node7/31: the node died"


def test_a_second_request_to_stop_does_not_wait_for_the_confirmation(tmp_path, capsys):
    path, asked = begin(tmp_path, 1e6), 0

    async def opener(_backend):
        return SimulatedFleet(device=CPU, baseline_ns=(1e4,) * 9, cost=lambda *_: 1e4)

    async def go():
        nonlocal asked
        async for picture in SearchRun(RunProcess(path, opener)).progress():
            if asked < 2 and picture.finished:
                stop(path, now=False)
                asked += 1

    asyncio.run(go())
    kinds = [fact.kind for fact in RunView.open(path).facts()]
    assert asked == 2
    assert "trial.finished" in kinds
    assert "run.finished" not in kinds
    first, second = capsys.readouterr().out.splitlines()
    assert "confirms what it found" in first
    assert "at once" in second


class DesertedFleet(SimulatedFleet):
    """Every bench dies at the first batch that it is sent, and none comes back."""

    gone = False

    @property
    def benches_lost(self):
        return WHY if self.gone else None

    def submit(self, work):
        self.gone = self.gone or isinstance(work, MeasureWork)
        if not self.gone:
            super().submit(work)


def begin(folder: Path, seconds: float) -> Path:
    text = f"{SPEC.partition('search:')[0]}search: {{trials: 6, seconds: {seconds}}}\n"
    spec = write_experiment(folder / "spec", spec=text)
    RunDirectory.create(folder / "run", load_experiment(spec), text).close()
    return folder / "run"


def follow(path: Path, stop_at: int | None = None) -> list[str]:
    """The pictures of the run until it ends; asked to stop at one of those without a bench."""

    async def opener(_backend):
        return DesertedFleet(device=CPU, baseline_ns=(1e4,) * 9, cost=lambda *_: 1e4)

    async def go():
        run = SearchRun(RunProcess(path, opener))
        async for picture in run.progress():
            seen.append(str(picture))
            if stop_at is not None and sum(WHY in one for one in seen) >= stop_at:
                run.stop("stopped")

    seen: list[str] = []
    try:
        asyncio.run(go())
    finally:
        assert f"search: waiting for a bench, since none is left ({WHY})" in seen
    return seen


def test_it_answers_a_stop_and_can_be_resumed(tmp_path):
    path = begin(tmp_path, 60)
    follow(path, stop_at=3)
    kinds = [fact.kind for fact in RunView.open(path).facts()]
    assert "search.ended" not in kinds
    assert "run.finished" not in kinds


def test_a_run_on_a_node_that_is_drained_ends_with_143_and_the_command_that_resumes(
    tmp_path, capsys
):
    class Drained:
        def stop(self, _reason):
            pass

        async def progress(self):
            yield Activity(words="compiling")
            raise Preempted("this node of the Ray cluster is being drained")

    path = begin(tmp_path, 60)
    with pytest.raises(SystemExit) as ended:
        follow_run(Drained(), path, Placement(fleet="ray"), as_json=False)
    assert ended.value.code == 143
    said = capsys.readouterr().err
    assert f"is being drained; continue with: kernelwright resume {path} --fleet ray\n" in said


def test_it_ends_with_its_time_and_names_what_was_lost(tmp_path):
    path = begin(tmp_path, 20)
    with pytest.raises(RunInterrupted, match=rf"\({WHY}\)"):
        follow(path)


def test_a_budget_that_is_too_small_is_refused_before_anything_is_done(tmp_path):
    async def opener(_backend):
        return SimulatedFleet(device=CPU, baseline_ns=(1e4,) * 9, cost=lambda *_: 1e4)

    async def go():
        async for _ in SearchRun(RunProcess(path, opener)).progress():
            pass

    path = begin(tmp_path, 1)
    with pytest.raises(SpecError, match=r"search.seconds is 1, .* --seconds \d+ or more"):
        asyncio.run(go())
    assert not RunView.open(path).facts()


def test_it_does_not_wait_for_ever(tmp_path):
    with pytest.raises(EnvironmentProblem, match=f"within {LOST_SECONDS:.0f} s; {WHY}"):
        follow(begin(tmp_path, 10 * LOST_SECONDS))
