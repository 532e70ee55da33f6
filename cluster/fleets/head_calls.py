"""Calls that Ray's head answers, and whether a Ray that this process started still lives.

Once the head is gone, such a call blocks its thread, and ends this process a minute later.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ray._private import worker
from ray.exceptions import RayError
from ray.util.placement_group import (
    get_placement_group,
    placement_group_table,
    remove_placement_group,
)

T = TypeVar("T")

_NEEDED = ("gcs_server", "raylet")
"""The processes of a Ray without which it does not work."""


def ended_process() -> str:
    """Which needed process of the Ray that this process started has ended; empty if none."""
    node = worker._global_node  # noqa: SLF001  # Ray has no public way to ask
    ended = _ended_children() if node is None else [kind for kind, _ in node.dead_processes()]
    return next((kind for kind in ended if kind in _NEEDED), "")


def _ended_children() -> list[str]:
    """The names of this process's children that have ended unnoticed, as while Ray starts."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text(errors="replace").partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            if state == "Z" and int(parent) == os.getpid():
                found.append(name)
    return found


async def ask_head(call: Callable[[], T]) -> T:
    """What ``call`` returns or raises, called in a thread for which this process does not wait.

    Raises:
        RayError: a Ray that this process started has died.
    """
    if ended := ended_process():
        raise RayError(f"Ray's process {ended} ended")
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # it can be given up, but not be cancelled

    def ask() -> None:
        try:
            answer.set_result(call())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="ask Ray's head", daemon=True).start()
    return await asyncio.wrap_future(answer)


def free_rooms(owner: str) -> None:
    """Free what a dead driver actor's benches held; Ray itself keeps it until the job ends."""
    for group in placement_group_table().values():
        if group["name"].startswith(f"{owner}:") and group["state"] != "REMOVED":
            remove_placement_group(get_placement_group(group["name"]))
