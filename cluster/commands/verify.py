"""``verify``: confirm a run's claims again, from its exported sources alone."""

import json
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import typer

from cluster.cli.console import Show, display, say
from cluster.commands.results import (
    exported,
    is_over,
    is_running,
    result_of,
    result_view,
)
from cluster.fleets.local import choose
from cluster.interruptible import interrupt_noted
from tuner.candidate import Candidate
from tuner.engine.candidates import Candidates
from tuner.engine.progress import duration, seconds_left
from tuner.engine.work import BenchSetup, ConfirmWork, ExamineWork
from tuner.errors import EnvironmentProblem, NothingValid
from tuner.experiment.model import Experiment
from tuner.export.recheck import RULE, Recheck, outcome, recheck, wide_claim
from tuner.export.record import NAME, ExportRecord, RecordedVariant, read_record
from tuner.journal.facts import ConfirmationSampled
from tuner.plan import Plan
from tuner.printable import counted
from tuner.results.statistics import interval_text
from tuner.trial import Configuration, Rejected
from workers.bench.device_bench import DeviceBench
from workers.checkers.examination import tools
from workers.compilers.worker import CompileWorker
from workers.devices.discover import list_devices

_NAMED = 3
"""Unclear claims that the last message names; all are printed before."""


def verify(run_dir: Path, *, device: str | None, as_json: bool) -> None:
    """Measure the run's claims again, and print whether they hold.

    A run without a gain claims nothing, so nothing is measured.

    Raises:
        EnvironmentProblem: there is no run or no export, or the device is another one.
        NothingValid: the export was changed, or a claim fails.
    """
    view = result_view(run_dir)
    files = _exported(run_dir / "export")
    if not files:
        raise _without_export(run_dir)
    if changed := _changed(files, exported(run_dir)):
        if as_json:
            typer.echo(json.dumps({"run": str(run_dir), "holds": False, "changed": changed}))
        raise NothingValid(
            f"{run_dir / 'export'} differs from what this version exports: {', '.join(changed)}; "
            "it was changed, or another version wrote it; restore it with "
            f"`kernelwright export {run_dir}`"
        )
    record = read_record(files[NAME])
    if result_of(run_dir)[1].outcome == "no_gain":
        if as_json:
            told = {"run": str(run_dir), "outcome": "no_claims", "holds": True, "checks": []}
            typer.echo(json.dumps(told, indent=2))
        else:
            typer.echo("the run claims no gain, so there is nothing to measure again")
            typer.echo(f"kernelwright: outcome=no_claims run={run_dir}")
        return
    with display() as show:
        answers = _measured(view.experiment, record, files, device, show)
    checks = recheck(record, view.experiment.measure.cache, answers, view.experiment.objective)
    found = outcome(checks)
    counts = Counter(check.verdict for check in checks)
    if as_json:
        listed = [asdict(check) for check in checks]
        told = {"run": str(run_dir), "outcome": found, "holds": found == "holds", "checks": listed}
        typer.echo(json.dumps(told, indent=2))
    else:
        for check in checks:
            typer.echo(_line(check))
        for variant, reason in dict.fromkeys((c.variant, c.reason) for c in checks if c.reason):
            typer.echo(f"{variant} {reason}")
        typer.echo(RULE)
        figures = "".join(f" {verdict}={count}" for verdict, count in sorted(counts.items()))
        typer.echo(f"kernelwright: outcome={found}{figures} run={run_dir}")
    if undecided := [check for check in checks if check.verdict == "unclear"]:
        unclear = [f"{check.variant} on {check.shape}" for check in undecided]
        claims = ""
        if any(map(wide_claim, undecided)):
            claims = "; a claim that is wide itself needs a new run with more confirm.processes"
        more = [f"{len(unclear) - _NAMED} more"] if len(unclear) > _NAMED else []
        say(
            f"{len(unclear)} of {counted(len(checks), 'claim')} unclear "
            f"({'; '.join([*unclear[:_NAMED], *more])}): intervals too wide to decide; rerun on an "
            f"idle device{claims}"
        )
    if found == "fails":
        raise NothingValid(
            f"{counts['fails']} of {counted(len(checks), 'claim')} failed when measured again"
        )


