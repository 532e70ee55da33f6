"""What a provider can do wrong, through LiteLLM's real client: how a run ends and what it costs."""

import asyncio

import pytest

from agents.llm.port import ModelUnavailable
from agents.rounds_summary import read_summary
from agents.settings import AgentSettings, with_agent_settings
from cluster.commands.report import conclude
from cluster.commands.results import is_over
from cluster.runs.agent_run import AgentRun
from cluster.runs.model_choice import ModelAccess
from cluster.runs.run_process import RunProcess
from tests.agents.devices import CPU
from tests.agents.llm.server import KEY, answers, completion, drops, fails, serving
from tests.agents.test_loop import BASELINE_NS, draft, plain, suggestion
from tests.cluster.test_agent_run import cost
from tests.tuner.engine.simulated_fleet import SimulatedFleet
from tuner.run_directory import RunDirectory

MODEL = "openai/gpt-4o-mini"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr("random.uniform", lambda *_: 0.0)


def begin(path, url, **agents):
    given = {"model": MODEL, "base_url": url, "rounds": 3} | agents
    RunDirectory.create(path, with_agent_settings(plain(), AgentSettings(**given)), "").close()
    return path


def follow(path):
    """Go on with a run; the error that its command would end with, if any."""

    async def opener(_backend):
        return SimulatedFleet(device=CPU, baseline_ns=BASELINE_NS, cost=cost)

    async def go():
        access = ModelAccess(keys={"OPENAI_API_KEY": KEY}, endpoints=("127.0.0.1",))
        async for _ in AgentRun(RunProcess(path, opener), access).progress():
            pass

    asyncio.run(go())
    try:
        conclude(path, as_json=False)
    except ModelUnavailable as error:
        return error
    return None


FAULTS = {
    "wrong key": ([fails(401, f"no such key {KEY}")], {}, "AuthenticationError", 0, 1),
    "unknown model": ([fails(404, "no such model")], {}, "NotFoundError", 0, 1),
    "network down": ([drops], {}, "Connection error", 0, 5),
    "too little money": (
        [answers(completion())],
        {"max_cost_usd": 1e-6},
        "does not cover another model call",
        0,
        0,
    ),
    "empty and billed": ([answers(completion(None))], {}, "no usable suggestion", 4, 4),
    "cut at the limit": (
        [answers(completion(suggestion()[:40], finish="length"))],
        {},
        "the JSON is broken",
        4,
        4,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_before_anything_was_gained_is_one_line_and_exit_5(tmp_path, name):
    behaviours, agents, words, calls, requests = FAULTS[name]
    with serving(*behaviours) as server:
        path = begin(tmp_path / "run", server.url, **agents)
        error = follow(path)
        assert error is not None
        assert error.exit_code == 5
        assert words in str(error)
        assert "\n" not in str(error)
        assert KEY not in str(error)
        summary = read_summary(path)
        assert summary.spent.calls == calls
        assert (summary.spent.cost_usd > 0) == (calls > 0)
        assert len(server.seen) == requests
        assert is_over(path) == (summary.reason != "model")
        assert not any(
            KEY.encode() in file.read_bytes() for file in path.rglob("*") if file.is_file()
        )


def test_what_was_gained_before_a_fault_is_the_result_and_is_not_paid_again(tmp_path):
    with serving(
        answers(completion(suggestion())), answers(completion(draft(0.8))), fails(401)
    ) as server:
        path = begin(tmp_path / "run", server.url)
        assert follow(path) is None
        summary = read_summary(path)
        assert (summary.reason, summary.gained, summary.spent.calls) == ("model", True, 2)
        server.behaviours = [answers(completion(suggestion(stop=True)))]
        assert follow(path) is None
        again = read_summary(path)
        assert (again.reason, again.spent.calls) == ("planned", 3)
        assert again.spent.cost_usd == pytest.approx(1.5 * summary.spent.cost_usd)
        assert len(server.seen) == 4
