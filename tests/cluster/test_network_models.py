"""A whole run whose agents ask LiteLLM's real client, against a local server and its faults."""

import json
from urllib.parse import urlsplit

import pytest

from agents.rounds_summary import read_summary
from tests.agents.llm.server import KEY, answers, completion, drops, fails, serving
from tests.cluster.kernels import FAMILY, SPEC, kernelwright, write_experiment
from tuner.journal.facts import ModelCalled
from tuner.run_directory import RunView

SUGGESTION = {
    "bottleneck": "one element at a time",
    "strategy": "several elements to a work-item",
    "expected_effect": "faster",
    "refuted_by": "no difference",
}
DRAFT = {
    "entry": "scale",
    "parameters": {
        "ITEMS": {"values": [1, 2, 4], "reason": "work"},
        "BLOCK": {"values": [16, 64], "reason": "size"},
    },
    "launch": {"grid": ["ceil_div(n, BLOCK * ITEMS)"], "block": ["BLOCK"]},
    "rationale": "fewer work-items",
}


def fenced(fields, source=""):
    text = f"```json\n{json.dumps(fields)}\n```\n"
    return text + (f"```c\n{source}```\n" if source else "")


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def run(folder, server, *more, agents=""):
    spec = SPEC.replace("template: template.yaml\n", "")
    spec += f"agents: {{rounds: 1, base_url: '{server.url}'{agents}}}\n"
    path = write_experiment(folder / "spec", spec=spec)
    options = ["--fleet", "local", "--run-dir", folder / "run", "--model", "openai/gpt-4o-mini"]
    options += ["--allow-endpoint", urlsplit(server.url).netloc]
    return kernelwright("run", path, *options, *more)


def holds_key(folder, result):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    texts = [result.stdout, result.stderr, *(path.read_text(errors="replace") for path in files)]
    return any(KEY in text for text in texts)


@pytest.mark.slow
def test_faults_on_the_way_and_a_right_account_at_the_end(tmp_path):
    broken = FAMILY.replace("3.0f", "undeclared")
    faults = [fails(429, f"slow down, {KEY}", retry_after="0"), drops]
    with serving(
        *faults,
        answers(completion(None)),
        answers(completion(fenced(SUGGESTION))),
        answers(completion(f"{KEY}\n{fenced(DRAFT, broken)}")),
        answers(completion(fenced(DRAFT, FAMILY))),
    ) as server:
        result = run(tmp_path, server, agents=", temperature: 0.5, seed: 4")
    summary = read_summary(tmp_path / "run")
    assert summary is not None, result.stderr
    assert summary.spent.calls == 4, result.stderr
    assert (summary.spent.input_tokens, summary.spent.output_tokens) == (4000, 2000)
    assert summary.spent.cost_usd > 0
    assert summary.searched == 1
    assert "generation: 2 calls, 2000 tokens read, 1000 written" in result.stdout
    assert len((tmp_path / "run" / "calls.csv").read_text().splitlines()) == 5
    assert {(body["temperature"], body["seed"]) for body in server.seen} == {(0.5, 4)}
    assert "undeclared" in server.seen[-1]["messages"][-1]["content"]
    assert not holds_key(tmp_path / "run", result)
    calls = [f for f in RunView.open(tmp_path / "run").facts() if isinstance(f, ModelCalled)]
    assert [call.result for call in calls] == ["reply"] * 4
    assert sum(call.input_tokens for call in calls) == 4000
    assert sum(call.cost_usd for call in calls) == pytest.approx(summary.spent.cost_usd)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "r1-d0-planning-a0: reply" in log
    asked = server.seen[0]["messages"][-1]["content"].strip().splitlines()[0]
    assert asked not in log + (tmp_path / "run" / "journal.jsonl").read_text()


def test_a_budget_too_small_for_one_call(tmp_path):
    with serving(answers(completion(fenced(SUGGESTION)))) as server:
        result = run(tmp_path, server, agents=", max_cost_usd: 0.000001")
        assert result.returncode == 5, result.stderr
        assert "does not cover another model call" in result.stderr.splitlines()[-1]
        assert server.seen == []
