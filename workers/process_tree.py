"""Kills a child process with all its descendants.

A process group misses descendants that start their own session (``setsid``, daemons). So each child
gets a tag in its environment, which descendants inherit unless started with another environment.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_NAME = "KERNELWRIGHT_TREE"
_SECONDS = 2.0
"""Limit of the search for descendants that start others faster than they are killed."""


def tree_tag() -> dict[str, str]:
    """A new environment variable that tags one child and its descendants."""
    return {_NAME: secrets.token_hex(16)}


def kill_tree(process: "subprocess.Popen[bytes]", tag: dict[str, str]) -> None:
    """Kill a process, its group and all processes with its tag; wait for the first."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    ends = time.monotonic() + _SECONDS
    while (found := list(_tagged(f"{_NAME}={tag[_NAME]}".encode()))) and time.monotonic() < ends:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _tagged(entry: bytes) -> Iterator[int]:
    """Processes that were started with such an entry in their environment."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)
