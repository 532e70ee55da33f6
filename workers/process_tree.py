"""Finds and kills the descendants of a child process, and its process group.

A process group misses descendants that start their own session (``setsid``, daemons). So each child
gets a tag in its environment, which descendants inherit unless started with another environment.
"""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

TREE_VARIABLE = "KERNELWRIGHT_TREE"
_SECONDS = 2.0
"""Limit of the search for descendants that start others faster than they are killed."""
_TAG_BYTES = 16

NO_TREE = {TREE_VARIABLE: "0" * 2 * _TAG_BYTES}
"""Tags no process; as long as any tag."""


def tree_tag() -> dict[str, str]:
    """A new environment variable that tags one child and its descendants."""
    return {TREE_VARIABLE: secrets.token_hex(_TAG_BYTES)}


def kill_group(leader: int) -> None:
    """Kill the process group that a process leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def kill_tagged(tag: dict[str, str]) -> None:
    """Kill all processes with a tag."""
    ends = time.monotonic() + _SECONDS
    entry = f"{TREE_VARIABLE}={tag[TREE_VARIABLE]}".encode()
    while (found := list(_tagged(entry))) and time.monotonic() < ends:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _tagged(entry: bytes) -> Iterator[int]:
    """Processes with such an entry in the environment that they were started with."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)
