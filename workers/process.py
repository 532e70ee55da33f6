"""Child processes for everything that may hang, crash or send wrong data.

Owns spawning (``python -m``, an own session, an environment of allowed names), the channel
(length-prefixed frames on a socket, never stdout), deadlines, the limit on resident memory, and
killing: a child dies with its parent and with all that it started. A frame is a JSON text and raw
blobs of bounded length. Nothing from a child is unpickled, since candidate code runs in it.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workers.channel import POLL_SECONDS, Channel, ChannelClosed, Frame
from workers.child_environment import module_environment
from workers.process_tree import kill_tree, tree_tag

START_SECONDS = 60.0
_LOG_BYTES = 64 * 1024
_PR_SET_PDEATHSIG = 1

Ending = Literal["died", "killed", "hung", "memory", "garbage"]
"""``killed``: by SIGKILL, hence externally or because the machine is out of memory."""


class ChildFailed(Exception):
    """The child gave no valid answer and has been killed; ``detail`` is for people."""

    def __init__(self, how: Ending, detail: str) -> None:
        super().__init__(detail)
        self.how = how
        self.detail = detail


_RETRIED = ("died", "killed")
"""Endings that may have an external cause."""


@dataclass(slots=True)
class _Memory:
    """Limits one process's resident memory; reads it at most once per poll, for 50 µs each."""

    pid: int
    limit: int
    checked_at: float = 0.0

    def check(self, now: float) -> None:
        if now - self.checked_at < POLL_SECONDS:
            return
        self.checked_at = now
        resident = resident_bytes(self.pid)
        if resident > self.limit:
            raise ChildFailed(
                "memory",
                f"used {resident >> 20} MiB of memory where {self.limit >> 20} are allowed",
            )


@dataclass(slots=True)
class _Check:
    """Checked while waiting for bytes: the deadline and the child's memory."""

    deadline: float
    seconds: float
    memory: _Memory

    def now(self) -> None:
        now = time.monotonic()
        if now > self.deadline:
            raise ChildFailed("hung", f"no answer within {self.seconds:.3g} s")
        self.memory.check(now)


