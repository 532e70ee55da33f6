"""Runs share the GPUs of a cluster: which they take, what they wait for, and who holds them."""

import asyncio
import time

import pytest

from agents.llm.mailbox import answer, pending
from agents.llm.port import Reply
from agents.rounds_summary import read_summary
from cluster.fleets.claim import Claim, Share, read_labels
from cluster.fleets.gpus import choose_nodes
from cluster.fleets.holders import describe
from cluster.runs import agent_run, model_choice
from cluster.runs.agent_run import AgentRun
from cluster.runs.model_choice import ModelAccess, with_agents
from cluster.runs.placement import Placement
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import opening
from cluster.runs.workplace import workplace
from cluster.settings import Settings
from tests.agents.devices import CPU
from tests.agents.test_loop import BASELINE_NS
from tests.cluster import faults
from tests.cluster.kernels import SPEC, write_experiment
from tests.cluster.test_agent_run import REPLIES, cost
from tests.cluster.test_agent_run import begin as begin_replay
from tests.cluster.test_ray_driver import begin, facts
from tests.tuner.engine.simulated_fleet import SimulatedFleet
from tuner.engine.engine import Engine
from tuner.engine.work import PrepareWork
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory

REASON = "the GPU is left alone, since it is in use by ann"
TYPE = "ray.io/accelerator-type"


def node(name, gpus, kind=None, processors=8, **labels):
    known = {TYPE: kind} if kind else {}
    return {
        "NodeID": name,
        "Alive": True,
        "Resources": {"GPU": gpus, "CPU": processors} if gpus else {"CPU": processors},
        "Labels": {"ray.io/node-id": name, **known, **labels},
    }


NODES = [
    node("head", 0),
    node("a", 8, "H100", pool="tuning"),
    node("b", 4, "A100", pool="training"),
    node("c", 4, "A100", pool="tuning"),
]
FREE = {"a": {"GPU": 2.0}, "b": {"GPU": 4.0}, "c": {"GPU": 1.0}}


def chosen(wanted=None, nodes=NODES, free=FREE, **share):
    return choose_nodes("cuda", nodes, free, wanted, Share(**share))


def test_gpus_of_the_type_of_which_most_are_free_are_taken():
    group = chosen()
    assert (group.labels, group.gpus, group.free) == ({TYPE: "A100"}, 8, 5)
    assert chosen(free={}).labels == {TYPE: "H100"}, "the most there are, where none is free"
    assert chosen(gpus=1).labels == {TYPE: "H100"}, "where as many are free, the larger group"


@pytest.mark.parametrize("wanted", ["h100", "NVIDIA H100 80GB HBM3", "H1"])
def test_a_device_is_chosen_by_the_type_of_its_node(wanted):
    assert chosen(wanted).labels == {TYPE: "H100"}


def test_where_types_say_nothing_of_a_name_all_nodes_are_looked_at():
    assert chosen("HBM3").labels == {TYPE: "A100"}
    untyped = [node("x", 2), node("y", 1)]
    assert (chosen("H100", untyped).labels, chosen("H100", untyped).gpus) == ({}, 3)


def test_nodes_are_chosen_by_their_labels():
    group = chosen("A100", labels={"pool": "tuning"})
    assert (group.labels, group.gpus, group.free) == ({"pool": "tuning", TYPE: "A100"}, 4, 1)
    with pytest.raises(EnvironmentProblem, match=r"the labels pool=x; there are: .*pool=training"):
        chosen(labels={"pool": "x"})


def test_a_bench_holds_a_core_unless_there_are_too_few():
    assert chosen(nodes=[node("x", 2)]).room == {"GPU": 1, "CPU": 1}
    assert chosen(nodes=[node("x", 2, processors=1)]).room == {"GPU": 1}


def test_gpus_that_there_never_will_be_are_refused():
    with pytest.raises(EnvironmentProblem, match=r"--gpus 9: the cluster has only 8 of them"):
        chosen(gpus=9, wait=True)
    with pytest.raises(EnvironmentProblem, match=r"no node of the Ray cluster has a GPU; --target"):
        chosen(nodes=NODES[:1])
    dead = [one | {"Alive": False} for one in NODES]
    with pytest.raises(EnvironmentProblem, match="no node of the Ray cluster has a GPU"):
        chosen(nodes=dead)


def test_a_share_is_a_number_or_a_limit():
    assert [Share().most(3), Share(gpus=2).most(3), Share(max_gpus=5).most(3)] == [3, 2, 3]
    assert [Share().least, Share(gpus=2).least, Share(max_gpus=5).least] == [1, 2, 1]
    assert Share(max_gpus=1).limited((4, 7)) == (4,)
    with pytest.raises(EnvironmentProblem, match="--gpus 3: this machine has only 2 of them"):
        Share(gpus=3).limited((4, 7))
    with pytest.raises(SpecError, match=r"--node-label .* leave it out"):
        Share(labels={"pool": "tuning"}).limited((4, 7))
    with pytest.raises(SpecError, match="give one of them"):
        Share(gpus=1, max_gpus=2)


