"""This user's private directory on this host: scratch folders, locks of files."""

import fcntl
import os
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tuner.errors import EnvironmentProblem

_POLL_SECONDS = 0.005
_REMOVALS = 400
"""Attempts to remove a folder: a child that is being killed may still write into it."""


def runtime_directory() -> Path:
    """A directory that only this user can use, for locks and oracles.

    Raises:
        EnvironmentProblem: it belongs to another user, or others can use it.
    """
    path = Path(tempfile.gettempdir()) / f"kernelwright-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise EnvironmentProblem(
            f"{path} is not a private directory of this user: remove it, or set TMPDIR"
        )
    return path


@contextmanager
def file_lock(path: Path, abort: threading.Event) -> Iterator[int]:
    """Hold the lock of a file, created if missing; waits for it unless ``abort`` is set.

    Raises:
        EnvironmentProblem: aborted while waiting.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not lock_taken(descriptor):
            if abort.is_set():
                raise EnvironmentProblem(f"closed while waiting for {path.name}")
            time.sleep(_POLL_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


def lock_taken(descriptor: int) -> bool:
    """Take the lock if it is free; whether it was."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class PrivateFolder:
    """A scratch folder that lives as long as this object; removes those of dead processes first."""

    def __init__(self, purpose: str) -> None:
        with _scratch_lock():
            for other in runtime_directory().glob("*.scratch"):
                _remove_if_dead(other)
            made = tempfile.mkdtemp(
                prefix=f"{purpose}-", suffix=".scratch", dir=runtime_directory()
            )
            self.path = Path(made)
            life = os.open(made, os.O_RDONLY | os.O_CLOEXEC)
            # The caller may be interrupted before it can clean up.
            self._end = weakref.finalize(self, _end_private, self.path, life)
            fcntl.flock(life, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove it. Safe to call twice."""
        self._end()


def _end_private(folder: Path, life: int) -> None:
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(_POLL_SECONDS)
    os.close(life)


class SharedFolder:
    """A scratch folder of all processes that use the same key; the last one removes it."""

    def __init__(self, purpose: str, key: str) -> None:
        with _scratch_lock():
            self.path = runtime_directory() / f"{purpose}-{key}.scratch"
            self.path.mkdir(mode=0o700, exist_ok=True)
            self._life = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            fcntl.flock(self._life, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Stop using it. Safe to call twice."""
        if self._life < 0:
            return
        with _scratch_lock():
            os.close(self._life)
            self._life = -1
            _remove_if_dead(self.path)


def _scratch_lock() -> AbstractContextManager[int]:
    return file_lock(runtime_directory() / "folders", threading.Event())


def _remove_if_dead(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if lock_taken(descriptor):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