class Child:
    """A child process that answers requests, one at a time.

    Starts with the first request; after a :class:`ChildFailed` the next request starts a new one.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self._module = module
        self._arguments = tuple(arguments)
        self._environment = dict(environment or {})
        self._tag = tree_tag()
        self._memory_limit = memory_limit or physical_memory() // 2
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._memory = _Memory(0, self._memory_limit)
        self._log = _Log()
        self._closed = False
        self._guard = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def log(self) -> str:
        """The end of what the child wrote to stdout and stderr."""
        return self._log.text()

    def start(self) -> None:
        """Start the process if none runs, and wait until it is ready.

        Retries once if it dies meanwhile, perhaps killed externally.

        Raises:
            ChildFailed: it ended, or was not ready in time.
        """
        try:
            self._start()
        except ChildFailed as failure:
            if failure.how not in _RETRIED or self._closed:
                raise
            self._start()

    def _start(self) -> None:
        with self._guard:
            if self._closed:
                raise ChildFailed("died", "closed")
            if self._process is not None:
                return
            ours, theirs = socket.socketpair()
            self._log = _Log()
            with theirs:
                self._process = _spawner.submit(self._spawn, theirs.fileno()).result()
            self._channel = Channel(ours)
            self._memory = _Memory(self._process.pid, self._memory_limit)
        self.receive(timeout=START_SECONDS, limit=0)

    def request(
        self,
        text: bytes,
        blobs: Sequence[bytes | memoryview] = (),
        *,
        timeout: float,
        limit: int = 1 << 32,
        attempts: int = 1,
    ) -> Frame:
        """Send a frame and wait for the answer, at most ``timeout`` seconds.

        A child that dies, perhaps killed externally, is asked in so many ``attempts``.

        Raises:
            ChildFailed: no valid frame came; it has been killed.
        """
        try:
            self.send(text, blobs, timeout=timeout)
            return self.receive(timeout=timeout, limit=limit)
        except ChildFailed as failure:
            if failure.how not in _RETRIED or attempts == 1 or self._closed:
                raise
            return self.request(text, blobs, timeout=timeout, limit=limit, attempts=attempts - 1)

    def send(
        self, text: bytes, blobs: Sequence[bytes | memoryview] = (), *, timeout: float
    ) -> None:
        """Send a frame, each part within ``timeout`` seconds. Raises :class:`ChildFailed`."""
        self.start()
        with self._failing() as channel:
            channel.send(text, blobs, timeout)

    def receive(self, *, timeout: float, limit: int = 1 << 32) -> Frame:
        """Wait for the next answer, at most ``timeout`` seconds. Raises :class:`ChildFailed`."""
        check = _Check(time.monotonic() + timeout, timeout, self._memory)
        with self._failing() as channel:
            return channel.receive(limit, check.now)

    def kill(self) -> None:
        """Kill the process and all that it started."""
        with self._guard:
            self._kill()

    def close(self, grace: float = 1.0) -> None:
        """End the process for good: by closing its channel, then by force. Safe to call twice."""
        with self._guard:
            self._closed = True
            if self._channel is not None and grace:
                self._channel.close()
            if self._process is not None and grace:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(grace)
            self._kill()

    @contextmanager
    def _failing(self) -> Iterator[Channel]:
        """The channel; any failure on it kills the child."""
        process, channel = self._process, self._channel
        if process is None or channel is None:
            raise ChildFailed("died", "closed")
        try:
            yield channel
        except TimeoutError:
            self.kill()
            raise self._with_log("hung", "does not read its requests") from None
        except ChildFailed as error:
            self.kill()
            raise self._with_log(error.how, error.detail) from None
        except ChannelClosed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            status = process.poll()
            self.kill()
            how: Ending = "killed" if status == -signal.SIGKILL else "died"
            raise self._with_log(how, _ending(status)) from None
        except ValueError as error:
            self.kill()
            raise self._with_log("garbage", f"sent {error}") from None

    def _with_log(self, how: Ending, text: str) -> ChildFailed:
        lines = self._log.text().strip().splitlines()
        return ChildFailed(how, f"{text}; last words: {lines[-1][:300]}" if lines else text)

    def _spawn(self, descriptor: int) -> "subprocess.Popen[bytes]":
        environment = module_environment(os.environ) | self._environment | self._tag
        command = [sys.executable, "-P", "-m", self._module, str(descriptor), str(os.getpid())]
        process = subprocess.Popen(
            [*command, *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
        self._log.follow(process)
        return process

    def _kill(self) -> None:
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if channel is not None:
            channel.close()
        if process is not None:
            kill_tree(process, self._tag)
            self._log.finish()


class _Log:
    """The last bytes of a child's stdout and stderr, read in a thread so that it never blocks."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._thread: threading.Thread | None = None

    def follow(self, process: "subprocess.Popen[bytes]") -> None:
        self._thread = threading.Thread(target=self._drain, args=(process,), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join(1.0)

    def text(self) -> str:
        return bytes(self._tail).decode(errors="replace")

    def _drain(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            while piece := os.read(stream.fileno(), 4096):
                self._tail += piece
                del self._tail[:-_LOG_BYTES]


_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kernelwright-spawn")
"""A child dies with the thread that spawned it; this one lives as long as the process."""


def serve_as_child() -> tuple[Channel, list[str]]:
    """In the child: tie its life to its parent's; return the channel and its arguments.

    Exits at once if the parent is gone already.
    """
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    os.set_inheritable(descriptor, False)
    return Channel(socket.socket(fileno=descriptor)), sys.argv[3:]


def physical_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes, 0 if it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _ending(status: int | None) -> str:
    if status is None:
        return "closed its channel and went on running"
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"exited with status {status} without an answer"
