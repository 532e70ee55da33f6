"""Ending a child process with everything that it has started.

A process group misses who began a session of his own (``setsid``, a daemon). So each child is
started with a mark in its environment: its descendants inherit that wherever they go, unless one
is started with another environment on purpose. Knows nothing of what the processes do.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_NAME = "KERNELWRIGHT_MARK"
_SECONDS = 2.0
"""For how long those are looked for that start others faster than they are killed."""


def fresh_mark() -> dict[str, str]:
    """A variable for the environment of one process, that no other has."""
    return {_NAME: secrets.token_hex(16)}


def end_marked(process: "subprocess.Popen[bytes]", mark: dict[str, str]) -> None:
    """Kill a process, its group and all that bear its mark, and wait for the first."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    ends = time.monotonic() + _SECONDS
    while (found := list(_bearers(f"{_NAME}={mark[_NAME]}".encode()))) and time.monotonic() < ends:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _bearers(entry: bytes) -> Iterator[int]:
    """Living processes with such an entry in the environment that they were started with."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)
