"""The lease of a run directory: which process writes it, and whether that process is alive.

A run directory may lie on storage that several machines share and that has no working ``flock``.
So its writer keeps two things: the ``flock`` on ``lock``, where the storage has it, and the file
``lease.json``, which says who writes and is touched as a heartbeat. Readers look at the lease and
lock nothing. Knows nothing of what else a run directory holds.
"""

import errno
import fcntl
import os
import platform
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tuner.errors import EnvironmentProblem
from tuner.files import UnreadableFile, read_bounded
from tuner.process_stat import process_stat

LOCK, LEASE = "lock", "lease.json"

HEARTBEAT_SECONDS = 5.0

STALE_SECONDS = 60.0
"""A process on another machine counts as dead after so long without a heartbeat.

Twelve heartbeats: shared storage may hang for half a minute.
"""

_LEASE_BYTES = 4096
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that a lease names.

    ``boot`` and ``namespace`` tell whether ``pid`` means something to the reader: the machine's
    boot id and the inode of the process's PID namespace. ``started`` is when the process started,
    in clock ticks after boot, which tells it from a later one of the same number. ``job`` is the
    batch job that it belongs to, empty outside of one. ``locked``: it holds the ``flock`` too.
    ``key`` is random.
    """

    host: str
    boot: str
    namespace: int
    pid: int
    started: int
    job: str
    locked: bool
    key: str

    @classmethod
    def here(cls, job: str, *, locked: bool) -> "Holder":
        """This process."""
        return cls(
            host=platform.node(),
            boot=_boot(),
            namespace=_namespace(),
            pid=os.getpid(),
            started=_started(os.getpid()) or 0,
            job=job,
            locked=locked,
            key=secrets.token_hex(8),
        )

    def __str__(self) -> str:
        job = f" ({self.job})" if self.job else ""
        return f"process {self.pid} on {self.host}{job}"

    @property
    def on_this_machine(self) -> bool:
        """Whether the holder's machine is this one, and has not been started again since."""
        return bool(self.boot) and self.boot == _boot()

    @property
    def process_visible(self) -> bool:
        """Whether this process sees the holder's process number."""
        return self.on_this_machine and self.namespace == _namespace()


_HOLDERS = TypeAdapter(Holder)


@dataclass(frozen=True, slots=True)
class Tenure:
    """A lease as it was read: its holder, and the seconds since the last heartbeat.

    ``holder`` is ``None`` where the file is half written or damaged.
    """

    holder: Holder | None
    age: float

    def __str__(self) -> str:
        if self.holder is None:
            return f"an unknown process (its last heartbeat was {self.age:.0f} s ago)"
        if self.holder.process_visible:
            return str(self.holder)
        return f"{self.holder}, whose last heartbeat was {self.age:.0f} s ago"

    @property
    def alive(self) -> bool:
        """Whether the holder lives: by its process on this machine, else by its heartbeat."""
        if self.holder is not None and self.holder.process_visible:
            return _started(self.holder.pid) == self.holder.started
        return self.age < STALE_SECONDS

    @property
    def why_stale(self) -> str:
        """Why the holder counts as dead."""
        if self.holder is not None and self.holder.process_visible:
            return f"{self.holder} ended without giving it up"
        return f"{self.holder or 'its holder'} gave no heartbeat for {self.age:.0f} s"


def read_tenure(folder: Path) -> Tenure | None:
    """The lease of a run directory, by this machine's clock; ``None`` if there is none.

    Raises:
        EnvironmentProblem: the lease cannot be read.
    """
    return _read(folder, time.time())


