"""The checkers: where they are, how they are called, and what their reports say.

A report is text from a process in which candidate code ran; it decides nothing but whether there is
a finding, and is shown to people.
"""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.device import Backend, Device

_PRINTED = 100
"""Errors that a tool writes down at most."""

_PLACES = "/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer"
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: .*?\((\d+) errors?)")
_NO_FINDING = re.compile(r"^(?:COMPUTE-SANITIZER|\s|$|.*SUMMARY|.*Error: process didn't terminate)")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_GAVE_UP = "OCLGRIND FATAL ERROR"
_AT = re.compile(r"At line (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One kind of check: the command that goes before the launcher's, and how to read its log.

    ``read`` returns what was found, or ``None`` where the log does not say that it ended.
    ``together``: it misses nothing where one process launches several candidates.
    """

    name: str
    command: tuple[str, ...]
    log: Path
    most_bytes: int
    read: Callable[[str], tuple[str, ...] | None]
    together: bool = False


def tools(device: Device, log: Path) -> tuple[Tool, ...]:
    """The checkers that this machine has for a device; each logs to ``log`` with its name added."""
    return _FOR[device.backend](device, log)


def missing(backend: Backend) -> str:
    """What to say where there is none."""
    return {
        "cuda": "winners were not examined for races and stray accesses: compute-sanitizer, which "
        "comes with the CUDA toolkit, is not installed",
        "opencl": "winners were not examined for races and stray accesses: oclgrind is not "
        "installed (`apt install oclgrind`)",
    }[backend]


def _compute_sanitizer(device: Device, log: Path) -> tuple[Tool, ...]:  # noqa: ARG001 (one signature)
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=_PLACES)
    if program is None:
        return ()
    fixed = ("--print-limit", str(_PRINTED), "--report-api-errors", "no", "--launch-timeout", "60")
    return tuple(
        Tool(
            name=name,
            command=(program, "--tool", name, *fixed, "--log-file", f"{log}.{name}"),
            log=Path(f"{log}.{name}"),
            most_bytes=8 << 20,
            read=read_compute_sanitizer,
            together=True,
        )
        for name in ("memcheck", "racecheck", "initcheck", "synccheck")
    )


def _oclgrind(device: Device, log: Path) -> tuple[Tool, ...]:
    program = shutil.which("oclgrind")
    if program is None or not device.is_cpu:
        return ()
    return (
        Tool(
            name="oclgrind",
            command=(
                *(program, "--data-races", "--uninitialized", "--max-errors", str(_PRINTED)),
                *("--max-wgsize", str(device.max_threads_per_block)),
                *("--local-mem-size", str(device.max_shared_bytes_per_block)),
                *("--log", f"{log}.oclgrind"),
            ),
            log=Path(f"{log}.oclgrind"),
            most_bytes=512 << 10,
            read=read_oclgrind,
        ),
    )


_FOR: Mapping[Backend, Callable[[Device, Path], tuple[Tool, ...]]] = {
    "cuda": _compute_sanitizer,
    "opencl": _oclgrind,
}


def read_compute_sanitizer(log: str) -> tuple[str, ...] | None:
    """Kinds of errors with their number and where the first of each is; warnings are left out."""
    found = list(_SUMMARY.finditer(log))
    if not found:
        return None
    if not any(int(count) for summary in found for count in summary.groups() if count):
        return ()
    lines = [line.removeprefix("=========").removeprefix(" ") for line in log.splitlines()]
    places: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if _NO_FINDING.match(line) or line.startswith("Warning"):
            continue
        kind = _ADDRESS.sub("…", line.strip())
        counts[kind] += 1
        places.setdefault(kind, following.strip() if following.startswith("    ") else "")
    return tuple(_told(kind, counts[kind], places[kind]) for kind in counts) or ("errors",)


def read_oclgrind(log: str) -> tuple[str, ...] | None:
    """Kinds of errors with their number and the line of the first of each.

    ``None`` where it found nothing before it met what it cannot interpret: no fault of the kernel.
    """
    places: dict[str, str] = {}
    counts: Counter[str] = Counter()
    kind = ""
    lines = iter(log.splitlines())
    gave_up = False
    for line in lines:
        if line.startswith(_GAVE_UP):
            gave_up = True
            next(lines, "")  # its reason, on a line of its own
        elif line and not line[0].isspace() and not line.startswith("Oclgrind: "):
            kind = re.sub(
                r"\s+at (?:global|local|private|constant) memory address …|…",
                "",
                _ADDRESS.sub("…", line),
            ).strip()
            counts[kind] += 1
        elif kind and kind not in places and (at := _AT.search(line)):
            places[kind] = f"at line {at[1]}"
    if gave_up and not counts:
        return None
    return tuple(_told(kind, counts[kind], places.get(kind, "")) for kind in counts)


def _told(kind: str, count: int, place: str) -> str:
    return f"{kind}{f' {place}' if place else ''}{f' ({count} times)' if count > 1 else ''}"
