"""A run with agents on a real Ray whose driver is killed at every step of the loop, and resumed."""

import asyncio
import os
import signal

import pytest

from agents.llm.mailbox import answer, pending
from agents.llm.port import Reply, Role
from agents.rounds_summary import read_summary
from cluster.evaluator import round_path
from cluster.model_choice import with_agents
from tests.agents.test_loop import suggestion
from tests.cluster.kernels import SPEC, write_experiment
from tests.cluster.test_agent_run import REPLIES
from tuner.errors import EnvironmentProblem
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView

POLL_SECONDS = 0.01
BROKEN = REPLIES[Role.GENERATION].replace("3.0f", "undeclared")
SCRIPT = {
    "r1-d0-planning-a0": "I cannot do that",
    "r1-d0-planning-a1": suggestion(),
    "r1-d0-generation-a0": BROKEN,
    "r1-d0-generation-a1": REPLIES[Role.GENERATION],
    "r2-d0-planning-a0": suggestion(stop=True),
}
STEPS = [
    "baseline",
    "briefs/r1",
    "r1-d0-planning-a0",
    "r1-d0-planning-a1",
    "r1-d0-generation-a0",
    "r1-d0-admission-a0",
    "r1-d0-generation-a1",
    "r1-d0-admission-a1",
    "r1-d0-rung0",
]


def moments(run, box):
    """What to die at, in order: a request, every step taken, a trial and a confirmation."""

    def posted(step):
        return lambda: any((box / "requests").glob(f"*-{step}-*.json"))

    def taken(step):
        return (run / "llm" / f"{step}.json").exists

    def journalled(kind):
        journal = round_path(run, 1) / "journal.jsonl"
        return lambda: journal.exists() and kind in journal.read_bytes()

    found = [taken(step) for step in STEPS[:-1]]
    found += [journalled(b"trial.finished"), journalled(b"confirmation.sampled")]
    return [*found, taken(STEPS[-1]), posted("r2-d0-planning-a0")]


def reply_to_all(box):
    for request in list(pending(box)) if box.exists() else []:
        answer(box, request, Reply(text=SCRIPT[str(request.position.step)]))


async def live(run, box, deadly):
    """One driver's life, until ``deadly`` holds, if ever; whether it was killed."""
    from cluster.ray_driver import RemoteRun

    remote = RemoteRun(run)
    driver = await remote._actor.__ray_call__.remote(lambda _: os.getpid())

    async def follow():
        async for _ in remote.progress():
            pass

    following = asyncio.create_task(follow())
    while not following.done() and not deadly():
        reply_to_all(box)
        await asyncio.sleep(POLL_SECONDS)
    if following.done():
        await following
        return False
    os.kill(driver, signal.SIGKILL)
    with pytest.raises(EnvironmentProblem, match="kernelwright resume"):
        await following
    return True


@pytest.mark.usefixtures("ray_cluster")
def test_killed_at_every_step_and_resumed_it_ends_the_same_and_asks_nobody_twice(tmp_path):
    run, box = tmp_path / "run", tmp_path / "box"
    text = SPEC.replace("template: template.yaml\n", "agents: {rounds: 2}\n").replace(": 6", ": 12")
    spec = write_experiment(tmp_path / "spec", spec=text)
    RunDirectory.create(run, with_agents(load_experiment(spec), f"mailbox:{box}"), text).close()

    due, kills = moments(run, box), 0
    while due:
        kills += asyncio.run(live(run, box, due[0]))
        due = [moment for moment in due if not moment()]
    assert not asyncio.run(live(run, box, lambda: False))

    assert kills >= 9
    ledger = read_summary(run)
    assert (ledger.reason, len(ledger.rounds), ledger.searched) == ("planned", 1, 1)
    assert ledger.spent.calls == len(SCRIPT)
    steps = run / "llm"
    taken = {file.relative_to(steps).as_posix() for file in steps.rglob("*.json")}
    assert taken == {f"{name}.json" for name in [*STEPS, "briefs/r2", "r2-d0-planning-a0"]}
    assert len(list((box / "requests").glob("*.json"))) == len(SCRIPT)
    facts = RunView.open(round_path(run, 1)).facts()
    finished = [fact.trial for fact in facts if fact.kind == "trial.finished"]
    assert sorted(finished) == list(range(6))
    assert sum(fact.kind == "run.finished" for fact in facts) == 1
