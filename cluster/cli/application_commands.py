"""Names, options and help of the commands that deal with an application's kernels.

Imports nothing heavy, as :mod:`cluster.cli.main`, whose commands they are.
"""

from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.lazy_command import command
from cluster.cli.options import ApplicationLine, Json, Run, output_option

application_commands = typer.Typer()


@command(application_commands, "import_problem.import_problem", name="import")
def import_problem(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A tuning problem in the T1 format.")
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The spec folder to write.")
    ],
) -> None:
    """Write the spec of a tuning problem in the T1 format of Kernel Tuner and KTT."""


@command(application_commands, "apply.apply")
def apply(
    run_dir: Run,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The source that defines the kernel.")
    ],
    *,
    write: Annotated[
        bool,
        typer.Option("--write", help="Change the files, and keep a copy FILE.orig."),
    ] = False,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            help="The application's folder, which paths in the diff start from. The default is "
            "FILE's repository, or else the current folder.",
        ),
    ] = None,
) -> None:
    """Put a run's tuned kernels into an application's source: print the diff, or write it."""


@command(application_commands, "applications.profile", runs_application=True)
def profile(application: ApplicationLine, *, as_json: Json = False) -> None:
    """Run an application and show which kernels it launches, how often, and their GPU time."""


@command(application_commands, "applications.capture", runs_application=True)
def capture(
    application: ApplicationLine,
    *,
    kernel: Annotated[
        str, typer.Option("--kernel", help="Part of the kernel's name, or a pattern with * and ?.")
    ],
    output: Annotated[
        Path | None, output_option("The folder to create, instead of captures/KERNEL.")
    ] = None,
    max_mib: Annotated[
        int,
        typer.Option("--max-mib", min=1, help="Device memory to record for one pointer, at most."),
    ] = 256,
    max_shapes: Annotated[
        int, typer.Option("--max-shapes", min=1, help="Shapes to record, at most.")
    ] = 8,
) -> None:
    """Run an application and record launches of a kernel, with memory before and after."""


@command(application_commands, "inject.inject")
def inject(
    run_dir: Run,
    application: ApplicationLine,
    *,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Run both kernels, compare, and hand the original's results on."
        ),
    ] = False,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat",
            min=0,
            help="Time so many runs with and without, in alternation.",
        ),
    ] = 0,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", help="The kernel's mangled name, if the application has another."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run an application with a run's kernels in place of its own, by the dispatch rule."""
