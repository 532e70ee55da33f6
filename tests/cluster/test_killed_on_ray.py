"""A run with agents on a real Ray whose driver is killed again and again, and resumed."""

import asyncio
import os
import signal

import pytest

from agents.llm.mailbox import answer, pending
from agents.llm.port import Reply, Role
from agents.rounds_summary import read_summary
from cluster.runs.model_choice import with_agents
from cluster.runs.run_layout import round_path
from tests.agents.test_loop import suggestion
from tests.cluster.kernels import SPEC, write_experiment
from tests.cluster.test_agent_run import REPLIES
from tuner.errors import RunInterrupted
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView

POLL_SECONDS = 0.03
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
    """What to die at, in order: every step taken, a trial, a confirmation, a request."""

    def posted(step):
        return lambda: any((box / "requests").glob(f"*-{step}-*.json"))

    def taken(step):
        return (run / "llm" / f"{step}.json").exists

    def journalled(kind):
        journal = round_path(run, 1) / "journal.jsonl"
        return lambda: journal.exists() and kind in journal.read_bytes()

    *steps, last = (taken(step) for step in STEPS)
    return [
        *steps,
        journalled(b"trial.finished"),
        journalled(b"confirmation.sampled"),
        last,
        posted("r2-d0-planning-a0"),
    ]


def reply_to_all(box):
    for request in list(pending(box)) if box.exists() else []:
        answer(box, request, Reply(text=SCRIPT[str(request.position.step)]))


def finished(run):
    """What the search of the first round has measured."""
    folder = round_path(run, 1)
    facts = RunView.open(folder).facts() if (folder / "run.json").exists() else ()
    return [fact for fact in facts if fact.kind == "trial.finished"]


async def live(run, box, deadly):
    """One driver's life, until ``deadly`` holds, if ever; whether it was killed."""
    import ray

    from cluster.jobs.ray_driver import RemoteRun

    remote = RemoteRun(run)
    (name,) = (one for one in ray.util.list_named_actors() if one.startswith(f"driver:{run}:"))
    driver = await ray.get_actor(name).__ray_call__.remote(lambda _: os.getpid())

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
    with pytest.raises(RunInterrupted, match="the driver actor died"):
        await following
    return True


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("ray_cluster")
def test_killed_and_resumed_it_ends_the_same_and_asks_nobody_twice(tmp_path):
    run, box = tmp_path / "run", tmp_path / "box"
    text = SPEC.replace("template: template.yaml\n", "agents: {rounds: 2}\n")
    text = text.replace("trials: 6, seconds: 60", "trials: 12, seconds: 900")
    spec = write_experiment(tmp_path / "spec", spec=text)
    RunDirectory.create(run, with_agents(load_experiment(spec), f"mailbox:{box}"), text).close()

    due, kills, kept = moments(run, box), 0, []
    least = 3 * len(due) // 4
    while due:
        kills += asyncio.run(live(run, box, due[0]))
        due = [moment for moment in due if not moment()]
        before, kept = kept, finished(run)
        assert kept[: len(before)] == before
    assert not asyncio.run(live(run, box, lambda: False))

    assert kills >= least
    summary = read_summary(run)
    assert (summary.reason, len(summary.rounds), summary.searched) == ("planned", 1, 1)
    assert summary.spent.calls == len(SCRIPT)
    steps = run / "llm"
    taken = {file.relative_to(steps).as_posix() for file in steps.rglob("*.json")}
    last = ("r1-final1", "briefs/r2", "r2-d0-planning-a0")
    assert taken == {f"{name}.json" for name in (*STEPS, *last)}
    assert len(list((box / "requests").glob("*.json"))) == len(SCRIPT)
    facts = RunView.open(round_path(run, 1)).facts()
    assert finished(run)[: len(kept)] == kept
    assert sorted(fact.trial for fact in finished(run)) == list(range(6))
    assert sum(fact.kind == "run.finished" for fact in facts) == 1
