"""The seconds of a whole run are kept, on quick machines and on slow ones."""

import asyncio

import pytest

from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tests.agents.devices import CPU
from tests.cluster.kernels import SPEC, TEMPLATE, write_experiment
from tests.tuner.engine.simulated_fleet import Durations, SimulatedFleet
from tuner.experiment.load import load_experiment
from tuner.journal.history import History
from tuner.run_directory import RunDirectory, RunView

SECONDS = 100.0
SPACE = TEMPLATE.replace("[1, 2, 4]", str([*range(1, 33)])).replace("[16, 64]", "[16, 32, 64]")
SEARCH = f"search: {{strategy: random, trials: 5000, seconds: {SECONDS}}}\n"


@pytest.mark.parametrize("trial", [1.0, 3.0])
def test_a_search_ends_early_enough_for_its_confirmation(tmp_path, trial):
    text = SPEC.partition("search:")[0] + SEARCH
    path = tmp_path / "run"
    spec = write_experiment(tmp_path / "spec", spec=text, template=SPACE)
    RunDirectory.create(path, load_experiment(spec), text).close()
    durations = Durations(prepare=5 * trial, bench=trial, confirm=trial)

    async def opener(_backend):
        return SimulatedFleet(
            device=CPU,
            baseline_ns=(1e6,) * 9,
            cost=lambda configuration, _: 1e5 * (1 + configuration.as_dict()["ITEMS"] / 9),
            noise=0.3,
            durations=durations,
        )

    async def go():
        async for _ in SearchRun(RunProcess(path, opener)).progress():
            pass

    asyncio.run(go())
    view = RunView.open(path)
    history = History.of(view.experiment, view.entries())
    assert history.finished
    assert history.ended == "seconds"
    assert len(history.confirmations) >= 3
    assert 0.6 * SECONDS < history.spent < 1.1 * SECONDS
