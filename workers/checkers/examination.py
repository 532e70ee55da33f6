"""Runs candidates under every checker of this machine, and under a profiler.

Runs while no bench child holds the device. A tool that supports it runs all candidates in one
process, and each alone only if it reports anything there. A finding is the candidate's defect. A
tool that hangs, fails or is missing gives a note, never a rejection.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.candidate import Candidate
from tuner.device import Device
from tuner.experiment.arguments import ResolvedArgument
from tuner.journal.facts import Profile, WinnersExamined
from tuner.plan import CellPlan
from tuner.trial import Code, Rejected, Stage
from workers.backends.registry import adapter_of, module_of
from workers.checkers.job import Job, encode_job
from workers.checkers.tool import Tool
from workers.child_environment import module_environment, private_environment
from workers.devices.port import StagedBuffer, StagedNull, StagedValue
from workers.devices.staging import staged
from workers.process_tree import kill_group, kill_tagged, tree_tag

SECONDS = 90.0
"""A checker is stopped after this, which gives a note."""

_POLL_SECONDS = 0.05
_MAX_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where and on what candidates are launched under a tool.

    ``index`` is the device's. ``arguments`` are by shape, ``timed`` are those that are timed;
    ``contents`` gives the paths of a shape's
    inputs, or ``None`` where there are none. Scratch files go to ``folder``; ``abort`` ends the
    tools.
    """

    device: Device
    index: int
    arguments: Mapping[int, Sequence[ResolvedArgument]]
    timed: Collection[int]
    contents: Callable[[int], Mapping[str, str] | None]
    folder: Path
    abort: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A tool's log of one process, ``None`` where it wrote none, and how it failed, if it did.

    ``shape`` is the first candidate's.
    """

    shape: int
    log: str | None
    problem: str


def tools(device: Device, log: Path) -> tuple[Tool, ...]:
    """The checkers that this machine has for a device; each logs to ``log`` with its name added."""
    return adapter_of(device.backend).checkers(device, log)


def examine(
    winners: Sequence[Candidate], site: Site, *, checkers: bool, profiler: bool
) -> WinnersExamined:
    """What the checkers find, and counters of the first winner that is sound on a timed shape."""
    failed, notes = _defects(winners, site) if checkers else ({}, ())
    sound = [one for one in winners if one.trial not in failed]
    timed = {shape: one for shape, one in site.arguments.items() if shape in site.timed}
    found = _profile(sound[0], replace(site, arguments=timed)) if sound and profiler else None
    return WinnersExamined(
        trials=tuple(one.trial for one in winners),
        failed=tuple(failed.items()),
        notes=(*notes, found) if isinstance(found, str) else notes,
        profiles=(found,) if isinstance(found, Profile) else (),
    )


def _defects(
    candidates: Sequence[Candidate], site: Site
) -> tuple[dict[int, Rejected], tuple[str, ...]]:
    """The first defect of each candidate that has one, and notes on what was checked."""
    defects: dict[int, Rejected] = {}
    notes: list[str] = []
    with TemporaryDirectory(dir=site.folder) as made:
        place = Path(made)
        kinds = tools(site.device, place / "all")
        if candidates and not kinds:
            notes.append(
                "winners were not examined for races and stray accesses: `kernelwright doctor` "
                "says what to install"
            )
        together = [(candidates, kind) for kind in kinds if kind.together and len(candidates) > 1]
        content = {tool.name for _, tool, said in _checked(together, site) if said is None}
        passed = Counter({name: len(candidates) for name in sorted(content)})
        alone = [
            ((candidate,), tool)
            for candidate in candidates
            for tool in tools(site.device, place / str(candidate.trial))
            if tool.name not in content
        ]
        for (candidate, *_), tool, said in _checked(alone, site):
            if said is None:
                passed[tool.name] += 1
            elif isinstance(said, Rejected):
                defects.setdefault(candidate.trial, said)
            else:
                notes.append(said)
    by_count: dict[int, list[str]] = {}
    for name, count in passed.items():
        by_count.setdefault(count, []).append(name)
    notes += [
        f"{', '.join(names)} found nothing in {count} of the winners' {len(candidates)} kernels"
        for count, names in by_count.items()
    ]
    return defects, tuple(dict.fromkeys(notes))


def _profile(candidate: Candidate, site: Site) -> Profile | str | None:
    """Counters of one launch on the largest of the site's shapes, or why there are none.

    ``None`` where the backend has no profiler.
    """
    open_profiler = adapter_of(site.device.backend).profiler
    if open_profiler is None:
        return None
    with TemporaryDirectory(dir=site.folder) as made:
        profiler = open_profiler(Path(made, "profile"))
        if isinstance(profiler, str):
            return profiler
        tool = profiler.tool
        jobs = _jobs([candidate], tool, site)
        if isinstance(jobs, str):
            return jobs
        ran = _launched(jobs, tool, site)
    counters = profiler.counters(ran.log or "")
    if isinstance(counters, str):
        return f"{tool.name} read no counters: {counters or ran.problem}"
    return Profile(trial=candidate.trial, shape=ran.shape, counters=counters)


_Jobs = list[tuple[int, Path]]
"""Shapes, and the files of their jobs."""


def _checked(
    groups: Sequence[tuple[Sequence[Candidate], Tool]], site: Site
) -> list[tuple[Sequence[Candidate], Tool, Rejected | str | None]]:
    """The result of each tool for its group: a defect, a note, or ``None``."""
    jobs = [(group, tool, _jobs(group, tool, site)) for group, tool in groups]
    with ThreadPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)) // 2)) as pool:
        answers = pool.map(lambda job: _verdict(job[0], job[1], job[2], site), jobs)
        return [(group, tool, said) for (group, tool, _), said in zip(jobs, answers, strict=True)]


def _verdict(
    candidates: Sequence[Candidate], tool: Tool, jobs: _Jobs | str, site: Site
) -> Rejected | str | None:
    if isinstance(jobs, str):
        return jobs
    ran = _launched(jobs, tool, site)
    said = tool.read(ran.log or "")
    if said:
        detail = f"{tool.name}: {'; '.join(said)}"
        return Rejected(stage=Stage.VERIFY, code=Code.DEFECT, detail=detail)
    if said is None or ran.problem:
        words = (ran.log or "").strip().splitlines()[-1:]
        problem = ran.problem or (words[0][:_MAX_CHARACTERS] if words else "it wrote no report")
        return f"{tool.name} could not check trial {candidates[0].trial}: {problem}"
    return None


def _jobs(candidates: Sequence[Candidate], tool: Tool, site: Site) -> _Jobs | str:
    jobs = [job for candidate in candidates if (job := _job(candidate, tool, site)) is not None]
    if len(jobs) < len(candidates):
        return (
            f"{tool.name} examined nothing: no shape that all winners serve is within "
            f"{tool.most_bytes >> 10} KiB, the most it can take; a small one in shapes.held_out "
            "would do"
        )
    return jobs


def _job(candidate: Candidate, tool: Tool, site: Site) -> tuple[int, Path] | None:
    """A launch on the largest shape that the tool can handle."""
    cells = candidate.plan.cells
    sizes = {
        shape: sum(a.size for a in arguments if a.is_buffer)
        for shape, arguments in site.arguments.items()
        if shape < len(cells) and isinstance(cells[shape], CellPlan)
    }
    fitting = [shape for shape, size in sizes.items() if size <= tool.most_bytes]
    for shape in sorted(fitting, key=sizes.__getitem__, reverse=True):
        contents = site.contents(shape)
        cell = cells[shape]
        if contents is None or not isinstance(cell, CellPlan):
            continue
        binary = candidate.binaries[cell.build]
        code = tool.log.with_name(f"{tool.log.name}.{candidate.trial}.code")
        code.write_bytes(binary.code)
        arguments = staged(site.arguments[shape], contents)
        job = Job(
            adapter=module_of(site.device.backend),
            index=site.index,
            build=candidate.plan.builds[cell.build],
            code=str(code),
            symbols=binary.symbols,
            cell=replace(cell, build=0),
            buffers=tuple(a for a in arguments if isinstance(a, StagedBuffer)),
            values=tuple(a for a in arguments if isinstance(a, StagedValue)),
            nulls=tuple(a for a in arguments if isinstance(a, StagedNull)),
        )
        path = code.with_suffix(".json")
        path.write_bytes(encode_job(job))
        return shape, path
    return None


def _launched(jobs: _Jobs, tool: Tool, site: Site) -> Launched:
    """Run the launcher under the tool."""
    files = [str(path) for _, path in jobs]
    mark = tree_tag()
    environment = module_environment(os.environ) | mark
    environment |= private_environment(site.device.backend, tool.log.parent)
    environment["XDG_CACHE_HOME"] = str(tool.log.parent)
    launcher = (sys.executable, "-P", "-m", "workers.checkers.launcher", *files)
    output = tool.log.with_name(f"{tool.log.name}.out")
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
        while process.poll() is None and time.monotonic() < ends and not site.abort.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)
        code = process.poll()
    finally:
        kill_group(process.pid)
        process.wait()
        kill_tagged(mark)
    problem = ""
    if code != 0:
        lines = output.read_text(errors="replace").strip().splitlines()
        ending = f"stopped after {SECONDS:.0f} s" if code is None else f"exit {code}"
        problem = ": ".join([ending, *(line[:_MAX_CHARACTERS] for line in lines[-1:])])
    log = tool.log.read_text(errors="replace") if tool.log.exists() else None
    return Launched(shape=jobs[0][0], log=log, problem=problem)
