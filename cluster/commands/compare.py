"""``compare``: what one run exports against what another does, shape by shape."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import typer

from cluster.cli.console import say
from cluster.commands.results import history_of, is_over, result_view
from tuner.errors import EnvironmentProblem, NothingValid, SpecError
from tuner.experiment.objective import COSTS, Objective
from tuner.journal.history import History
from tuner.report.text import aligned, cost_text
from tuner.report.wrapping import hanging, terminal_width
from tuner.results.run_comparison import By, Exported, RunComparison, compare_runs
from tuner.results.verdict import objective_text

_FAILING = {"slower": ("slower",), "unclear": ("slower", "unclear", "not timed")}
"""The verdicts, on a shape or over all, at which each value of ``--fail-if`` fails."""


def compare(
    first: Path,
    second: Path,
    *,
    any_device: bool,
    fail_if: str | None,
    as_json: bool,
) -> None:
    """Print for each shape whether the second run's kernels are faster than the first's.

    Raises:
        SpecError: the runs have no shape in common, minimised different objectives, or measured in
            different cache states.
        EnvironmentProblem: they are of different devices.
        NothingValid: a run has confirmed nothing; or ``fail_if`` applies.
    """
    histories = [_finished(run) for run in (first, second)]
    found = compare_runs(*histories)
    if not found.shapes:
        raise SpecError(f"{first} and {second} have no shape in common: name runs of one kernel")
    _check_comparable(*histories, any_device=any_device)
    for run in dict.fromkeys((first, second)):
        if not is_over(run):
            again = f"compare again when it has (`kernelwright status {run}`)"
            missing = "shapes may be missing and verdicts may change"
            say(f"{run} has not ended, so {missing}: {again}")
    counts = Counter(
        one.comparison.verdict if one.comparison else "not timed" for one in found.shapes
    )
    if as_json:
        runs = {"first": str(first), "second": str(second)}
        typer.echo(json.dumps({**runs, **asdict(found)}, indent=2))
    else:
        objective = histories[0].experiment.objective
        _print(found, objective, first, second)
        figures = "".join(f" {verdict.replace(' ', '_')}={n}" for verdict, n in counts.items())
        mean = found.mean
        over_all = ""
        if mean:
            over_all = f" speedup={mean.speedup:.3f}{mean.caution} verdict={mean.verdict}"
        if objective != "time":
            over_all += f" objective={objective}"
        typer.echo(f"kernelwright:{over_all}{figures} first={first} second={second}")
    failing = _FAILING[fail_if] if fail_if else ()
    bad = [
        f"{counts[kind]} of {len(found.shapes)} shapes {kind}" for kind in failing if counts[kind]
    ]
    if found.mean and found.mean.verdict in failing:
        bad.append(f"over all tune shapes {found.mean.verdict}")
    if bad:
        raise NothingValid(f"{second} against {first}: {', '.join(bad)}")


def _finished(run: Path) -> History:
    history = history_of(result_view(run))
    if not history.confirmations:
        if history.finished:
            raise NothingValid(
                f"{run} ended without a confirmed configuration: `kernelwright report {run}` says "
                "why; compare another run"
            )
        raise NothingValid(
            f"{run} has confirmed nothing yet: continue it with `kernelwright resume {run}`"
        )
    return history


def _check_comparable(first: History, second: History, *, any_device: bool) -> None:
    devices = [one.device.model if one.device else "no device" for one in (first, second)]
    if devices[0] != devices[1] and not any_device:
        raise EnvironmentProblem(
            f"the runs are of different devices, {devices[0]} and {devices[1]}: compare runs of "
            "one, or pass --any-device"
        )
    objectives = [one.experiment.objective for one in (first, second)]
    if objectives[0] != objectives[1]:
        raise SpecError(
            f"the first run minimised {objectives[0]}, the second {objectives[1]}: compare runs of "
            "the same objective"
        )
    states = [one.experiment.measure.cache for one in (first, second)]
    if states[0] != states[1]:
        raise SpecError(
            f"the first run was measured with a {states[0]} cache, the second with a {states[1]} "
            "one: set measure.cache alike"
        )


def _by(by: By) -> str:
    """What runs are compared by, in words."""
    if by == "speedup":
        return "by their speedups over the same kernel"
    meaning = "" if by == "time" else ' ("faster" means less of it)'
    return f"by their {COSTS[by]}, since their kernels differ{meaning}"


def _print(found: RunComparison, objective: Objective, first: Path, second: Path) -> None:
    width = terminal_width()
    typer.echo(f"{second} against {first}, {_by(found.by)}:")
    if found.by == "speedup" and (words := objective_text(objective)):
        typer.echo(hanging(words, width))
    rows = [("shape", "first", "second", "second is")]
    for one in found.shapes:
        judged = f"{one.comparison} {one.comparison.verdict}" if one.comparison else "not timed"
        label = one.shape + (" *" if one.held_out else "")
        rows.append((label, _cost(one.first), _cost(one.second), judged))
    if found.mean:
        rows.append(("all tune shapes", "", "", f"{found.mean} {found.mean.verdict}"))
    typer.echo(aligned(rows, width))
    for run, shapes in ((first, found.only_first), (second, found.only_second)):
        if shapes:
            typer.echo(hanging(f"(not compared, only in {run}: {'; '.join(shapes)})", width))
    if all(one.held_out for one in found.shapes):
        typer.echo("(no tune shape is in both, so nothing is said over all)")
    if any(one.held_out for one in found.shapes):
        typer.echo("(* held out in one of them)")
    if any(one.first.baseline or one.second.baseline for one in found.shapes):
        typer.echo("(yours: your own kernel, where that run exports nothing faster)")
    typer.echo()


def _cost(exported: Exported) -> str:
    return cost_text(exported.time_ns, exported.millijoules) + (
        " yours" if exported.baseline else ""
    )
