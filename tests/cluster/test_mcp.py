"""The tools that a coding agent calls, through the SDK's own client."""

import asyncio
import json
import subprocess
from contextlib import asynccontextmanager

import pytest

from agents.llm.mailbox import Mailbox
from agents.llm.port import Role
from cluster.runs.model_choice import with_agents
from tests.cluster.kernels import KERNEL, ROOT, command, kernelwright, write_experiment
from tests.cluster.test_agent_run import ONE_ROUND, REPLIES
from tests.conformance.language_model import request_at
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory


class Agent:
    """A client; ``call`` returns what a tool says, ``refused`` why it failed."""

    def __init__(self, client):
        self.client = client

    async def call(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        return result.content[0].text

    async def refused(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.content[0].text
        return result.content[0].text


@asynccontextmanager
async def agent_in(folder):
    mcp = pytest.importorskip("mcp")  # here, since importing it takes seconds
    from cluster.mcp_server import make_server

    async with mcp.Client(make_server(folder)) as client:
        yield Agent(client)


def test_names_outside_the_folder_are_refused_by_every_tool(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "other.yaml").touch()
    (root / "link.yaml").symlink_to(tmp_path / "other.yaml")

    async def ask():
        async with agent_in(root) as agent:
            tools = {one.name: one for one in (await agent.client.list_tools()).tools}
            names = ("../other.yaml", "link.yaml", str(tmp_path / "other.yaml"), ".")
            for tool, found in tools.items():
                needed = dict.fromkeys(found.input_schema["required"], "x")
                if tool == "trial":
                    needed["values"] = {}
                for name in {"spec", "run", "kernel", "output"} & needed.keys():
                    for given in names:
                        told = await agent.refused(tool, **{**needed, name: given})
                        assert f"{given} is outside {root}, the folder of" in told
                    told = await agent.refused(tool, **{**needed, name: "a\0b"})
                    assert "is no path: embedded null byte" in told
                    told = await agent.refused(tool, **{**needed, name: "a" * 300})
                    assert "is no path: [Errno 36] File name too long" in told
            return set(tools)

    assert asyncio.run(ask()) == {
        *("init", "validate", "run", "resume", "status", "stop", "report", "trial"),
        *("brief", "submit"),
    }


def test_a_waiting_request_is_read_and_answered(tmp_path):
    spec, box = write_experiment(tmp_path / "spec"), tmp_path / "box"
    experiment = with_agents(load_experiment(spec), f"mailbox:{box}")
    run = RunDirectory.create(tmp_path / "run", experiment, spec.read_text())

    async def ask():
        async with agent_in(tmp_path) as agent:
            assert "run is measuring; call again" in await agent.refused("brief", run="run")
            asking = asyncio.create_task(Mailbox(box, poll_seconds=0.001).complete(request_at()))
            told = await agent.call("brief", run="run", wait_seconds=60)
            name = told.splitlines()[0].removeprefix("request: ")
            assert told.endswith("[user]\nWhy is it slow?")
            wrong = await agent.refused("submit", run="run", request="no", text="x")
            assert f"no request 'no' waits for a reply; waiting: {name}" in wrong
            await agent.call("submit", run="run", request=name, text="Latency.")
            assert (await asking).text == "Latency."
            run.close()
            assert "run is not running; call status" in await agent.refused("brief", run="run")

    asyncio.run(ask())


def test_a_mailbox_outside_the_folder_is_not_read(tmp_path):
    root = tmp_path / "root"
    spec = write_experiment(root / "spec")
    experiment = with_agents(load_experiment(spec), f"mailbox:{tmp_path / 'box'}")
    RunDirectory.create(root / "run", experiment, spec.read_text()).close()

    async def ask():
        async with agent_in(root) as agent:
            return await agent.refused("brief", run="run")

    assert f"{tmp_path / 'box'} is outside {root}" in asyncio.run(ask())


def test_a_word_with_a_nul_is_named(tmp_path):
    write_experiment(tmp_path)

    async def ask():
        async with agent_in(tmp_path) as agent:
            return await agent.refused("run", spec="spec.yaml", model="a\0b")

    assert r"'--model=a\x00b' has a NUL character" in asyncio.run(ask())


def test_a_client_that_closes_mid_call_ends_the_server_without_an_error(tmp_path):
    pytest.importorskip("mcp")
    who = {"clientInfo": {"name": "client", "version": "1"}, "capabilities": {}}
    hello = {"protocolVersion": "2024-11-05", **who}
    asked = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    served = subprocess.Popen(
        command("mcp", tmp_path),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    served.stdout.close()
    _, told = served.communicate(json.dumps(asked) + "\n", timeout=120)
    assert (served.returncode, told) == (0, "")


def test_a_folder_that_is_not_there_is_said(tmp_path):
    result = kernelwright("mcp", tmp_path / "none")
    assert result.returncode == 2
    assert "is no folder: name the one that specs and runs are in" in result.stderr


@pytest.mark.slow
def test_an_agent_validates_runs_writes_the_template_and_reads_the_report(tmp_path):
    write_experiment(tmp_path, spec=ONE_ROUND)
    (tmp_path / "own.cl").write_text(KERNEL)

    async def work():
        async with agent_in(tmp_path) as agent:
            assert "# guess" in await agent.call("init", kernel="own.cl", output="own.yaml")
            assert "own.yaml exists already" in await agent.refused(
                "init", kernel="own.cl", output="own.yaml"
            )
            checked = json.loads(await agent.call("validate", spec="spec.yaml", fast=True))
            assert checked["experiment"] == "scale"
            assert "no such file" in await agent.refused("run", spec="none.yaml")
            run = await agent.call("run", spec="spec.yaml", model="agent")
            for role in (Role.PLANNING, Role.GENERATION):
                told = await agent.call("brief", run=run, wait_seconds=120)
                name = told.splitlines()[0].removeprefix("request: ")
                assert f"-{role}-" in name
                await agent.call("submit", run=run, request=name, text=REPLIES[role])
            ended = await agent.refused("brief", run=run, wait_seconds=200)
            assert "is not running; call status" in ended
            state = json.JSONDecoder().raw_decode(await agent.call("status", run=run))[0]
            assert state["state"] == "finished"
            assert "kernelwright: outcome=" in await agent.call("report", run=run)
            values = {"ITEMS": 2, "BLOCK": 64, "STRIDED": False}
            tried = await agent.call("trial", spec="spec.yaml", values=values, shape={"n": 500})
            assert json.loads(tried)["configuration"] == values

    asyncio.run(work())


@pytest.mark.slow
def test_a_run_that_is_refused_says_why_at_once_or_in_its_status(tmp_path):
    write_experiment(tmp_path)

    async def ask():
        async with agent_in(tmp_path) as agent:
            options = {"spec": "spec.yaml", "model": "none", "seconds": 0.001}
            begun = await agent.client.call_tool("run", options)
            if begun.is_error:  # refused before it was seen to work on its directory
                return begun.content[0].text
            run = begun.content[0].text
            while (tmp_path / run).exists():
                await asyncio.sleep(0.01)
            return await agent.refused("status", run=run)

    assert "begin a run with --seconds" in asyncio.run(ask())


@pytest.mark.slow
def test_runs_end_with_the_server_and_are_resumed_by_another(tmp_path):
    write_experiment(tmp_path, spec=ONE_ROUND)

    async def begin():
        async with agent_in(tmp_path) as agent:
            run = await agent.call("run", spec="spec.yaml", model="agent")
            return run, await agent.call("brief", run=run, wait_seconds=120)

    async def go_on(run):
        async with agent_in(tmp_path) as agent:
            state = json.loads(await agent.call("status", run=run))
            assert state["state"] == "interrupted"
            await agent.call("resume", run=run)
            told = await agent.call("brief", run=run, wait_seconds=120)
            assert "is running" in await agent.refused("resume", run=run)
            assert "ends at once" in await agent.call("stop", run=run, now=True)
            return told

    run, asked = asyncio.run(begin())
    assert asyncio.run(go_on(run)) == asked