def _exported(folder: Path) -> dict[str, str]:
    """The text of every exported file, by name.

    Raises:
        EnvironmentProblem: a file cannot be read.
    """
    try:
        return {
            str(path.relative_to(folder)): path.read_text(encoding="utf-8")
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(f"cannot read the export in {folder}: {error}") from None


def _without_export(run_dir: Path) -> EnvironmentProblem:
    """What to do about a run that has no export.

    Raises:
        NothingValid: it has finished, and there is nothing to export.
    """
    if is_running(run_dir):
        remedy = f"yet: wait until it ends, or stop it with `kernelwright stop {run_dir}`"
    elif is_over(run_dir):
        exported(run_dir)  # raises if there is nothing
        remedy = f"any more: write it again with `kernelwright export {run_dir}`"
    else:
        remedy = f"yet, since it has not ended: go on with `kernelwright resume {run_dir}`"
    return EnvironmentProblem(f"the run {run_dir} has no export {remedy}")


def _changed(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {'was changed' if name in found else 'is missing'}"
        for name, text in wanted.items()
        if found.get(name) != text
    ]


def _measured(
    experiment: Experiment,
    record: ExportRecord,
    files: Mapping[str, str],
    wanted: str | None,
    show: Show,
) -> list[ConfirmationSampled]:
    """The samples of each confirming process, and what checkers found.

    Raises:
        EnvironmentProblem: the claims are about another device.
        NothingValid: a source does not compile, or the baseline fails its checks.
        SystemExit: after a signal; a note says how many processes were measured.
    """
    backend = experiment.kernel.language
    model, indices = choose(list_devices((backend,)), backend, wanted)
    if model.model != record.device:
        raise EnvironmentProblem(
            f"the claims are about {record.device}, but this device is {model.model}: choose "
            "another with --device, or use a machine that has one"
        )
    show("measuring again: compiling the exported sources")
    answers: list[ConfirmationSampled] = []
    processes = experiment.confirm.processes
    lost = (
        f"of {counted(processes, 'process', 'processes')} had been measured again; none is kept: "
        "verify begins with the first again"
    )
    with (
        interrupt_noted(lambda: f"{len(answers)} {lost}"),
        CompileWorker(model) as compiler,
        closing(DeviceBench(backend, indices[0])) as bench,
    ):
        candidates = Candidates(experiment, model)
        baseline, *finalists = (
            _compiled(compiler, candidates, variant, variant.plan(experiment, files))
            for variant in record.variants
        )
        setup = BenchSetup(experiment=experiment, baseline=baseline, secret=secrets.randbits(63))
        show("measuring again: checking and timing the baseline")
        prepared = bench.prepare(setup)
        if isinstance(prepared.result, Rejected):
            raise NothingValid(f"the baseline was rejected: {prepared.result.detail}")
        began = time.monotonic()
        for process in range(processes):
            step = f"process {process + 1} of {processes}"
            show(f"measuring again: {step}{_left(began, process, processes)}")
            extra = () if process else tuple(candidate.trial for candidate in finalists)
            work = ConfirmWork(process=process, finalists=tuple(finalists), extra_checks=extra)
            answers.append(bench.confirm(work))
        if checkers := tools(model, Path()):
            checker = Path(checkers[0].command[0]).name
            show(f"measuring again: checking winners with {checker}")
        examined = bench.examine(ExamineWork(winners=tuple(finalists), profiler=False))
    checked = ConfirmationSampled(process=len(answers), samples=(), failed=examined.failed)
    return [*answers, checked]


def _left(began: float, done: int, processes: int) -> str:
    """The time left, by the pace of the processes so far."""
    left = seconds_left(time.monotonic() - began, [(done, processes - done)])
    return f", about {duration(left)} left" if left else ""


def _compiled(
    compiler: CompileWorker, candidates: Candidates, variant: RecordedVariant, plan: Plan
) -> Candidate:
    begun = candidates.begin_plan(variant.trial, Configuration.of(variant.configuration), plan)
    made = candidates.compile_now(compiler.compile, begun)
    if isinstance(made, Rejected):
        raise NothingValid(f"{variant.file} cannot be used: {made.detail}")
    return made


def _line(check: Recheck) -> str:
    claim = check.claimed
    claimed = f"claimed {interval_text(claim.speedup, claim.low, claim.high)}"
    seen = f", measured {check.measured}" if check.measured else ""
    return f"{check.variant}, {check.shape}: {claimed}{seen}: {check.verdict}"
