"""``campaign``: many specs over one machine or cluster, with one budget and one report."""

import asyncio
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import typer

from cluster.campaigns import summary
from cluster.campaigns.folder import CampaignFolder, Record, is_campaign, read_record
from cluster.campaigns.plan import check_specs, load_campaign
from cluster.campaigns.schedule import Places, Schedule
from cluster.cli.console import say
from cluster.runs.model_choice import ModelAccess
from cluster.runs.placement import Placement
from cluster.runs.run_layout import new_name
from cluster.settings import Settings, child_environment, environment_for_ray
from tuner.errors import EnvironmentProblem, NothingValid
from tuner.experiment.longest import LONGEST_SECONDS
from tuner.files import write_whole
from tuner.printable import printable
from tuner.report.wrapping import terminal_width
from tuner.run_directory import begun

MARKDOWN, CSV = "report.md", "report.csv"


def campaign(
    path: Path,
    *,
    fleet: str | None,
    output: Path | None,
    seconds: float | None,
    device: str | None,
    allow_endpoint: list[str] | None,
    as_json: bool,
) -> None:
    """Run the specs of a campaign, or those that an earlier start of it left.

    Raises:
        SpecError: the campaign's file is wrong, or a spec of a run that has not begun.
        NothingValid: a run failed, or found nothing valid; the others ended.
        EnvironmentProblem: the campaign's folder or Ray cannot be used.
        SystemExit: 130 or 143 after a signal.
    """
    settings = Settings.read()
    with closing(_folder(path, settings, fleet, output, seconds, device)) as folder:
        say(f"campaign folder {folder.path}")
        _write_report(folder)
        with _places(folder.record, settings, allow_endpoint) as places:

            def said(line: str) -> None:
                say(line)
                with suppress(EnvironmentProblem):
                    _write_report(folder)

            schedule = Schedule(folder, places, said)
            try:
                asyncio.run(schedule.follow())
            except EnvironmentProblem as problem:
                raise EnvironmentProblem(f"{problem}; continue with: {_again(folder)}") from problem
        rows = _write_report(folder)
    _print(folder, rows, as_json=as_json)
    if any(row.outcome in ("unfinished", summary.NOT_BEGUN, summary.FAILED) for row in rows):
        say(f"continue what is not finished with: {_again(folder)}")
    if schedule.received:
        sys.exit(128 + schedule.received[0])
    if bad := [row.name for row in rows if row.outcome in (summary.FAILED, "nothing_valid")]:
        raise NothingValid(f"no valid result of {', '.join(bad)}: see {folder.path / MARKDOWN}")


def _again(folder: CampaignFolder) -> str:
    """The command that continues a campaign."""
    more = "" if folder.record.campaign.seconds is None else " --seconds SECONDS"
    return f"kernelwright campaign {shlex.quote(str(folder.path))}{more}"


def _folder(
    path: Path,
    settings: Settings,
    fleet: str | None,
    output: Path | None,
    seconds: float | None,
    device: str | None,
) -> CampaignFolder:
    """A new folder, or the one that ``path`` is, with what is given now."""
    if is_campaign(path):
        runs = read_record(path).campaign.runs
        check_specs(run for run in runs if not begun(path / "runs" / run.name))
        folder = CampaignFolder.open(path)
        record = folder.record
        if seconds is not None:
            planned = replace(record.campaign, seconds=min(record.spent + seconds, LONGEST_SECONDS))
            record = replace(record, campaign=planned)
        fleet, device = fleet or record.fleet, device or record.device
        folder.save(replace(record, fleet=fleet, device=device))
        return folder
    planned = load_campaign(path)
    check_specs(planned.runs)
    if seconds is not None:
        planned = replace(planned, seconds=seconds)
    default = Path("campaigns", new_name(planned.name))
    return CampaignFolder.create(
        settings.lasting(output, default, "--output"),
        Record(campaign=planned, fleet=fleet, device=device),
    )


@contextmanager
def _places(
    record: Record, settings: Settings, allow_endpoint: list[str] | None
) -> Iterator[Places]:
    """This machine, or the one Ray that all runs join, started here if need be."""
    access = ModelAccess(endpoints=tuple(allow_endpoint or ()))
    options = Placement(fleet=record.fleet, device=record.device, access=access).words
    if record.fleet == "local":
        yield Places(options=tuple(options), environment=child_environment(), gpus=None)
        return
    before = child_environment()
    with ExitStack() as stack:
        stack.enter_context(environment_for_ray(settings))
        from cluster.jobs import ray_driver

        if not settings.ray_address:
            say("starting Ray on this machine (about five seconds)")
        stack.enter_context(ray_driver.connected(settings))
        yield Places(
            options=tuple(options),
            environment=child_environment(before, ray_driver.address()),
            gpus=ray_driver.gpus if ray_driver.has_gpu() else None,
        )


def _write_report(folder: CampaignFolder) -> list[summary.Row]:
    """Write what was found so far; return its rows."""
    record = folder.record
    rows = summary.rows_of(folder.path, record)
    page = summary.as_markdown(record.campaign.name, record.created, rows)
    write_whole(folder.path / MARKDOWN, printable(page))
    write_whole(folder.path / CSV, printable(summary.as_csv(rows)))
    return rows


def _print(folder: CampaignFolder, rows: Sequence[summary.Row], *, as_json: bool) -> None:
    name = folder.record.campaign.name
    if as_json:
        found = {"campaign": name, "folder": str(folder.path), "runs": summary.as_data(rows)}
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(summary.text(rows, terminal_width()))
    improved = sum(row.outcome == "improved" for row in rows)
    failed = sum(row.outcome in (summary.FAILED, "nothing_valid") for row in rows)
    left = sum(row.outcome in ("unfinished", summary.NOT_BEGUN) for row in rows)
    typer.echo(
        f"kernelwright: campaign={name} runs={len(rows)} improved={improved} failed={failed} "
        f"left={left} folder={folder.path}"
    )
