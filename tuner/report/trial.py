"""Everything that a run knows of one trial, as data and as text for 80 columns.

A pure function of the journal. What the compiler says of the binaries is not journalled: the caller
adds it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean, median

from tuner.candidate import BASELINE
from tuner.experiment.objective import ENERGY_SHARE
from tuner.journal.facts import (
    ConfirmationSampled,
    Entry,
    Profile,
    Sample,
    TrialCompiled,
    TrialFinished,
    WinnersExamined,
    WorkLost,
)
from tuner.journal.history import History
from tuner.journal.timeline import spans
from tuner.plan import Binary, CellPlan, KernelStep, MemsetStep, Plan, Step, Usage
from tuner.printable import counted
from tuner.report.text import cost_text, labelled, time_text
from tuner.report.wrapping import hanging
from tuner.space.lower import lower
from tuner.trial import Cell, CutShort, Full, Infeasible, Measured, Rejected, Value

_USAGE = (
    ("registers", "registers"),
    ("spill_bytes", "bytes spilled"),
    ("stack_bytes", "bytes of stack"),
    ("static_shared_bytes", "bytes of static shared memory"),
    ("max_threads_per_block", "threads per block at most"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Medians over confirming processes on one shape; ``speedup`` is the mean, as in the report."""

    shape: str
    cache: str
    median_ns: float
    baseline_ns: float
    speedup: float
    processes: int
    serialised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """A worker was busy with the trial, ``began`` seconds after the run was begun."""

    task: str
    worker: str
    began: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One trial of a run.

    ``outcome`` is ``measured``, ``rejected``, ``abandoned`` or ``open``; ``rejected`` says why the
    trial failed, also where it failed only when it was confirmed. ``shapes`` are the tune shapes in
    the order of ``cells`` and of the plan's. ``plan`` is ``None`` if the run has no device yet.
    """

    number: int
    configuration: Mapping[str, Value]
    digest: str
    outcome: str
    same_as: int | None
    current: bool
    shapes: tuple[str, ...]
    plan: Plan | None
    cells: tuple[Cell, ...]
    rejected: Rejected | None
    confirmed: tuple[Confirmed, ...]
    profiles: tuple[Profile, ...]
    work: tuple[WorkDone, ...]
    lost: tuple[WorkLost, ...]


def trial_record(history: History, entries: Sequence[Entry], number: int) -> TrialRecord:
    """The record of a trial that the history has; ``entries`` are the same journal's."""
    trial, experiment = history.trials[number], history.experiment
    template, device = history.template(number), history.device
    outcome = trial.outcome
    plan = None
    if device is not None:
        tune = experiment.shapes.tune
        plan = lower(experiment, template, trial.configuration, tune, device)
    facts = [entry.fact for entry in entries]
    examined = [fact for fact in facts if isinstance(fact, WinnersExamined)]
    return TrialRecord(
        number=number,
        configuration=trial.configuration.as_dict(),
        digest=trial.configuration.digest,
        outcome=outcome.kind if outcome else "abandoned" if trial.abandoned else "open",
        same_as=trial.same_as,
        current=trial.current,
        shapes=tuple(map(str, experiment.shapes.tune)),
        plan=plan,
        cells=outcome.cells if isinstance(outcome, Measured) else (),
        rejected=outcome if isinstance(outcome, Rejected) else history.failed_later.get(number),
        confirmed=tuple(_confirmed(history, number)),
        profiles=tuple(p for fact in examined for p in fact.profiles if p.trial == number),
        work=tuple(_work(entries, number)),
        lost=tuple(f for f in facts if isinstance(f, WorkLost) and number in f.trials),
    )


