"""Child processes for everything that may hang, crash or send wrong data.

Owns the channel (length-prefixed frames on a socket, never stdout), deadlines, retries, the limit
on resident memory, and killing: a child dies with its parent and with all that it started. Starting
is left to :mod:`workers.forking`. A frame is a JSON text and raw blobs of bounded length. Nothing
from a child is unpickled, since candidate code runs in it.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import EnvironmentProblem
from workers.channel import POLL_SECONDS, Channel, ChannelClosed, Frame, channel_sockets
from workers.confinement import Sandbox
from workers.forking import (
    EXTERNAL,
    START_SECONDS,
    ChildFailed,
    Ending,
    ForkedProcess,
    OutputTail,
    ending,
    fork_child,
    process_ends,
)
from workers.process_tree import kill_tagged, tree_tag

_log = logging.getLogger(__name__)

_RETRIED: tuple[Ending, ...] = ("died", *EXTERNAL)
"""Endings that may have an external cause."""


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
        preload: Sequence[str] = (),
        sandbox: Sandbox | None = None,
    ) -> None:
        """The child runs ``main(channel, arguments)`` of a module.

        Args:
            module: its name.
            arguments: for ``main``.
            environment: variables besides the allowed ones of this process.
            memory_limit: bytes of resident memory; by default half of the machine's.
            preload: modules to import before the fork; that must start no thread and no driver.
            sandbox: what it is confined to, where code from outside runs in it.
        """
        self._module = module
        self._arguments = tuple(arguments)
        self._tag = tree_tag()
        own = sandbox.variables if sandbox else {}
        self._environment = {**own, **(environment or {}), **self._tag}
        self._sandbox = sandbox
        self._preload = tuple(preload)
        self._memory_limit = memory_limit or physical_memory() // 2
        self._process: ForkedProcess | None = None
        self._channel: Channel | None = None
        self._memory_read_at = 0.0
        self._log: OutputTail | None = None
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
        return self._log.text() if self._log else ""

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

    def begin(self, name: str) -> None:
        """Start the process, which is called ``name`` in messages.

        Raises:
            ChildFailed: it was killed or lost, twice in a row; another attempt may succeed.
            EnvironmentProblem: it does not start.
        """
        try:
            self.start()
        except ChildFailed as failure:
            if failure.how in EXTERNAL:
                raise
            raise EnvironmentProblem(f"the {name} does not start: {failure}") from None

    def _start(self) -> None:
        with self._guard:
            if self._closed:
                raise ChildFailed("died", "closed")
            if self._process is not None:
                return
            self._process, self._channel = self._forked()
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
        ends = time.monotonic() + timeout

        def check() -> None:
            now = time.monotonic()
            if now > ends:
                raise ChildFailed("hung", f"no answer within {timeout:.3g} s")
            if now - self._memory_read_at >= POLL_SECONDS:  # reading takes 50 µs
                self._memory_read_at = now
                self._check_memory()

        with self._failing() as channel:
            return channel.receive(limit, check)

    @property
    def sent_ns(self) -> int:
        """When the child sent its last answer: see :class:`Channel`."""
        return self._channel.sent_ns if self._channel else 0

    def kill(self) -> None:
        """Kill the process and all that it started."""
        with self._guard:
            self._kill()

    def close(self) -> None:
        """Kill the process for good. Safe to call twice."""
        with self._guard:
            self._closed = True
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
            status = None
            with contextlib.suppress(TimeoutError):
                status = process.wait(1.0)
            ours = self._process is not process or process_ends()  # killed by this process
            self.kill()
            how: Ending = "killed" if status == -signal.SIGKILL else "died"
            words = ending(status)
            if process.lost:
                how, words = "lost", "killed with its fork server"
            if how in EXTERNAL and not ours:
                _log.warning("lost the process of %s: %s", self._module, words)
            raise self._with_log(how, words) from None
        except ValueError as error:
            self.kill()
            raise self._with_log("garbage", f"sent {error}") from None

    def _check_memory(self) -> None:
        resident, limit = resident_bytes(self.pid or 0), self._memory_limit
        if resident > limit:
            detail = f"used {resident >> 20} MiB of memory where {limit >> 20} are allowed"
            raise ChildFailed("memory", detail)

    def _with_log(self, how: Ending, text: str) -> ChildFailed:
        return ChildFailed(how, f"{text}{self._log.last_line()}" if self._log else text)

    def _forked(self) -> tuple[ForkedProcess, Channel]:
        ours, theirs = channel_sockets()
        reader, writer = os.pipe()
        self._log = OutputTail(reader)
        try:
            process = fork_child(
                self._module,
                self._arguments,
                environment=self._environment,
                preload=self._preload,
                sandbox=self._sandbox,
                channel=theirs.fileno(),
                log=writer,
            )
        except ChildFailed as failure:
            ours.close()
            _log.warning("no process for %s: %s", self._module, failure)
            raise
        finally:
            theirs.close()
            os.close(writer)
        return process, Channel(ours)

    def _kill(self) -> None:
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if channel is not None:
            channel.close()
        if process is not None:
            process.kill()
            kill_tagged(self._tag)
            if self._log is not None:
                self._log.finish()


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
