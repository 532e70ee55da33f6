"""The server of ``watch --web``: a read-only page and metrics, for one user on this machine.

It listens on the loopback interface alone and answers only processes of this user or of root. A
request must name this machine in its ``Host`` header: a web site that a browser was led to believe
is at 127.0.0.1 (DNS rebinding) names itself.
"""

import hashlib
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from cluster.watching.follower import RunFollower, RunPicture
from cluster.watching.metrics import prometheus
from cluster.watching.page import SCRIPT, STYLESHEET, page, rounds_html, run_html
from cluster.watching.rounds import RoundStories
from tuner.errors import EnvironmentProblem
from tuner.files import UnreadableFile, read_bounded

LOOPBACK = "127.0.0.1"
LOOK_SECONDS = 1.0
"""A run is not read again before so many seconds have passed, however many pages ask."""

REQUEST_SECONDS = 10.0
"""How long a client may take for its request."""

REPORT, REPORT_BYTES = "report.html", 16 << 20

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"
"""A report is a file of a run directory, perhaps of somebody else: it may load and run nothing."""

_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
"""Any port, since an SSH tunnel may have another."""

_PATH = re.compile(r"/runs/([0-9]{1,4})(/rounds|/report\.html)?")
_TCP = Path("/proc/net/tcp")


class Watched:
    """The runs that are served; each is read at most once in :data:`LOOK_SECONDS`."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._followers = [RunFollower(path) for path in runs]
        self._stories = [RoundStories(path.absolute()) for path in runs]
        self._pictures: dict[int, tuple[float, RunPicture]] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The runs' names, in the order of their numbers."""
        return [one.name for one in self._followers]

    def reply(self, path: str) -> tuple[str, str] | None:
        """Content type and text for a path; ``None`` if there is nothing there."""
        with self._lock:
            match path:
                case "/":
                    return "text/html", page(self.names)
                case "/style.css":
                    return "text/css", STYLESHEET
                case "/watch.js":
                    return "text/javascript", SCRIPT
                case "/metrics":
                    numbers = range(len(self._followers))
                    return "text/plain; version=0.0.4", prometheus([*map(self._look, numbers)])
            found = _PATH.fullmatch(path)
            if found is None or int(found[1]) >= len(self._followers):
                return None
            return self._run(int(found[1]), found[2] or "")

    def _run(self, number: int, part: str) -> tuple[str, str] | None:
        report = self._followers[number].path / REPORT
        match part:
            case "":
                has_report = report.is_file()
                return "text/html", run_html(self._look(number), number, has_report=has_report)
            case "/rounds":
                return "text/html", rounds_html(self._look(number), self._stories[number])
            case _:
                try:
                    text = read_bounded(report, REPORT_BYTES)
                except UnreadableFile:
                    return None
                return None if text is None else ("text/html", text)

    def _look(self, number: int) -> RunPicture:
        looked, picture = self._pictures.get(number, (0.0, None))
        if picture is None or time.monotonic() - looked >= LOOK_SECONDS:
            picture = self._followers[number].look()
            self._pictures[number] = time.monotonic(), picture
        return picture


class WatchServer(ThreadingHTTPServer):
    """Serves runs on a port of the loopback interface, any free one for port 0.

    Raises:
        EnvironmentProblem: the port is taken.
    """

    daemon_threads = True

    def __init__(self, runs: Sequence[Path], port: int) -> None:
        self.watched = Watched(runs)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot listen on {LOOPBACK}:{port} ({error.strerror}): name another with --port"
            ) from None

    @property
    def address(self) -> str:
        """The page's address."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def verify_request(self, _request: object, client_address: object) -> bool:
        """Whether a connection is of this user, or of root."""
        assert isinstance(client_address, tuple)
        return _user_of(client_address, self.server_port) in (os.getuid(), 0)

    def handle_error(self, _request: object, _client_address: object) -> None:
        """Drop a request that broke off: a page was closed."""


def _user_of(client: tuple[str, int], port: int) -> int | None:
    """The user id of the process at the other end of a connection; ``None`` if it is not found."""
    ends = f"{_place(*client)} {_place(LOOPBACK, port)}"
    for line in _TCP.read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if f"{words[1]} {words[2]}" == ends:
            return int(words[7])
    return None


def _place(host: str, port: int) -> str:
    """An address as the kernel's table writes it."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    server_version, sys_version = "kernelwright", ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        """Answer with a page, a part of it, or metrics."""
        if not _HOST.fullmatch(self.headers.get("Host", "")):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "this is http://localhost alone\n")
            return
        path = urlsplit(self.path).path
        found = self.server.watched.reply(path)
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is nothing here\n")
        else:
            policy = _REPORT_POLICY if path.endswith(REPORT) else _PAGE_POLICY
            self._send(HTTPStatus.OK, *found, policy=policy)

    def _send(
        self, status: HTTPStatus, kind: str, text: str, *, policy: str = _PAGE_POLICY
    ) -> None:
        data = text.encode(errors="backslashreplace")  # a path may have any bytes
        tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
        if status is HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            status, data = HTTPStatus.NOT_MODIFIED, b""
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(data))),
            ("Content-Security-Policy", policy),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
            ("ETag", tag),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""
