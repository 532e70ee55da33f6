"""Candidates under every checker of this machine, each in processes of its own.

Runs while no bench child holds the device. A finding is the candidate's defect; a tool that hangs,
fails or is not there is a note, never a verdict.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.device import Device
from tuner.fleet import Candidate
from tuner.plan import CellPlan
from tuner.spec.resolve import ResolvedArgument
from tuner.trial import Code, Rejected, Stage
from workers.bench.stand import staged
from workers.devices.port import StagedBuffer, StagedNull, StagedScalar
from workers.process import module_environment
from workers.sanitizers.job import JOB, Job
from workers.sanitizers.tools import Tool, missing, tools

SECONDS = 90.0
"""A checker is stopped after this, and nothing follows from it."""

_POLL_SECONDS = 0.05
_FIRST_WORDS = 300


Shapes = Mapping[int, tuple[Sequence[ResolvedArgument], Mapping[str, str]]]
"""Arguments, and the paths of their contents, by number of cell."""


def examine(
    candidates: Sequence[Candidate],
    device: Device,
    index: int,
    shapes: Shapes,
    folder: Path,
    abort: threading.Event,
) -> tuple[dict[int, Rejected], tuple[str, ...]]:
    """The first defect of each candidate that has one, and notes on what could not be checked.

    Args:
        candidates: compiled.
        device: the model.
        index: which device, as for :func:`workers.devices.discover.open_device`.
        shapes: a tool takes the largest that it can handle.
        folder: for scratch files.
        abort: set to end the checkers.
    """
    defects: dict[int, Rejected] = {}
    notes: list[str] = []
    with TemporaryDirectory(dir=folder) as made:
        place = Path(made)
        jobs = [
            (candidate, tool)
            for candidate in candidates
            for tool in tools(device, place / str(candidate.trial))
        ]
        if candidates and not jobs:
            notes.append(missing(device.backend))
        workers = max(1, len(os.sched_getaffinity(0)) // 2)
        with ThreadPoolExecutor(max_workers=workers) as pool:
            answers = pool.map(
                lambda job: _checked(job[0], job[1], device, index, shapes, place, abort), jobs
            )
        for (candidate, _), answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Rejected):
                defects.setdefault(candidate.trial, answer)
            elif answer is not None:
                notes.append(answer)
    return defects, tuple(dict.fromkeys(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A tool's log of one launch, ``None`` where it wrote none, and how it failed, if it did."""

    shape: int
    log: str | None
    problem: str


def launched(
    candidate: Candidate,
    tool: Tool,
    device: Device,
    index: int,
    shapes: Shapes,
    place: Path,
    abort: threading.Event,
) -> Launched | str:
    """Launch a candidate once under a tool; or say why it cannot be.

    ``place`` is a folder for the launch's own files. The other arguments are those of
    :func:`examine`.
    """
    shape = _largest(candidate, shapes, tool.most_bytes)
    if shape is None:
        return f"{tool.name}: no shape is small enough for it"
    cell = candidate.plan.cells[shape]
    assert isinstance(cell, CellPlan)
    binary = candidate.binaries[cell.build]
    code = place / f"{candidate.trial}.{tool.name}.code"
    code.write_bytes(binary.code)
    arguments = staged(*shapes[shape])
    job = Job(
        backend=device.backend,
        index=index,
        build=candidate.plan.builds[cell.build],
        code=str(code),
        symbols=binary.symbols,
        cell=replace(cell, build=0),
        buffers=tuple(a for a in arguments if isinstance(a, StagedBuffer)),
        scalars=tuple(a for a in arguments if isinstance(a, StagedScalar)),
        nulls=tuple(a for a in arguments if isinstance(a, StagedNull)),
    )
    path = code.with_suffix(".json")
    path.write_bytes(JOB.dump_json(job))
    ending, words = _watched(tool, path, abort)
    log = tool.log.read_text(errors="replace") if tool.log.exists() else None
    return Launched(shape=shape, log=log, problem=f"{ending}{words}" if ending else "")


def _checked(
    candidate: Candidate,
    tool: Tool,
    device: Device,
    index: int,
    shapes: Shapes,
    place: Path,
    abort: threading.Event,
) -> Rejected | str | None:
    ran = launched(candidate, tool, device, index, shapes, place, abort)
    if isinstance(ran, str):
        return ran
    said = tool.read(ran.log or "")
    if said:
        detail = f"{tool.name}: {'; '.join(said)}"
        return Rejected(stage=Stage.VERIFY, code=Code.DEFECT, detail=detail)
    if said is None or ran.problem:
        problem = ran.problem or "it wrote no report"
        return f"{tool.name} could not check trial {candidate.trial}: {problem}"
    return None


def _largest(candidate: Candidate, shapes: Shapes, most: int) -> int | None:
    cells = candidate.plan.cells
    sizes = {
        shape: sum(a.size for a in arguments if a.is_buffer)
        for shape, (arguments, _) in shapes.items()
        if shape < len(cells) and isinstance(cells[shape], CellPlan)
    }
    return max(
        (s for s, size in sizes.items() if size <= most), key=sizes.__getitem__, default=None
    )


def _watched(tool: Tool, job: Path, abort: threading.Event) -> tuple[str, str]:
    """Run the launcher under the tool; how it ended if not well, and its last words."""
    environment = module_environment(os.environ)
    environment |= {"PYOPENCL_NO_CACHE": "1", "XDG_CACHE_HOME": str(job.parent)}
    launcher = (sys.executable, "-P", "-m", "workers.sanitizers.launcher", str(job))
    output = job.with_suffix(".out")
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [*tool.command, *launcher],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
    ends = time.monotonic() + SECONDS
    try:
        while process.poll() is None and time.monotonic() < ends and not abort.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)
        code = process.poll()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = output.read_text(errors="replace").strip().splitlines()
    words = f": {lines[-1][:_FIRST_WORDS]}" if lines else ""
    if code is None:
        return f"stopped after {SECONDS:.0f} s", words
    return ("" if code == 0 else f"exit {code}"), words
