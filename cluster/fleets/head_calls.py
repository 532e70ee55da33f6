"""Calls that Ray's head answers, and whether a Ray that this process started still lives.

Once the head is gone, such a call blocks its thread, and ends this process a minute later.
"""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ray._common.utils import get_default_ray_temp_dir
from ray._private import worker
from ray.exceptions import RayError
from ray.util.placement_group import (
    get_placement_group,
    placement_group_table,
    remove_placement_group,
)

from tuner.errors import RunInterrupted
from tuner.process_stat import process_stat

T = TypeVar("T")

HEAD = "gcs_server"
"""The process of Ray's head. Where it is gone, Ray itself ends this process after a minute."""

_NEEDED = (HEAD, "raylet")
"""The processes of a Ray without which it does not work."""


def ended_process() -> str:
    """Which needed process of the Ray that this process uses has ended; empty if none.

    Of a Ray that others started, or that still starts, this says nothing.
    """
    node = worker._global_node  # noqa: SLF001  # Ray has no public way to ask
    ended = [] if node is None else [kind for kind, _ in node.dead_processes()]
    return next((kind for kind in ended if kind in _NEEDED), "")


def ray_children() -> dict[int, tuple[str, bool]]:
    """This process's children that a Ray needs, of whatever Ray: name, and whether it has ended.

    One that has ended is a zombie, and found, until this process reads its exit status.
    """
    found = {}
    for pid in [int(path.name) for path in Path("/proc").glob("[0-9]*")]:
        one = process_stat(pid)
        if one is not None and one.parent == os.getpid() and one.name in _NEEDED:
            found[pid] = (one.name, one.state == "Z")
    return found


def ended_while_starting(earlier: Collection[int]) -> str:
    """As :func:`ended_process`, of a Ray that starts.

    Args:
        earlier: the children that a Ray needs from before it started, which belong to others.
    """
    children = ray_children().items()
    new = (name for pid, (name, ended) in children if ended and pid not in earlier)
    return ended_process() or next(new, "")


def died_while_starting(process: str) -> RunInterrupted:
    """The problem of a Ray whose process ended while it started, with its reason where it has one.

    Ray's logs are in a folder that is named after this process.
    """
    logs = sorted(Path(get_default_ray_temp_dir()).glob(f"session_*_{os.getpid()}/logs"))
    text = ""
    with suppress(OSError, IndexError):
        text = (logs[-1] / f"{process}.err").read_text(errors="replace")
    reason = re.search(r"Check failed: (.+)", text)
    why = f" ({reason[1].strip()[:200]})" if reason else ""
    restart = "; restart a program that called tune(): Ray ends it within a minute"
    return RunInterrupted(
        f"the Ray on this machine died: its process {process} ended while Ray started{why}; on a "
        f"busy machine try again, or use --fleet local{restart if process == HEAD else ''}"
    )


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
