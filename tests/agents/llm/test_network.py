"""LiteLLM's real client against a local server that speaks OpenAI's protocol, well and badly."""

import asyncio
import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest

from agents.llm.network import NetworkModel, NetworkSettings
from agents.llm.port import MAX_TEXT, REPLIES, ModelUnavailable, Reply, Role
from agents.llm.provider_settings import secret_values
from agents.llm.transport import COMPRESSED, TOO_LONG
from tests.agents.llm.server import (
    KEY,
    Behaviour,
    Server,
    answers,
    completion,
    compresses,
    drops,
    fails,
    floods,
    never_ends,
    serving,
)
from tests.conformance.language_model import request_at
from tuner.errors import EnvironmentProblem, SpecError


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def model(server: Server, *names: str, **settings: object) -> NetworkModel:
    chosen = {"timeout": 20.0, "retries": 2, "first_pause": 0.001, "longest_pause": 0.01}
    return NetworkModel(
        models=names or ("openai/gpt-4o-mini",),
        keys={"OPENAI_API_KEY": KEY},
        settings=NetworkSettings(
            base_url=server.url,
            **(chosen | settings),  # type: ignore[arg-type]
        ),
    )


def ask(asked: NetworkModel) -> Reply:
    return asyncio.run(asked.complete(request_at()))


@pytest.mark.parametrize(
    ("names", "keys", "error", "says"),
    [
        (["nosuch/model"], {}, SpecError, "does not know the model 'nosuch/model'"),
        (["openai/gpt-4o", "never-heard-of"], {"OPENAI_API_KEY": KEY}, SpecError, "never-heard"),
        (["openai/gpt-4o"], {"ANTHROPIC_API_KEY": KEY}, EnvironmentProblem, "set OPENAI_API_KEY$"),
        (["gemini/gemini-2.0-flash"], {}, EnvironmentProblem, "GEMINI_API_KEY or GOOGLE_API_KEY"),
        (["azure/gpt-4o"], {}, EnvironmentProblem, "set AZURE_API_KEY and AZURE_API_BASE$"),
        (["azure/gpt-4o"], {"AZURE_API_KEY": KEY}, EnvironmentProblem, "set AZURE_API_BASE$"),
    ],
)
def test_what_cannot_be_asked_is_known_before(names, keys, error, says, monkeypatch) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(error, match=says):
        asyncio.run(NetworkModel(models=names, keys=keys).ready())


def test_what_can_be_asked_is_ready_and_its_key_found_under_its_own_name(server: Server) -> None:
    asyncio.run(model(server).ready())
    keys = {"TOGETHERAI_API_KEY": KEY}
    other = NetworkModel(
        models=["together_ai/some/model"],
        keys=keys,
        settings=NetworkSettings(base_url=server.url, retries=0),
    )
    asyncio.run(other.ready())
    ask(other)
    assert server.authorizations == [f"Bearer {KEY}"]


def test_azure_is_told_its_address_and_version_beside_its_key(server: Server) -> None:
    keys = {
        "AZURE_API_KEY": KEY,
        "AZURE_API_BASE": server.url.removesuffix("/v1"),
        "AZURE_API_VERSION": "2031-02-03",
    }
    asked = NetworkModel(models=["azure/gpt-4o"], keys=keys, settings=NetworkSettings(retries=0))
    asyncio.run(asked.ready())
    assert ask(asked).text == "Hello."
    ((path, headers),) = server.asked
    assert path == "/openai/deployments/gpt-4o/chat/completions?api-version=2031-02-03"
    assert headers["api-key"] == KEY


def test_bedrock_is_told_both_halves_of_its_key_and_its_region(server: Server) -> None:
    keys = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_SESSION_TOKEN": "a-session",
        "AWS_REGION_NAME": "us-east-2",
    }
    server.behaviours = [
        answers(
            {
                "output": {"message": {"role": "assistant", "content": [{"text": "us-east-2."}]}},
                "stopReason": "end_turn",
                "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15},
            }
        )
    ]
    asked = NetworkModel(
        models=["bedrock/anthropic.claude-3-haiku-20240307-v1:0"],
        keys=keys,
        settings=NetworkSettings(base_url=server.url.removesuffix("/v1"), retries=0),
    )
    asyncio.run(asked.ready())
    assert ask(asked).text == "us-east-2."
    ((_, headers),) = server.asked
    assert "Credential=AKIDEXAMPLE/" in headers["Authorization"]
    assert "/us-east-2/bedrock/" in headers["Authorization"]
    assert headers["X-Amz-Security-Token"] == "a-session"


