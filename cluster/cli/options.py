"""Arguments and options that several commands share, with their help."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kernelwright import __version__
from tuner.experiment.longest import LONGEST_SECONDS


def seconds_option(words: str) -> object:
    """The option ``--seconds``: what its time is of differs between commands."""
    return typer.Option("--seconds", min=0.001, max=LONGEST_SECONDS, help=words)


def output_option(words: str) -> object:
    """The option ``--output``: what is written there differs between commands."""
    return typer.Option("--output", "-o", help=words)


class ExportFormat(StrEnum):
    """What ``export`` writes."""

    SOURCES = "sources"
    T4 = "t4"
    CACHE = "cache"


class FailIf(StrEnum):
    """When ``compare`` fails."""

    SLOWER = "slower"
    UNCLEAR = "unclear"


class FleetName(StrEnum):
    """Where the work is done."""

    LOCAL = "local"
    RAY = "ray"


Spec = Annotated[
    str, typer.Argument(metavar="SPEC", help="A YAML file, or the name of a bundled experiment.")
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
Fleet = Annotated[
    FleetName | None,
    typer.Option(
        "--fleet",
        help="ray: the cluster at RAY_ADDRESS, or a Ray started on this machine; local: without "
        "Ray. The default is ray; for resume, what the run began with.",
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="Part of a device's name, or its index in 'doctor'."),
]
Gpus = Annotated[
    int | None,
    typer.Option("--gpus", min=1, help="Take exactly so many GPUs. By default all that are free."),
]
MaxGpus = Annotated[
    int | None,
    typer.Option("--max-gpus", min=1, help="Take the GPUs that are free, at most so many."),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait", help="On a Ray cluster: wait for GPUs that others hold, and say who they are."
    ),
]
KeepGpus = Annotated[
    bool,
    typer.Option(
        "--keep-gpus",
        help="On a Ray cluster: keep the GPUs while a model is asked, instead of giving them back.",
    ),
]
NodeLabel = Annotated[
    list[str] | None,
    typer.Option(
        "--node-label",
        metavar="KEY=VALUE",
        help="On a Ray cluster: take GPUs of nodes with this label only; repeat for each.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="An architecture such as sm_90. Do what needs no device, then end with exit code 6; "
        "resume the run on a machine that has the device.",
    ),
]
ExitWhenWaiting = Annotated[
    bool,
    typer.Option(
        "--exit-when-waiting",
        help="End with exit code 6 when a mailbox has no reply yet, instead of waiting.",
    ),
]
AllowEndpoint = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-endpoint",
        metavar="HOST",
        help="Let the spec's agents.base_url on this host get prompts and API keys.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Who writes: auto, replay, none, mailbox:DIR, or a LiteLLM model id.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="URL",
        help="Ray's job server: that of the dashboard, such as http://HEAD:8265. The default is "
        "RAY_API_SERVER_ADDRESS, RAY_ADDRESS, or this machine's.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of specs and runs, by default this one.")
]
ApplicationLine = Annotated[
    list[str],
    typer.Argument(
        metavar="-- APP …", help="The application and its arguments.", show_default=False
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelwright {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
]
