"""Names, options and help of the commands that work through jobs on a Ray cluster.

Imports nothing heavy, as :mod:`cluster.cli.main`, whose commands they are.
"""

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.lazy_command import command
from cluster.cli.options import Address, output_option

job_commands = typer.Typer()


@command(job_commands, "submit.submit", runs_application=True)
def submit(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SPEC", help="A spec; with --resume a run directory there, with --follow a job."
        ),
    ],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="OPTIONS", help="Options of 'run', or with --resume of 'resume'."),
    ] = None,
    *,
    address: Address = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run directory of an earlier job.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Follow a job that was submitted before.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End once the job is submitted.")
    ] = False,
) -> None:
    """Run a spec as a job on a Ray cluster, follow it, and end with the run's exit code."""


@command(job_commands, "fetch.fetch")
def fetch(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run directory on the cluster, or a job's name."),
    ],
    *,
    address: Address = None,
    output: Annotated[
        Path | None, output_option("The folder to write, instead of runs/NAME.")
    ] = None,
) -> None:
    """Copy a run directory from the cluster to here; again: only what is missing."""