def test_vertex_is_told_its_project_and_place(monkeypatch) -> None:
    import litellm

    given = {}

    async def acompletion(**parameters):
        given.update(parameters)
        return litellm.ModelResponse(choices=[{"message": {"content": "Hello."}}])

    monkeypatch.setattr(litellm, "acompletion", acompletion)
    keys = {
        "VERTEXAI_PROJECT": "mine",
        "VERTEXAI_LOCATION": "global",
        "GOOGLE_APPLICATION_CREDENTIALS": "/its/key.json",
    }
    assert ask(NetworkModel(models=["vertex_ai/gemini-2.0-flash"], keys=keys)).text == "Hello."
    told = {name: given[name] for name in given if name.startswith("vertex_")}
    assert tuple(told.values()) == tuple(keys.values())
    assert secret_values(keys) == ("/its/key.json",)


def test_a_reply_with_its_usage_and_price(server: Server) -> None:
    reply = ask(model(server, temperature=0.0, seed=7))
    assert (reply.text, reply.finish_reason) == ("Hello.", "stop")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1000, 500)
    assert reply.cost_usd == pytest.approx(1000 * 0.15e-6 + 500 * 0.6e-6, rel=0.5)
    (body,) = server.seen
    assert body["messages"] == [{"role": "user", "content": "Why is it slow?"}]
    assert body["temperature"] == 0.0
    assert body["seed"] == 7
    assert server.authorizations == [f"Bearer {KEY}"]


@pytest.mark.parametrize(
    "first", [fails(429), fails(429, retry_after="0"), fails(500), fails(503), drops]
)
def test_a_passing_fault_is_tried_again(server: Server, first: Behaviour) -> None:
    server.behaviours = [first, answers(completion())]
    assert ask(model(server)).text == "Hello."
    assert len(server.seen) == 2


@pytest.mark.parametrize("lasting", [fails(429), fails(500), drops])
def test_a_lasting_fault_ends_after_the_retries(server: Server, lasting: Behaviour) -> None:
    server.behaviours = [lasting]
    with pytest.raises(ModelUnavailable, match=r"openai/gpt-4o-mini: \w+Error"):
        ask(model(server))
    assert len(server.seen) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_not_tried_again_and_shows_no_key(server: Server, status: int) -> None:
    server.behaviours = [fails(status, f"bad key {KEY} given")]
    with pytest.raises(ModelUnavailable) as caught:
        ask(model(server))
    assert len(server.seen) == 1
    assert KEY not in str(caught.value)
    assert KEY not in repr(model(server))
    assert "\n" not in str(caught.value)


def test_the_next_model_takes_over(server: Server) -> None:
    server.behaviours = [fails(404), answers(completion("From the other."))]
    assert ask(model(server, "openai/gone", "openai/gpt-4o-mini")).text == "From the other."
    assert [body["model"] for body in server.seen] == ["gone", "gpt-4o-mini"]


def test_a_cut_reply_says_so(server: Server) -> None:
    server.behaviours = [answers(completion("Half a", finish="length"))]
    assert ask(model(server)).finish_reason == "length"


def test_an_empty_reply_is_paid_for_all_the_same(server: Server) -> None:
    server.behaviours = [answers(completion(None))]
    reply = ask(model(server))
    assert reply.text == ""
    assert reply.cost_usd > 0


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", {"choices": []}, {"choices": [{}]}, {"error": "x"}]
)
def test_a_malformed_answer_is_no_reply(server: Server, body: object) -> None:
    server.behaviours = [answers(body)]
    with pytest.raises(ModelUnavailable, match="openai/gpt-4o-mini: "):
        ask(model(server, retries=0))


def test_an_answer_that_never_ends_is_cut_off(server: Server) -> None:
    server.behaviours = [never_ends]
    with pytest.raises(ModelUnavailable, match=r"no reply within 0\.5 s"):
        ask(model(server, timeout=0.5, retries=0))


