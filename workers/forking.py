"""Starts child processes through a fork server, and says how they end.

Owns the servers of this process: one for each environment that children are to start in, started
with the first such child and replaced when it is lost. See :mod:`workers.fork_server`.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Literal

from tuner.process_stat import process_stat
from workers.child_environment import module_environment
from workers.confinement import Sandbox
from workers.process_tree import NO_TREE, kill_group

START_SECONDS = 60.0
"""A child must be ready then."""
KILL_SECONDS = 60.0
"""A killed process that still runs then, in a driver, is given up together with its server."""
_STOP_POLL_SECONDS = 1.0
"""How often a server that does not answer is looked at: one that is stopped never would."""
_LOG_BYTES = 64 * 1024
_MAX_MESSAGE = 4096

Ending = Literal["died", "killed", "lost", "hung", "memory", "garbage"]
"""``killed``: by SIGKILL, hence externally or because the machine is out of memory. ``lost``: with
its fork server, hence not through anything that it did alone."""

EXTERNAL: tuple[Ending, ...] = ("killed", "lost")
"""Endings that the child's own work may not have caused."""


class ChildFailed(Exception):
    """The child gave no valid answer and has been killed; ``detail`` is for people."""

    def __init__(self, how: Ending, detail: str) -> None:
        super().__init__(how, detail)
        self.how = how
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class OutputTail:
    """The end of what is written to a pipe, read in a thread so that the writer never blocks."""

    def __init__(self, descriptor: int) -> None:
        """Reads and closes the pipe's read end."""
        self._tail = bytearray()
        self._thread = threading.Thread(target=self._drain, args=(descriptor,), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the pipe's end, at most a second."""
        self._thread.join(1.0)

    def text(self) -> str:
        """The last 64 KiB."""
        return bytes(self._tail).decode(errors="replace")

    def last_line(self) -> str:
        """The last line as the end of a message, empty if there is none."""
        lines = self.text().strip().splitlines()
        return f"; it last printed: {lines[-1][:300]}" if lines else ""

    def _drain(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while piece := stream.read(4096):
                self._tail += piece
                del self._tail[:-_LOG_BYTES]


class _Server:
    """A fork server of this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "workers.fork_server"]
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={**environment, **NO_TREE},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self._log = OutputTail(os.dup(output.fileno()))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def stopped(self) -> bool:
        """Whether a signal such as SIGSTOP has stopped it."""
        found = process_stat(self._process.pid)
        return found is not None and found.state == "T"

    def fork(self, request: bytes, channel: int, log: int) -> "ForkedProcess":
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.suppress(ConnectionError):  # the status socket ends, too
            socket.send_fds(self._requests, [request], [channel, log, theirs.fileno()])
        return ForkedProcess(self, ours)

    def preload(self, request: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the next fork says why
            self._requests.send(request)

    def kill(self) -> None:
        """Kill it, and with it every child that it forked."""
        self._process.kill()

    def failure(self) -> ChildFailed:
        """Why it is lost."""
        self.kill()
        status = self._process.wait()
        self._log.finish()
        how: Ending = "lost" if status == -signal.SIGKILL else "died"
        return ChildFailed(how, f"the fork server {ending(status)}{self._log.last_line()}")


class ForkedProcess:
    """A forked child. ``pid`` names no other process before :meth:`kill` has returned.

    ``lost`` once it is known that its server died, and the child with it.
    """

    def __init__(self, server: _Server, status_socket: socket.socket) -> None:
        """Wait until it is set up. Raises :class:`ChildFailed`."""
        self._server = server
        self._socket = status_socket
        self._guard = threading.RLock()
        self._status: int | None = None
        self._killed = False
        self.lost = False
        self.pid = self._started()

    def wait(self, timeout: float) -> int:
        """Its exit code, or the negated number of the signal that ended it.

        SIGKILL if its server was lost, since it dies with that.

        Raises:
            TimeoutError: it runs on.
        """
        with self._guard:
            if self._status is None:
                message = self._message(timeout)
                self._status = int(message.get("status", -signal.SIGKILL))
                self.lost = not message
            return self._status

    def kill(self) -> None:
        """Kill it and its process group, and wait for its end. Safe to call twice."""
        with self._guard, self._socket:
            with contextlib.suppress(TimeoutError):
                self.wait(0.0)
            if self.lost or self._killed:  # the id may name another process
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            kill_group(self.pid)
            try:
                self.wait(KILL_SECONDS)
            except TimeoutError:
                self._status = -signal.SIGKILL
                self._server.kill()
            self._killed = True

    def _started(self) -> int:
        try:
            message = self._message(START_SECONDS)
        except TimeoutError:
            self._server.kill()
            detail = f"the fork server forked nothing within {START_SECONDS:.3g} s"
            raise ChildFailed("hung", detail) from None
        if not message:
            raise self._server.failure()
        if "pid" in message:
            return int(message["pid"])
        status = message.get("status")
        how: Ending = "killed" if status == -signal.SIGKILL else "died"
        raise ChildFailed(how, str(message.get("error", ending(status))))

    def _message(self, timeout: float) -> dict[str, Any]:
        """The next message of the server, empty if it is lost; raises ``TimeoutError``.

        A server that is stopped is killed, which it cannot delay.
        """
        text, ends = None, time.monotonic() + timeout
        while text is None:
            left = max(0.0, ends - time.monotonic())
            self._socket.settimeout(min(left, _STOP_POLL_SECONDS))
            try:
                text = self._socket.recv(_MAX_MESSAGE)
            except (BlockingIOError, TimeoutError):
                if self._server.stopped:
                    self._server.kill()
                if left <= _STOP_POLL_SECONDS:
                    raise TimeoutError from None
            except ConnectionError:
                return {}
        found: dict[str, Any] = json.loads(text) if text else {}
        return found


_servers: dict[tuple[tuple[str, str], ...], _Server] = {}
"""By the environment that they were started with; touched by the spawner's thread alone."""

_spawner: ThreadPoolExecutor
"""A server dies with the thread that spawned it; this one lives as long as the process."""


def _begin_anew() -> None:
    """Forget the servers: a process that is forked has neither its parent's threads nor servers."""
    global _spawner
    _servers.clear()
    _spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kernelwright-spawn")


_begin_anew()
os.register_at_fork(after_in_child=_begin_anew)


def fork_child(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    preload: Sequence[str],
    sandbox: Sandbox | None,
    channel: int,
    log: int,
) -> ForkedProcess:
    """Fork a process that runs a module's ``main``, with what :class:`workers.process.Child` takes.

    ``channel`` is the descriptor of a socket for a :class:`workers.channel.Channel`; that of
    ``log`` becomes stdout and stderr.

    Raises:
        ChildFailed: the server does not start, or was lost.
    """
    request = {
        "module": module,
        "arguments": list(arguments),
        "environment": dict(environment),
        "preload": list(preload),
        "sandbox": sandbox and asdict(sandbox),
    }
    return _spawner.submit(_fork, json.dumps(request).encode(), channel, log).result()


def begin_server(modules: Sequence[str]) -> None:
    """Begin to start the fork server and to import modules in it; does not wait."""
    request = json.dumps({"preload": list(modules)}).encode()
    _spawner.submit(lambda: _server().preload(request))


def _fork(request: bytes, channel: int, log: int) -> ForkedProcess:
    return _server().fork(request, channel, log)


def _server() -> _Server:
    """The server of the present environment, started if none is alive."""
    environment = module_environment(os.environ)
    key = tuple(sorted(environment.items()))
    if key not in _servers or not _servers[key].alive:
        try:
            _servers[key] = _Server(environment)
        except OSError as error:
            raise ChildFailed("died", f"the fork server does not start: {error}") from None
    return _servers[key]


def process_ends() -> bool:
    """Whether this process ends, and its fork servers with it."""
    try:
        _spawner.submit(int)
    except RuntimeError:
        return True
    return False


def ending(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "closed its channel and went on running"
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"exited with status {status} without an answer"
