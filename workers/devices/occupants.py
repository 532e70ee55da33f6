"""Processes of other users on a device, which leave it to them.

Knows no vendor's library: an adapter lists the processes (:mod:`workers.backends.port`).
"""

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROCESSES = Path("/proc")

_HOST = "pid:[4026531836]"
"""The first namespace of processes, whose ids the driver lists; a container has another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """A process of another user that has memory or work on a device."""

    pid: int
    user: str
    command: str

    def __str__(self) -> str:
        return f"{self.user} (process {self.pid}, {self.command})"


def of_other_users(pids: Iterable[int], processes: Path = PROCESSES) -> tuple[Occupant, ...]:
    """Those of these processes that belong to another user.

    None in a container, where the driver's ids mean other processes, and none that are hidden.
    """
    own, found = os.getuid(), list[Occupant]()
    if _namespace(processes) != _HOST:
        return ()
    for pid in sorted(pids):
        try:
            # Not the folder's owner, which is root for a process that forbids core dumps.
            status = (processes / str(pid) / "status").read_text(errors="replace")
        except OSError:
            continue
        fields = dict(line.partition(":")[::2] for line in status.splitlines())
        user = fields.get("Uid", "").split()
        if user and int(user[0]) != own:
            name = fields.get("Name", "").strip()
            found.append(Occupant(pid=pid, user=_name(int(user[0])), command=name))
    return tuple(found)


def _namespace(processes: Path) -> str:
    try:
        return str((processes / "self" / "ns" / "pid").readlink())
    except OSError:
        return ""


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