def test_the_hint_to_resume_has_the_same_share():
    share = Share(gpus=2, wait=True, keep=True, labels=read_labels(["pool=a b"]))
    assert share.words == ["--gpus", "2", "--wait", "--keep-gpus", "--node-label", "pool=a b"]
    for wrong in ("pool", "=x", "pool="):
        with pytest.raises(SpecError, match="write KEY=VALUE"):
            read_labels([wrong])


def group(name, gpus, state="CREATED"):
    return {
        "name": name,
        "placement_group_id": "f00",
        "state": state,
        "bundles": {0: {"GPU": float(gpus), "CPU": 1.0}},
    }


def actor(gpus, name="", group=None):
    return {
        "required_resources": {"GPU": gpus} if gpus else None,
        "placement_group_id": group,
        "name": name,
        "class_name": "Trainer",
        "job_id": "0400",
        "pid": 77,
    }


def test_holders_are_named_by_run_actor_or_placement_group():
    bench = "driver:/runs/a:b-1:0123abcd:0123456789abcdef"
    groups = [group(bench, 1), group(bench, 1), group("theirs", 1), group(bench, 1, "PENDING")]
    actors = [actor(1), actor(1, group="f00"), actor(0), actor(0.5, name="half")]
    words = describe(groups, actors, 6)
    assert words.split(", ") == [
        "run /runs/a:b-1 holds 2",
        "other Ray jobs holds 2",
        "placement group theirs holds 1",
        "actor Trainer of job 0400 (process 77) holds 1",
    ]
    assert describe([], [], 0) == ""


def test_a_run_that_waits_says_for_what_and_leaves_when_asked():
    async def never():
        with claim.waiting():
            claim.words = "waiting for 1 GPU: run a holds 2"
            await asyncio.Event().wait()

    asked, claim, engine = [], Claim(), Engine(never)

    async def follow():
        return [
            asked.append("stopped") or words
            async for words in opening(engine, claim, lambda: asked[0] if asked else None)
        ]

    assert asyncio.run(follow()) == ["waiting for 1 GPU: run a holds 2"]
    assert (engine.opened, claim.words) == (False, "")
    assert claim.waited > 0


def test_a_missing_gpu_is_noticed_before_ray_is_started(capsys):
    settings = Settings(ray_address=None, in_job=False)
    with (
        workplace(Placement(), settings) as place,
        pytest.raises(EnvironmentProblem, match=r"no cuda device: .*; --target sm_90"),
    ):
        place.check("cuda")
    assert capsys.readouterr().err == ""


class SlowModel:
    """Answers once the devices of the run are free, as recorded."""

    def __init__(self, model, fleets):
        self.model, self.fleets = model, fleets

    async def ready(self):
        await self.model.ready()

    async def price(self, request):
        return await self.model.price(request)

    async def complete(self, request):
        while not self.fleets[-1].closed:
            await asyncio.sleep(0)
        return await self.model.complete(request)


@pytest.mark.parametrize("keep", [False, True])
def test_devices_are_given_back_while_a_model_is_asked(tmp_path, monkeypatch, keep):
    fleets, claim, open_model = [], Claim(Share(keep=keep)), agent_run.open_model

    class Fleet(SimulatedFleet):
        closed = keep

        async def close(self):
            self.closed = True

    async def opener(_backend):
        fleets.append(Fleet(device=CPU, baseline_ns=BASELINE_NS, cost=cost))
        claim.device = CPU
        return fleets[-1]

    async def follow(path):
        async for _ in AgentRun(RunProcess(path, opener, claim=claim), ModelAccess()).progress():
            pass

    monkeypatch.setattr(
        agent_run, "open_model", lambda *a, **k: SlowModel(open_model(*a, **k), fleets)
    )
    monkeypatch.setattr(model_choice, "GIVE_BACK_SECONDS", 0.0)
    monkeypatch.setattr(model_choice, "TICK_SECONDS", 0.001)
    path = begin_replay(tmp_path / "run")
    asyncio.run(follow(path))
    prepared = [sum(isinstance(w, PrepareWork) for w in fleet.submitted) for fleet in fleets]
    assert prepared == ([1] if keep else [1] * len(fleets))
    assert keep or len(fleets) > 2
    summary = read_summary(path)
    assert (summary.reason, summary.searched, summary.spent.calls) == ("planned", 1, 7)
    assert [past.verdict for past in summary.rounds] == ["improved", "no significant gain"]


async def followed(run, **share):
    """What a run on Ray's GPUs says until its end."""
    from cluster.jobs.ray_driver import RemoteRun

    remote = RemoteRun(run, Placement(share=Share(**share)), gpus=True)
    return [str(update) async for update in remote.progress()]


