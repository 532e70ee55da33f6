"""LiteLLM's real client against a local server that speaks OpenAI's protocol, well and badly."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agents.llm.network import NetworkModel, NetworkSettings
from agents.llm.port import ModelUnavailable, Reply
from tests.conformance.language_model import request_at

KEY = "sk-very-secret-0123456789"

Behaviour = Callable[[BaseHTTPRequestHandler], None]


def completion(
    text: str | None = "Hello.", finish: str = "stop", **more: object
) -> dict[str, object]:
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500},
    }


def answers(body: object, status: int = 200, **headers: str) -> Behaviour:
    def behave(handler: BaseHTTPRequestHandler) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return behave


def fails(status: int, message: str = "no", **headers: str) -> Behaviour:
    return answers(
        {"error": {"message": message, "type": "error", "code": None}}, status, **headers
    )


def drops(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.close()


def never_ends(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    end = time.monotonic() + 20
    try:
        while time.monotonic() < end:
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    behaviours: list[Behaviour]
    seen: list[dict[str, object]]
    authorizations: list[str]

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.seen.append(json.loads(self.rfile.read(length)))
        self.server.authorizations.append(self.headers["Authorization"])
        behaviours = self.server.behaviours
        (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(self)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server(("127.0.0.1", 0), Handler)
    found.behaviours, found.seen, found.authorizations = [answers(completion())], [], []
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def model(server: Server, *names: str, **settings: object) -> NetworkModel:
    chosen = {"timeout": 20.0, "retries": 2, "first_pause": 0.001, "longest_pause": 0.01}
    return NetworkModel(
        models=names or ("openai/gpt-4o-mini",),
        keys={"OPENAI_API_KEY": KEY},
        settings=NetworkSettings(
            base_url=f"http://127.0.0.1:{server.server_address[1]}/v1",
            **(chosen | settings),  # type: ignore[arg-type]
        ),
    )


def ask(asked: NetworkModel) -> Reply:
    return asyncio.run(asked.complete(request_at()))


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
