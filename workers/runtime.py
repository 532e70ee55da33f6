"""This user's private place on this host: scratch folders of workers, and the locks of devices."""

import fcntl
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import EnvironmentProblem

_POLL_SECONDS = 0.005


def runtime_directory() -> Path:
    """A directory of this user alone, for locks and oracles.

    Raises:
        EnvironmentProblem: it belongs to another, or others may write to it.
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
def device_lock(identity: str, abort: threading.Event) -> Iterator[None]:
    """Hold the host-wide lock of a device; waits for it unless ``abort`` is set.

    Fair: whoever waits holds the turn, which all others must take before the device.

    Raises:
        EnvironmentProblem: aborted while waiting.
    """
    with _held(f"{identity}.turn", abort) as turn, _held(f"{identity}.lock", abort):
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield


@contextmanager
def _held(name: str, abort: threading.Event) -> Iterator[int]:
    path = runtime_directory() / name
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not _taken(descriptor):
            if abort.is_set():
                raise EnvironmentProblem("closed while waiting for the device")
            time.sleep(_POLL_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def private_folder(purpose: str) -> Path:
    """A new folder that its maker removes."""
    return Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=runtime_directory()))