@pytest.mark.parametrize(("behaviour", "words"), [(floods, TOO_LONG), (compresses, COMPRESSED)])
def test_a_flood_is_read_no_further_than_a_bound_and_not_asked_for_again(
    server: Server, behaviour: Behaviour, words: str
) -> None:
    server.behaviours = [behaviour]
    with pytest.raises(ModelUnavailable, match=words):
        ask(model(server))
    assert len(server.seen) == 1


def test_after_several_failures_nothing_is_sent(server: Server) -> None:
    server.behaviours = [fails(500)]
    asked = model(server, retries=0, breaker=2)
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="InternalServerError"):
            ask(asked)
    with pytest.raises(ModelUnavailable, match="2 requests in a row"):
        ask(asked)
    assert len(server.seen) == 2


def test_no_server_at_all(server: Server) -> None:
    asked = model(server, retries=0)
    server.server_close()
    with pytest.raises(ModelUnavailable, match="openai/gpt-4o-mini: "):
        ask(asked)


def test_no_model_is_a_clear_end() -> None:
    with pytest.raises(ModelUnavailable, match="no model is named"):
        asyncio.run(NetworkModel(models=()).complete(request_at()))


def test_a_pause_that_is_asked_for_is_made(server: Server) -> None:
    server.behaviours = [fails(429, retry_after="0.2"), answers(completion())]
    began = time.monotonic()
    assert ask(model(server, longest_pause=1.0)).text == "Hello."
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    "asked", ["3600", formatdate(time.time() + 3600, usegmt=True)], ids=("seconds", "date")
)
def test_a_long_pause_ends_the_tries_with_that_model(server: Server, asked: str) -> None:
    server.behaviours = [fails(429, retry_after=asked), answers(completion("From the other."))]
    assert ask(model(server, "openai/gpt-4o", "openai/gpt-4o-mini")).text == "From the other."
    assert len(server.seen) == 2


def test_a_role_has_models_of_its_own(server: Server) -> None:
    asked = model(server, "openai/gpt-4o")
    asked.roles = {Role.PLANNING: ("openai/gpt-4o-mini",)}
    ask(asked)
    assert [body["model"] for body in server.seen] == ["gpt-4o-mini"]


def test_a_parameter_that_is_refused_is_left_out_from_then_on(server: Server) -> None:
    server.behaviours = [fails(400, "Unsupported parameter: 'seed'"), answers(completion())]
    asked = model(server, seed=7, temperature=0.5)
    assert ask(asked).notes == ("openai/gpt-4o-mini does not take seed",)
    assert ask(asked).notes == ("openai/gpt-4o-mini does not take seed",)
    assert [("seed" in body, "temperature" in body) for body in server.seen] == [
        (True, True),
        (False, True),
        (False, True),
    ]


def test_the_price_is_known_before_the_call(server: Server) -> None:
    price = asyncio.run(model(server).price(request_at()))
    assert price == pytest.approx(16_384 * 0.6e-6, rel=0.5)
    assert server.seen == []


def test_an_unknown_price_is_said(server: Server) -> None:
    asked = model(server, "openai/never-heard-of")
    assert asyncio.run(asked.price(request_at())) is None
    server.behaviours = [answers(completion() | {"model": "never-heard-of"})]
    reply = ask(asked)
    assert reply.cost_usd == 0
    assert reply.notes == ("no price is known for openai/never-heard-of: its calls count 0 USD",)


@pytest.mark.parametrize(
    "text", ["half a pair \ud800", f"the key is {KEY}", "\0 \x1b[2J", "x" * (MAX_TEXT + 5)]
)
def test_a_hostile_reply_becomes_one_that_can_be_kept(server: Server, text: str) -> None:
    server.behaviours = [answers(completion(text))]
    reply = ask(model(server))
    assert KEY not in reply.text
    assert REPLIES.validate_json(REPLIES.dump_json(reply)) == reply


@pytest.mark.parametrize("count", [-5, 10**12])
def test_impossible_counts_are_bounded(server: Server, count: int) -> None:
    body = completion()
    body["usage"] = {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
    server.behaviours = [answers(body)]
    reply = ask(model(server))
    assert REPLIES.validate_json(REPLIES.dump_json(reply)) == reply
