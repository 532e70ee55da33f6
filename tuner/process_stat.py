"""What the kernel tells of a process in ``/proc/PID/stat`` (``proc_pid_stat(5)``)."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """A process.

    ``state`` is one letter: ``T`` of one that is stopped, ``Z`` or ``X`` of one that has ended. It
    ``started`` so many clock ticks after boot.
    """

    name: str
    state: str
    parent: int
    started: int


def process_stat(pid: int) -> ProcessStat | None:
    """What is known of a process; ``None`` if there is none of this number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent, *fields = rest.split()
    return ProcessStat(name, state, int(parent), int(fields[17]))