class Lease:
    """The right to write a run directory, until :meth:`release`. Follows it when it is renamed."""

    def __init__(self, folder: Path, job: str = "") -> None:
        """Take the lease, if necessary from a dead process, which :attr:`took_over` then names.

        ``job`` is this process's batch job.

        Raises:
            EnvironmentProblem: a live process holds the directory.
            OSError: it cannot be written.
        """
        self.took_over = ""
        self._mutex = threading.Lock()  # no descriptor may be closed during a heartbeat
        self._ended = threading.Event()
        self._lost: str | None = None
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lock = -1
        try:
            self._lock, locked = _lock(folder)
            self._holder = Holder.here(job, locked=locked)
            self._take(folder)
        except BaseException:
            self._close()
            raise
        self._renewed = _clock()
        threading.Thread(target=self._beat, name="lease", daemon=True).start()

    def check(self) -> None:
        """Raise :class:`EnvironmentProblem` if the lease was lost, say after a suspension.

        Does no I/O while heartbeats are in time.
        """
        if _clock() - self._renewed > STALE_SECONDS / 2:
            self._renew()
        if self._lost is not None:
            raise EnvironmentProblem(f"this process may not write any more: {self._lost}")

    def release(self) -> None:
        """Give the directory up; releasing twice does nothing."""
        with self._mutex:
            if not self._ended.is_set():
                self._ended.set()
                with suppress(OSError):
                    if _key(self._folder) == self._holder.key:
                        self._remove(LEASE)
                self._close()

    def _take(self, folder: Path) -> None:
        os.utime(self._lock)
        # The storage's own clock: those of two machines may differ.
        found = _read(folder, os.fstat(self._lock).st_mtime)
        if found is not None:
            if not self._stale(found):
                raise in_use(folder, found)
            self._clear(folder, found)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            made = os.open(LEASE, flags, 0o644, dir_fd=self._folder)
        except FileExistsError:  # another process was faster
            raise in_use(folder, Tenure(None, 0.0)) from None
        try:
            os.write(made, _HOLDERS.dump_json(self._holder) + b"\n")
            os.fsync(made)
        except OSError:
            self._remove(LEASE)
            raise
        finally:
            os.close(made)

    def _clear(self, folder: Path, stale: Tenure) -> None:
        """Remove a stale lease, unless another process replaced it meanwhile."""
        aside = f".lease.{self._holder.key}"
        try:
            self._rename(LEASE, aside)
            if _key(self._folder, aside) != (stale.holder and stale.holder.key):
                self._rename(aside, LEASE)
                raise in_use(folder, read_tenure(folder))
        except FileNotFoundError:
            raise in_use(folder, read_tenure(folder)) from None
        self._remove(aside)
        self.took_over = str(stale)

    # By descriptor, since the folder may be renamed.

    def _rename(self, name: str, other: str) -> None:
        os.rename(name, other, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._folder)

    def _stale(self, found: Tenure) -> bool:
        """Whether a lease may be taken over by this process, which has the ``flock`` if it can."""
        holder = found.holder
        # On one machine the lock decides. A lease whose holder lives there was copied with the run.
        if holder and holder.locked and self._holder.locked and holder.on_this_machine:
            return True
        return not found.alive

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            self._renew()

    def _renew(self) -> None:
        """Touch the lease, if it is still this process's."""
        with self._mutex:
            if self._ended.is_set():
                return
            try:
                if _key(self._folder) == self._holder.key:
                    os.utime(LEASE, dir_fd=self._folder)
                    self._renewed = _clock()
                else:
                    self._lost = "another process took the run directory over"
            except FileNotFoundError:
                self._lost = "the run directory was removed"
            except OSError as error:
                if _clock() - self._renewed > STALE_SECONDS:
                    self._lost = f"its lease cannot be renewed ({error.strerror})"

    def _close(self) -> None:
        for descriptor in (self._folder, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._folder = self._lock = -1


def in_use(folder: Path, found: Tenure | None) -> EnvironmentProblem:
    """The error for a run directory that a live process holds."""
    return EnvironmentProblem(
        f"the run directory {folder} is in use by {found or 'an unknown process'}: wait for it, or "
        f"stop it with `kernelwright stop {folder}`"
    )


def _lock(folder: Path) -> tuple[int, bool]:
    """The open lock file, and whether its ``flock`` is held; false where the storage has none."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(folder / LOCK, flags, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise in_use(folder, read_tenure(folder)) from None
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return lock, False
        os.close(lock)
        raise
    return lock, True


def _read(folder: Path, now: float) -> Tenure | None:
    path = folder / LEASE
    try:
        text = read_bounded(path, _LEASE_BYTES)
        if text is None:
            return None
        age = max(0.0, now - path.stat().st_mtime)
    except FileNotFoundError:
        return None
    except (OSError, UnreadableFile) as error:
        raise EnvironmentProblem(f"{path} {error}: remove it if no process writes there") from None
    try:
        return Tenure(_HOLDERS.validate_json(text), age)
    except ValidationError:
        return Tenure(None, age)


def _key(folder: int, name: str = LEASE) -> str | None:
    """The key in the lease of an open folder; ``None`` if it is half written or damaged."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        data = file.read(_LEASE_BYTES)
    try:
        return _HOLDERS.validate_json(data).key
    except ValidationError:
        return None


def _clock() -> float:
    """Seconds on a clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _namespace() -> int:
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks after boot; ``None`` if it is gone or a zombie."""
    found = process_stat(pid)
    return None if found is None or found.state in "ZX" else found.started
