"""A local server that speaks OpenAI's protocol, well and badly."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


def floods(handler: BaseHTTPRequestHandler) -> None:
    """As much as is read, as fast as it is."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * 65536)
    except OSError:
        pass


def compresses(handler: BaseHTTPRequestHandler) -> None:
    """A small response that would become a large one."""
    answers(gzip.compress(b" " * 10_000_000), Content_Encoding="gzip")(handler)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    behaviours: list[Behaviour]
    seen: list[dict[str, object]]
    authorizations: list[str]
    asked: list[tuple[str, Message]]

    def handle_error(self, request: object, client_address: object) -> None:
        pass

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.seen.append(json.loads(self.rfile.read(length)))
        self.server.authorizations.append(self.headers["Authorization"])
        self.server.asked.append((self.path, self.headers))
        behaviours = self.server.behaviours
        (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(self)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving(*behaviours: Behaviour) -> Iterator[Server]:
    """A server that shows the behaviours in turn, the last for ever."""
    found = Server(("127.0.0.1", 0), Handler)
    found.behaviours = list(behaviours) or [answers(completion())]
    found.seen, found.authorizations, found.asked = [], [], []
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        thread.join()
        found.server_close()
