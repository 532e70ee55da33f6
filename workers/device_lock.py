"""A device's host-wide lock: benches of several runs take turns, in the order in which they asked.

A turn lasts until its work is done, or until it is over and another bench waits. It is kept for a
moment after each work, since the next one mostly follows at once: a device that changes hands after
every launch spends its time warming up.
"""

import fcntl
import logging
import math
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import EnvironmentProblem
from workers.scratch import lock_taken, runtime_directory

LONG_SECONDS = 15.0
"""A wait for a device that is longer than this is logged and shown, as is the
sum of shorter ones in one work; most turns are shorter."""
TURN_SECONDS = 1.0
"""After this a turn ends where it can, if another bench waits."""
KEPT_SECONDS = 0.02
"""How long a turn goes on with nothing to do."""
PATIENCE_SECONDS = 10.0
"""How long what is needed later waits, at most, for a pause of what is needed now."""
_POLL_SECONDS = 0.005

_log = logging.getLogger(__name__)


class DeviceLock:
    """One bench's access to the lock of a device.

    Args:
        identity: the device's, as every process of this host names it.
        abort: set to give up waiting.
    """

    def __init__(self, identity: str, abort: threading.Event) -> None:
        folder = runtime_directory()
        self._identity = identity
        self._path = folder / f"{identity}.lock"
        self._queue = folder / f"{identity}.queue"
        self._abort = abort
        self._mutex = threading.RLock()
        self._depth = 0
        self._shares = 0
        """Threads that hold it while others of this bench may."""
        self._descriptor: int | None = None
        self._taken_at = self._idle_since = 0.0
        self._urgent: int | None = None
        """The thread without patience that has the device, or waits for it."""
        self._pause_at, self._pause = -math.inf, KEPT_SECONDS
        """When a pause of such threads begins, and how long after its last use that was."""
        self._holder = ""
        """Which process has had the device since a long wait for it began; empty without one."""
        self.waited = 0.0
        """Seconds that this bench waited for other processes, in all."""
        self._told = 0.0
        """Of these, those that :meth:`waited_since` told."""

    @contextmanager
    def held(self, *, patience: float = 0.0, pause: float = KEPT_SECONDS) -> Iterator[None]:
        """Hold the device; a thread that holds it may ask again.

        Args:
            patience: so many seconds, at most, this thread waits for a pause of those without.
            pause: such a pause begins when the device was unused for so many seconds after this.

        Raises:
            EnvironmentProblem: aborted while waiting.
        """
        self._enter(patience, pause)
        try:
            if self._depth == 0:
                self._begin()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                self._idle_since = time.monotonic()
        finally:
            if self._depth == 0 and self._urgent == threading.get_ident():
                self._urgent, self._pause_at = None, time.monotonic() + pause
            self._mutex.release()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the device while other threads of this bench may hold it too: nothing may be timed.

        Raises:
            EnvironmentProblem: aborted while waiting.
        """
        with self.held(pause=0.0):
            self._shares += 1
        try:
            yield
        finally:
            with self._mutex:
                self._shares -= 1
                self._idle_since = time.monotonic()

    @property
    def waits_for(self) -> str:
        """Which process has had the device for long, or that waits sum up; empty otherwise.

        The sum is of the waits since :meth:`waited_since` was called, which ends a work.
        """
        if holder := self._holder:
            return f"{self._identity} is in use by process {holder}, waiting for it"
        if self.waited - self._told >= LONG_SECONDS:
            return f"{self._identity} is in use by others, waiting for turns"
        return ""

    def waited_since(self) -> float:
        """Seconds that this bench waited for other processes since this was last called."""
        before, self._told = self._told, self.waited
        return self._told - before

    def pause(self) -> None:
        """Let others have their turn if this one is over; called while the device is held.

        Raises:
            EnvironmentProblem: aborted while waiting.
        """
        with self._mutex:
            self._begin()

    def close(self) -> None:
        """End a turn that is kept with nothing to do."""
        if self._mutex.acquire(blocking=False):
            if not self._used:
                self._end()
            self._mutex.release()

    @property
    def _used(self) -> bool:
        return self._depth > 0 or self._shares > 0

    def _enter(self, patience: float, pause: float) -> None:
        """Take the mutex; with patience, let threads that ask without it go first."""
        latest = time.monotonic() + patience
        while (left := latest - time.monotonic()) > 0:
            wait = self._until_pause()
            if not wait and self._mutex.acquire(blocking=False):
                return
            self._stop_if_aborted()
            # Seldom: every thread that wakes up takes the interpreter from the one that measures.
            self._abort.wait(min(left, max(wait, _POLL_SECONDS)))
        if not patience:
            self._urgent, self._pause = threading.get_ident(), pause
        self._mutex.acquire()

    def _until_pause(self) -> float:
        """Seconds, at least, until a pause of threads without patience; 0 in one."""
        if self._urgent is not None:
            return 0.0 if self._urgent == threading.get_ident() else self._pause
        return max(0.0, self._pause_at - time.monotonic())

    def _stop_if_aborted(self) -> None:
        if self._abort.is_set():
            raise EnvironmentProblem(f"closed while waiting for {self._path.name}")

    def _begin(self) -> None:
        """Take the device, or go on with the turn."""
        over = time.monotonic() - self._taken_at >= TURN_SECONDS
        if self._descriptor is not None and over and not self._shares and self._tickets():
            self._end()
        if self._descriptor is None:
            self._descriptor = self._wait()
            self._taken_at = time.monotonic()
            threading.Thread(target=self._keep, name="device-lock", daemon=True).start()

    def _end(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _keep(self) -> None:
        """End the turn once nothing was done for a moment."""
        turn = self._taken_at
        while True:
            time.sleep(KEPT_SECONDS)
            if not self._mutex.acquire(blocking=False):
                continue  # in use
            try:
                if self._descriptor is None or self._taken_at != turn:
                    return
                if not self._used and time.monotonic() - self._idle_since >= KEPT_SECONDS:
                    self._end()
                    return
            finally:
                self._mutex.release()

    def _wait(self) -> int:
        """Wait for the device behind those that asked before; returns the descriptor of its lock.

        A ticket in the queue is locked by the process that waits, so that those of dead ones show.
        """
        self._queue.mkdir(mode=0o700, exist_ok=True)
        made, name = tempfile.mkstemp(prefix=".", dir=self._queue)
        ticket = self._queue / f"{time.monotonic_ns():020d}{Path(name).name}"
        held = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        began = time.monotonic()
        long = began + LONG_SECONDS
        try:
            fcntl.flock(made, fcntl.LOCK_EX)
            Path(name).rename(ticket)
            while not (self._is_first(ticket) and lock_taken(held)):
                self._stop_if_aborted()
                if time.monotonic() > long:
                    long = math.inf
                    self._tell_holder()
                time.sleep(_POLL_SECONDS)
                self.waited += time.monotonic() - began
                began = time.monotonic()
            os.ftruncate(held, 0)
            os.pwrite(held, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(held)
            raise
        finally:
            self._holder = ""
            ticket.unlink(missing_ok=True)
            os.close(made)
        return held

    def _is_first(self, ticket: Path) -> bool:
        """Whether this is the oldest ticket of a live process; removes those of dead ones."""
        for other in self._tickets():
            if other == ticket:
                return True
            try:
                descriptor = os.open(other, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                if not lock_taken(descriptor):
                    return False
                other.unlink(missing_ok=True)
            finally:
                os.close(descriptor)
        return False

    def _tickets(self) -> list[Path]:
        """The tickets of waiting processes, oldest first."""
        return sorted(self._queue.glob("[0-9]*"))

    def _tell_holder(self) -> None:
        self._holder = self._path.read_text(errors="replace")[:20].strip() or "?"
        _log.warning("%s", self.waits_for)