@pytest.mark.slow
@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_another_user_works_on_is_passed_over(monkeypatch):
    import ray

    from cluster.fleets.actors import ActorBench
    from cluster.fleets.ray import open_ray_fleet

    device, asked, busy = ActorBench.device, [], set()

    async def held(bench):
        asked.append(bench)
        if bench is asked[0] or busy:
            raise EnvironmentProblem(REASON)
        return await device(bench)

    async def opened(**share):
        asked.clear()
        fleet = await open_ray_fleet("opencl", gpus=True, claim=Claim(Share(**share)))
        slots, changes = fleet.bench_slots, fleet.bench_changes()
        await fleet.close()
        return slots, [(one.bench, one.reason) for one in changes if one.kind == "bench.lost"]

    async def all_opened():
        while ray.available_resources().get("GPU") != 2:  # a fleet before may give them back yet
            await asyncio.sleep(0.1)
        assert await opened(gpus=1) == (1, [(asked[0].name, REASON)])
        busy.add("both")
        with pytest.raises(EnvironmentProblem, match=f"1 GPU .* nothing found room; .*{REASON}"):
            await opened()

    monkeypatch.setattr(ActorBench, "device", held)
    asyncio.run(all_opened())


@pytest.mark.slow
@pytest.mark.usefixtures("two_gpus", "fault_time")
def test_two_runs_with_a_gpu_each_end_side_by_side(tmp_path):
    first, second = (begin(tmp_path / name) for name in "ab")

    async def both():
        return await asyncio.gather(followed(first, gpus=1), followed(second, gpus=1))

    began = time.time()
    said = asyncio.run(both())
    assert not [words for run in said for words in run if "waiting for" in words]
    faults.note("nothing; two runs, a GPU each", second, time.time() - began, said[1])
    for run in (first, second):
        assert facts(run, "run.finished")
        assert facts(run, "epoch.opened")[0].bench_slots == 1


@pytest.mark.slow
@pytest.mark.usefixtures("two_gpus", "fault_time")
def test_a_second_run_is_refused_at_once_or_waits_and_says_who_holds_the_gpus(tmp_path):
    first = faults.begin(tmp_path / "a")  # the longest: the others begin while it works
    second, third = (begin(tmp_path / name) for name in "bc")

    async def all_three():
        going = asyncio.create_task(followed(first))
        while not facts(first, "epoch.opened"):
            await asyncio.sleep(0.1)
        waiting = asyncio.create_task(followed(third, gpus=2, wait=True))
        began = time.monotonic()
        with pytest.raises(EnvironmentProblem) as refused:
            await followed(second)
        seconds = time.monotonic() - began
        assert not facts(first, "run.finished"), "it is refused while the first run works"
        await going
        ended = time.time()
        return str(refused.value), seconds, ended, await waiting

    said, seconds, ended, waited = asyncio.run(all_three())
    assert f"0 of 2 free: run {first} holds 2; wait for them with --wait" in said
    assert f"waiting for 2 GPUs: run {first} holds 2" in waited
    faults.note("nothing; a run waits for both GPUs", third, faults.recovery(third, ended), waited)
    faults.note("nothing; a run finds no GPU free", second, seconds, [f"error: {said}"])
    assert facts(first, "epoch.opened")[0].bench_slots == 2
    assert facts(third, "epoch.opened")[0].bench_slots == 2
    assert facts(first, "run.finished")
    assert facts(third, "run.finished")


@pytest.mark.slow
@pytest.mark.usefixtures("two_gpus")
def test_two_runs_take_turns_on_one_gpu_while_they_ask_their_models(tmp_path):
    import ray

    class Other:
        def here(self):
            return True

    other = ray.remote(num_gpus=1, num_cpus=0)(Other).remote()
    ray.get(other.here.remote(), timeout=60)
    text = SPEC.replace("template: template.yaml\n", "agents: {rounds: 1}\n")
    runs, boxes = [tmp_path / name for name in "ab"], [tmp_path / f"box{name}" for name in "ab"]
    for run, box in zip(runs, boxes, strict=True):
        spec = write_experiment(tmp_path / f"spec{run.name}", spec=text)
        experiment = with_agents(load_experiment(spec), f"mailbox:{box}")
        RunDirectory.create(run, experiment, text).close()

    async def reply(box):
        while not (requests := list(pending(box)) if box.exists() else []):
            await asyncio.sleep(0.1)
        for request in requests:
            answer(box, request, Reply(text=REPLIES[request.position.step.role]))

    async def both():
        first = asyncio.create_task(followed(runs[0], wait=True))
        while not (runs[0] / "llm" / "baseline.json").exists():
            await asyncio.sleep(0.1)
        second = asyncio.create_task(followed(runs[1], wait=True))
        while not (runs[1] / "llm" / "baseline.json").exists():  # the first waits for its reply
            await asyncio.sleep(0.1)
        for box in boxes * 2:
            await reply(box)
        return await first, await second

    try:
        said = asyncio.run(asyncio.wait_for(both(), 280))
    finally:
        ray.kill(other)
    assert any(f"waiting for 1 GPU: run {runs[0]} holds 1" in words for words in said[1])
    for run in runs:
        assert (read_summary(run).reason, read_summary(run).searched) == ("rounds", 1)
    lost = [fact.reason for fact in facts(runs[0], "bench.lost")]
    assert "given back while a model is asked" in lost