def _confirmed(history: History, number: int) -> Iterator[Confirmed]:
    shapes = (*history.experiment.shapes.tune, *history.experiment.shapes.held_out)
    share = ENERGY_SHARE[history.experiment.objective]
    pairs: dict[tuple[str, bool, int], list[tuple[Sample, Sample]]] = {}
    for fact in history.confirmations:
        baseline = {(s.shape, s.cache): s for s in fact.samples if s.trial == BASELINE}
        for one in fact.samples:
            if one.trial == number and (place := (one.shape, one.cache)) in baseline:
                key = (one.cache, one.serialised, one.shape)
                pairs.setdefault(key, []).append((one, baseline[place]))
    for (cache, serialised, shape), taken in sorted(pairs.items(), key=lambda pair: pair[0]):
        costs = [(own.cost(share), base.cost(share)) for own, base in taken]
        yield Confirmed(
            shape=str(shapes[shape]),
            cache=cache,
            median_ns=median(own.median_ns for own, _ in taken),
            baseline_ns=median(base.median_ns for _, base in taken),
            speedup=geometric_mean(base / own for own, base in costs if own and base),
            processes=len(taken),
            serialised=serialised,
        )


def _work(entries: Sequence[Entry], number: int) -> Iterator[WorkDone]:
    start = entries[0].at - entries[0].t if entries else 0.0
    for entry in entries:
        match entry.fact:
            case TrialCompiled() | TrialFinished() as fact:
                concerns = fact.trial == number
            case ConfirmationSampled() as fact:
                tried = {s.trial for s in fact.samples} | {trial for trial, _ in fact.failed}
                concerns = number in tried
            case WinnersExamined() as fact:
                concerns = number in fact.trials
            case _:
                continue
        if concerns:
            for task, span in spans([fact]):
                yield WorkDone(
                    task=task,
                    worker=span.worker,
                    began=round(span.began - start, 3),
                    seconds=round(span.seconds, 3),
                )


def record_json(record: TrialRecord, binaries: Sequence[Binary] = ()) -> dict[str, object]:
    """The record as JSON data, with the usage of each of the plan's ``binaries``; no source."""
    plain = asdict(record)
    if record.plan is not None:
        builds: list[dict[str, object]] = [
            {"digest": b.digest, "defines": dict(b.defines), "options": list(b.options)}
            for b in record.plan.builds
        ]
        for build, binary in zip(builds, binaries, strict=False):
            build["compile_seconds"] = binary.compile_seconds
            build["usage"] = {entry: asdict(usage) for entry, usage in binary.usage}
        plain["plan"] = {
            "builds": builds,
            "cells": [asdict(cell) for cell in record.plan.cells],
        }
    return plain


def record_text(record: TrialRecord, width: int, binaries: Sequence[Binary] = ()) -> str:
    """The record in lines of ``width`` columns, with the usage of the plan's ``binaries``."""
    rows = [
        ("trial", f"{record.number}, {record.outcome}{_remarks(record)}"),
        ("parameters", " ".join(f"{n}={v}" for n, v in record.configuration.items()) or "none"),
        ("digest", record.digest),
    ]
    if record.rejected is not None:
        rows.append(("rejected", _reason(record, record.rejected)))
    if record.plan is not None:
        rows += _builds(record.plan, binaries)
    parts = [labelled(width, *row) for row in rows]
    for title, lines in (
        ("shapes", _shapes(record)),
        ("confirmed", map(_confirmed_line, record.confirmed)),
        ("counters", map(_counters, record.profiles)),
        ("work", [*map(_work_line, record.work), *map(_lost_line, record.lost)]),
    ):
        if body := "\n".join(f"  {line}" for line in lines):
            parts.append(f"\n{title}\n{hanging(body, width)}")
    return "\n".join(parts)


def _remarks(record: TrialRecord) -> str:
    same = "" if record.same_as is None else f"; same code and launches as trial {record.same_as}"
    return same + ("" if record.current else "; measured in an earlier environment")


def _reason(record: TrialRecord, why: Rejected) -> str:
    where = "" if why.shape is None else f" on {record.shapes[why.shape]}"
    later = "" if record.outcome == "rejected" else " after it was measured"
    return f"{why.stage}, {why.code}{where}{later}: {why.detail}"


