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
    return _stat(Path(f"/proc/{pid}/stat"))


def running_threads(pid: int) -> set[int]:
    """The threads of a process that run, or would if a processor were free; none if it is gone."""
    found = {path: _stat(path) for path in Path(f"/proc/{pid}/task").glob("*/stat")}
    return {int(path.parent.name) for path, stat in found.items() if stat and stat.state == "R"}


def _stat(path: Path) -> ProcessStat | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent, *fields = rest.split()
    return ProcessStat(name, state, int(parent), int(fields[17]))
