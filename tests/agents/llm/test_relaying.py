"""A mailbox answered through LiteLLM's real client and a local server, by one relay and by two."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.llm.mailbox import Mailbox, pending
from agents.llm.network import NetworkModel, NetworkSettings
from agents.llm.port import ModelUnavailable, Reply, Request, Waiting
from agents.llm.relay import Relay
from tests.agents.llm.server import KEY, Server, answers, completion, fails, serving
from tests.cluster.kernels import ROOT, command, kernelwright
from tests.conformance.language_model import request_at
from tuner.errors import EnvironmentProblem


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def relay(folder: Path, server: Server, max_cost_usd: float = 1.0) -> Relay:
    settings = NetworkSettings(base_url=server.url, retries=0)
    keys = {"OPENAI_API_KEY": KEY}
    model = NetworkModel(models=("openai/gpt-4o-mini",), keys=keys, settings=settings)
    return Relay(folder, model, max_cost_usd)


def post(folder: Path, *requests: Request) -> None:
    mailbox = Mailbox(folder, exit_when_waiting=True)
    for request in requests:
        assert isinstance(asyncio.run(mailbox.complete(request)), Waiting)


def collect(folder: Path, request: Request) -> Reply | Waiting:
    return asyncio.run(Mailbox(folder, exit_when_waiting=True).complete(request))


async def everything(served: Relay) -> int:
    count = 0
    while await served.answer_one() is not None:
        count += 1
    return count


def test_what_lies_there_is_answered_once(tmp_path: Path, server: Server) -> None:
    post(tmp_path, request_at(1), request_at(2))
    served = relay(tmp_path, server)
    assert asyncio.run(everything(served)) == 2
    assert asyncio.run(everything(served)) == 0
    reply = collect(tmp_path, request_at(2))
    assert isinstance(reply, Reply)
    assert reply.text == "Hello."
    assert served.spent_usd == pytest.approx(2 * reply.cost_usd)
    assert reply.cost_usd > 0
    assert len(server.seen) == 2


def test_two_relays_at_once_answer_once(tmp_path: Path, server: Server) -> None:
    post(tmp_path, *(request_at(number) for number in range(6)))

    async def both() -> list[int]:
        return await asyncio.gather(*(everything(relay(tmp_path, server)) for _ in range(2)))

    assert sum(asyncio.run(both())) == 6
    assert len(server.seen) == 6


def test_after_a_failure_the_request_waits_for_the_next_relay(
    tmp_path: Path, server: Server
) -> None:
    post(tmp_path, request_at())
    server.behaviours = [fails(401), answers(completion())]
    with pytest.raises(ModelUnavailable):
        asyncio.run(relay(tmp_path, server).answer_one())
    assert list(pending(tmp_path)) == [request_at()]
    assert asyncio.run(everything(relay(tmp_path, server))) == 1


def test_no_call_that_the_money_left_does_not_cover(tmp_path: Path, server: Server) -> None:
    post(tmp_path, request_at())
    with pytest.raises(ModelUnavailable, match="does not cover a call of up to"):
        asyncio.run(relay(tmp_path, server, max_cost_usd=1e-6).answer_one())
    assert server.seen == []


def test_another_folder_is_no_mailbox(tmp_path: Path, server: Server) -> None:
    with pytest.raises(EnvironmentProblem, match="is not a mailbox"):
        relay(tmp_path, server)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command_beside_another_until_a_signal_ends_it(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    post(tmp_path, request_at(1))
    words = ["relay", tmp_path, "--seed", 3]
    words += ["--model", "openai/gpt-4o-mini", "--base-url", server.url]
    with subprocess.Popen(
        command(*words), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        beside = kernelwright(*words, "--once")
        assert beside.returncode == 0, beside.stderr
        post(tmp_path, request_at(2))
        said = beside.stdout
        while "r2-d0-planning-a0: 1000 tokens read, 500 written" not in said:
            said += (line := process.stdout.readline())
            assert line
        process.send_signal(number)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest, errors) == (code, "", "kernelwright: interrupted\n")
    assert said.count("r1-d0-planning-a0: 1000 tokens read, 500 written") == 1
    assert all(isinstance(collect(tmp_path, request_at(each)), Reply) for each in (1, 2))
    assert len(server.seen) == 2
    assert {body["seed"] for body in server.seen} == {3}
    assert set(server.authorizations) == {f"Bearer {KEY}"}
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        assert KEY not in path.read_text(), path
    kept = [json.loads(path.read_text())["text"] for path in (tmp_path / "accepted").iterdir()]
    assert kept == ["Hello."] * 2