def _builds(plan: Plan, binaries: Sequence[Binary]) -> Iterator[tuple[str, str]]:
    for number, build in enumerate(plan.builds):
        label = "build" if len(plan.builds) == 1 else f"build {number}"
        defines = " ".join(f"-D{name}={value}" for name, value in build.defines)
        yield label, " ".join([build.file, defines, *build.options])
        for binary in binaries[number : number + 1]:
            for entry, usage in binary.usage:
                yield "  usage", f"{entry}: {_usage(usage)}"


def _usage(usage: Usage) -> str:
    known = [
        f"{value} {words}" for name, words in _USAGE if (value := getattr(usage, name)) is not None
    ]
    mix = ", ".join(f"{count} {kind}" for kind, count in usage.mix)
    return ", ".join(known) + (f"; instructions: {mix}" if mix else "") or "not reported"


def _shapes(record: TrialRecord) -> Iterator[str]:
    planned = record.plan.cells if record.plan else ()
    for number, shape in enumerate(record.shapes):
        launch = planned[number] if planned else None
        cell = record.cells[number] if record.cells else None
        if isinstance(launch, Infeasible):
            yield f"{shape}: infeasible: {launch.reason}"
            continue
        yield f"{shape}: {_cell(cell)}"
        if isinstance(launch, CellPlan):
            build = f"build {launch.build}: " if record.plan and record.plan.builds[1:] else ""
            yield f"  {build}{'; '.join(map(_step, launch.steps))}"


def _cell(cell: Cell | None) -> str:
    match cell:
        case Full():
            energy = cell.energy
            took = cost_text(cell.median_ns, energy.millijoules if energy else None)
            baseline = cost_text(cell.baseline_ns, energy.baseline_mj if energy else None)
            return (
                f"{took} ± {time_text(cell.mad_ns)}, baseline {baseline}, "
                f"{1 / cell.ratio:.3f}× ({counted(cell.samples, 'timing')})"
            )
        case CutShort():
            return (
                f"cut short after {counted(cell.samples, 'timing')}: clearly slower than the best"
            )
        case Infeasible():
            return f"infeasible: {cell.reason}"
        case None:
            return "not timed"


def _step(step: Step) -> str:
    if isinstance(step, MemsetStep):
        return f"memset {step.argument} to {step.byte}"
    return f"{step.entry}, grid {_axes(step.grid)}, block {_axes(step.block)}{_features(step)}"


def _features(step: KernelStep) -> str:
    parts = (
        [f"{counted(step.shared_bytes, 'byte')} of dynamic shared memory"]
        if step.shared_bytes
        else []
    )
    parts += ["cooperative"] if step.cooperative else []
    parts += ["dependent"] if step.dependent else []
    parts += [f"cluster {_axes(step.cluster)}"] if step.cluster != (1, 1, 1) else []
    return "".join(f", {part}" for part in parts)


def _axes(axes: Sequence[int]) -> str:
    return "×".join(map(str, axes))


def _confirmed_line(one: Confirmed) -> str:
    plainly = ", launched plainly" if one.serialised else ""
    processes = counted(one.processes, "process", "processes")
    return (
        f"{one.shape}, {one.cache}{plainly}: {time_text(one.median_ns)}, baseline "
        f"{time_text(one.baseline_ns)}, {one.speedup:.3f}× ({processes})"
    )


def _counters(profile: Profile) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in profile.counters)


def _work_line(one: WorkDone) -> str:
    return f"{one.task} on {one.worker}: {one.seconds:.2f} s, {one.began:.1f} s into the run"


def _lost_line(one: WorkLost) -> str:
    final = ", not sent again" if one.final else ""
    return f"{one.task} on {one.worker} lost (attempt {one.attempt}{final}): {one.reason}"
