"""Names, options and help of the commands that look at runs, end them, and use their results.

Imports nothing heavy, as :mod:`cluster.cli.main`, whose commands they are.
"""

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.lazy_command import command
from cluster.cli.options import DeviceOption, ExportFormat, FailIf, Json, Run, output_option

result_commands = typer.Typer()


@command(result_commands, "results.status")
def status(run_dir: Run, *, as_json: Json = False) -> None:
    """Show the state of a run, also while it is running."""


@command(result_commands, "watch.watch")
def watch(
    run_dirs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories.")],
    *,
    web: Annotated[
        bool,
        typer.Option("--web", help="Serve a page, and metrics at /metrics, until Ctrl-C instead."),
    ] = False,
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, help="With --web: its port, or 0 for a free one."),
    ] = 8177,
) -> None:
    """Show runs while they go on, from their directories; ends when all are finished.

    An interrupted run is waited for: it may be resumed. Ctrl-C ends this, and no run.
    """


@command(result_commands, "show.show")
def show(
    run_dir: Run,
    trial: Annotated[int, typer.Argument(metavar="TRIAL", min=0, help="A trial's number.")],
    *,
    as_json: Json = False,
) -> None:
    """Show all of one trial: parameters, launches, compile report, times, failures, workers."""


@command(result_commands, "results.stop")
def stop(
    run_dir: Run,
    *,
    now: Annotated[
        bool, typer.Option("--now", help="Leave at once, to be resumed; as asking twice does.")
    ] = False,
) -> None:
    """Ask a run to end its search, confirm what it found, and finish."""


@command(result_commands, "report.report")
def report(
    run_dir: Run,
    *,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Print where the time of the run went instead.")
    ] = False,
    html_files: Annotated[
        bool,
        typer.Option(
            "--html",
            help="Write report.html, report.md and report.csv into RUN instead, and results.* of "
            "each search.",
        ),
    ] = False,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures", metavar="DIR", help="Write all figures as PNG and SVG; needs matplotlib."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the result of a run, or write it as a page with figures."""


@command(result_commands, "clean.clean")
def clean(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run directories.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove from finished runs what can be made again: reports, tables and exports."""


@command(result_commands, "results.export")
def export(
    run_dir: Run,
    *,
    output: Annotated[
        Path | None, output_option("The folder (or file) to write, not RUN/export.")
    ] = None,
    form: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="sources; or all trials: as t4 results, or as a cache file of Kernel Tuner.",
        ),
    ] = ExportFormat.SOURCES,
) -> None:
    """Write the tuned sources, a C header that dispatches by shape, and an example program."""


@command(result_commands, "compare.compare")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A run directory.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another, compared with it.")],
    *,
    any_device: Annotated[
        bool, typer.Option("--any-device", help="Also compare runs of different devices.")
    ] = False,
    fail_if: Annotated[
        FailIf | None,
        typer.Option(
            "--fail-if",
            metavar="slower or unclear",
            help="End with exit code 4 if B is slower on a shape or over all tune shapes; unclear: "
            "or not surely as fast.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare what two runs export, shape by shape: is B faster than A?"""


@command(result_commands, "verify.verify")
def verify(run_dir: Run, *, device: DeviceOption = None, as_json: Json = False) -> None:
    """Measure a run's claims again, from its exported sources."""
