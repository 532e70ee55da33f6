"""Runs candidates under every checker of this machine, and under a profiler.

Runs while no bench child holds the device. A tool that supports it runs all candidates in one
process, and each of several alone only if it reports anything there. A finding is the candidate's
defect. A tool that hangs, fails or is missing gives a note, never a rejection.
"""

import os
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
from workers.backends.registry import adapter_of
from workers.checkers.job import Job, job_format
from workers.checkers.tool import Tool
from workers.checkers.watched import Launchers
from workers.devices.staging import buffer_bytes, staged

_MAX_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where and on what candidates are launched under a tool.

    ``arguments`` are by shape, ``timed`` are those that are timed; ``contents`` gives the paths of
    a shape's inputs, or ``None`` where there are none. ``launchers`` are the device's.
    """

    device: Device
    arguments: Mapping[int, Sequence[ResolvedArgument]]
    timed: Collection[int]
    contents: Callable[[int], Mapping[str, str] | None]
    launchers: Launchers


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
    passed: Counter[str] = Counter()
    with TemporaryDirectory(dir=site.launchers.folder) as made:
        place = Path(made)
        kinds = tools(site.device, place / "all")
        if candidates and not kinds:
            notes.append(
                "winners were not examined for races and stray accesses: `kernelwright doctor` "
                "says what to install"
            )
        alone = len(candidates) == 1
        served = {kind.name: [c for c in candidates if not _lack(kind, c)] for kind in kinds}
        notes += [note for kind in kinds if (note := _lacking(kind, candidates))]
        groups = [
            (served[kind.name], kind)
            for kind in kinds
            if served[kind.name] and (kind.together or alone)
        ]
        answers = _checked(groups, site)
        if not alone:
            content = sorted(tool.name for _, tool, said in answers if said is None)
            passed.update({name: len(served[name]) for name in content})
            each = [
                ((candidate,), tool)
                for candidate in candidates
                for tool in tools(site.device, place / str(candidate.trial))
                if tool.name not in content and candidate in served[tool.name]
            ]
            answers = _checked(each, site)
        for (candidate, *_), tool, said in answers:
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


def tools_for(candidates: Sequence[Candidate], device: Device, log: Path) -> tuple[Tool, ...]:
    """The checkers that may have something to check in one of the candidates."""
    found = tools(device, log)
    return tuple(tool for tool in found if not all(_lack(tool, one) for one in candidates))


def _lack(tool: Tool, candidate: Candidate) -> str:
    """What a candidate lacks of what the tool checks, on every shape; empty if it may have it."""
    lacks = [
        tool.lacks(candidate.binaries[cell.build], cell.steps)
        for cell in candidate.plan.cells
        if isinstance(cell, CellPlan)
    ]
    return lacks[0] if lacks and all(lacks) else ""


def _lacking(tool: Tool, candidates: Sequence[Candidate]) -> str:
    """A note on the candidates in which a tool has nothing to check; empty if there are none."""
    lacks = [lack for candidate in candidates if (lack := _lack(tool, candidate))]
    if not lacks:
        return ""
    return (
        f"{tool.name} has nothing to check in {len(lacks)} of the winners' {len(candidates)} "
        f"kernels: {lacks[0]}"
    )


def _profile(candidate: Candidate, site: Site) -> Profile | str | None:
    """Counters of one launch on the largest of the site's shapes, or why there are none.

    ``None`` where the backend has no profiler.
    """
    open_profiler = adapter_of(site.device.backend).profiler
    if open_profiler is None:
        return None
    with TemporaryDirectory(dir=site.launchers.folder) as made:
        profiler = open_profiler(Path(made, "profile"))
        if isinstance(profiler, str):
            return profiler
        tool = profiler.tool
        jobs = _jobs([candidate], tool, site)
        if isinstance(jobs, str):
            return jobs
        ran = site.launchers.launch(tool, [path for _, path in jobs])
    counters = profiler.counters(ran.log or "")
    if isinstance(counters, str):
        return f"{tool.name} read no counters: {counters or ran.problem}"
    return Profile(trial=candidate.trial, shape=jobs[0][0], counters=counters)


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
    ran = site.launchers.launch(tool, [path for _, path in jobs])
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
        shape: buffer_bytes(arguments)
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
        job = Job(
            build=candidate.plan.builds[cell.build],
            code=str(code),
            symbols=binary.symbols,
            cell=replace(cell, build=0),
            arguments=tuple(staged(site.arguments[shape], contents)),
        )
        path = code.with_suffix(".json")
        path.write_bytes(job_format().dump_json(job))
        return shape, path
    return None
