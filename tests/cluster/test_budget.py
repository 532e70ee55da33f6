"""The seconds of a whole run are kept, on quick machines and on slow ones."""

import asyncio

import pytest

from cluster.runs.resuming import allow_seconds
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tests.agents.devices import CPU
from tests.cluster.kernels import SPEC, TEMPLATE, write_experiment
from tests.tuner.engine.simulated_fleet import Durations, SimulatedFleet
from tuner.experiment.load import load_experiment
from tuner.journal.history import History
from tuner.run_directory import RunDirectory, RunView

SECONDS = 100.0
SPACE = TEMPLATE.replace("[1, 2, 4]", str([*range(1, 65)])).replace("[16, 64]", "[16, 32, 64]")
SEARCH = f"search: {{strategy: random, trials: 5000, seconds: {SECONDS}}}\n"


def begin(folder):
    text = SPEC.partition("search:")[0] + SEARCH
    spec = write_experiment(folder / "spec", spec=text, template=SPACE)
    RunDirectory.create(folder / "run", load_experiment(spec), text).close()
    return folder / "run"


def follow(path, trial, leave_at=None, share=0.0):
    """Go on with a run whose trials take so long; return what its journal says then."""
    durations = Durations(prepare=5 * trial, bench=trial, confirm=trial, share=share)

    async def opener(_backend):
        return SimulatedFleet(
            device=CPU,
            baseline_ns=(1e6,) * 9,
            cost=lambda configuration, _: 1e5 * (1 + configuration.as_dict()["ITEMS"] / 9),
            noise=0.3,
            durations=durations,
        )

    async def go():
        run = SearchRun(RunProcess(path, opener))
        async for picture in run.progress():
            if leave_at is not None and picture.finished >= leave_at:
                run.stop("interrupted")

    asyncio.run(go())
    view = RunView.open(path)
    return History.of(view.experiment, view.entries())


@pytest.mark.parametrize(("trial", "share"), [(1.0, 0.0), (3.0, 0.0), (0.7, 3.0)])
def test_a_search_ends_early_enough_for_its_confirmation(tmp_path, trial, share):
    history = follow(begin(tmp_path), trial, share=share)
    assert history.finished
    assert history.ended == "seconds"
    assert len(history.confirmations) >= 3
    assert 0.6 * SECONDS < history.clock.spent < 1.1 * SECONDS


def test_where_the_time_is_spent_before_the_search_a_single_trial_is_confirmed(tmp_path):
    history = follow(begin(tmp_path), 2.0, share=3.0)
    assert history.outcomes == {"measured": 1}
    assert history.ended == "seconds"
    assert len(history.confirmations) >= 3
    assert history.clock.spent < 1.5 * SECONDS


@pytest.mark.parametrize("seconds", [30.0, 150.0])
def test_a_resume_keeps_the_seconds_that_it_is_given_in_place_of_the_rest(tmp_path, seconds):
    path = begin(tmp_path)
    before = follow(path, 1.0, leave_at=20).clock.spent
    assert before < 0.5 * SECONDS
    allow_seconds(path, seconds)
    history = follow(path, 1.0)
    assert history.finished
    assert history.ended == "seconds"
    assert 0.6 * seconds < history.clock.spent - before < 1.2 * seconds
