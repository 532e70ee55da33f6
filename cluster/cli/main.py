"""The command line: names, options and help of every command.

Imports neither pydantic, numpy, yaml nor ray, so that ``--help`` answers at once. What a command
does is in :mod:`cluster.commands`, which is imported when it runs.
"""

import atexit
import gc
from pathlib import Path
from typing import Annotated

import typer

from cluster.cli.application_commands import application_commands
from cluster.cli.campaign_command import campaign_command
from cluster.cli.error_exit import exit_with_message, open_standard_streams
from cluster.cli.job_commands import job_commands
from cluster.cli.lazy_command import command
from cluster.cli.options import (
    AllowEndpoint,
    DeviceOption,
    ExitWhenWaiting,
    Fleet,
    Folder,
    Gpus,
    Json,
    KeepGpus,
    MaxGpus,
    ModelOption,
    NodeLabel,
    Run,
    Spec,
    Target,
    Version,
    Wait,
    output_option,
    seconds_option,
)
from cluster.cli.pattern_commands import patterns_app
from cluster.cli.result_commands import result_commands
from cluster.jobs.package_check import check_packages
from cluster.settings import use_one_algebra_thread
from tuner.errors import EnvironmentProblem
from tuner.experiment.longest import LARGEST_COUNT

app = typer.Typer(
    name="kernelwright",
    help="Tune GPU kernels: rewrite them as templates, search the parameters on real devices.",
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _before_any_command(
    *,
    _version: Version = False,
) -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        raise EnvironmentProblem(
            "the current folder was deleted: change to another folder"
        ) from None
    check_packages()


@command(app, "init.init")
def init(
    kernel: Annotated[
        Path | None, typer.Argument(metavar="KERNEL", help="A .cu or .cl file.")
    ] = None,
    *,
    entry: Annotated[
        str | None, typer.Option("--entry", help="The kernel's name, if the file has several.")
    ] = None,
    output: Annotated[Path | None, output_option("The file to write, instead of stdout.")] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of specs, for editors.")
    ] = False,
    capture: Annotated[
        Path | None,
        typer.Option(
            "--capture",
            metavar="DIR",
            help="A capture of the kernel: its launches are replayed, its binary is the baseline. "
            "The spec is written there by default.",
        ),
    ] = None,
    commands: Annotated[
        Path | None,
        typer.Option(
            "--compile-commands",
            metavar="FILE",
            help="With --capture: a compile_commands.json, for headers and options of KERNEL.",
        ),
    ] = None,
    include: Annotated[
        list[Path] | None,
        typer.Option("-I", metavar="DIR", help="With --capture: a folder of headers."),
    ] = None,
    device: DeviceOption = None,
) -> None:
    """Write a commented spec for a kernel, guessed from its code or derived from a capture."""


@command(app, "complete.complete")
def complete(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A draft, such as 'init' wrote.")],
    *,
    model: ModelOption = None,
    allow_endpoint: AllowEndpoint = None,
    output: Annotated[
        Path | None, output_option("The file to write, instead of SPEC.completed.yaml.")
    ] = None,
    device: DeviceOption = None,
    exit_when_waiting: ExitWhenWaiting = False,
) -> None:
    """Have a model write what a draft spec lacks: reference, domain, value ranges, tolerances."""


@command(app, "validate.validate")
def validate(
    spec: Spec,
    *,
    target: Annotated[
        str | None, typer.Option("--target", help="An architecture such as sm_90; needs no GPU.")
    ] = None,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Compile nothing, launch nothing, call no reference."),
    ] = False,
    device: DeviceOption = None,
    as_json: Json = False,
) -> None:
    """Check a spec: print all errors, or space and time; compile, try baseline and template."""


@command(app, "runs.run")
def run(
    spec: Spec,
    *,
    fleet: Fleet = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", help="The run directory to create.")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, max=LARGEST_COUNT, help="Configurations to try, at most."),
    ] = None,
    seconds: Annotated[
        float | None, seconds_option("Time of the run, confirming included.")
    ] = None,
    device: DeviceOption = None,
    gpus: Gpus = None,
    max_gpus: MaxGpus = None,
    wait: Wait = False,
    keep_gpus: KeepGpus = False,
    node_label: NodeLabel = None,
    target: Target = None,
    model: ModelOption = None,
    allow_endpoint: AllowEndpoint = None,
    exit_when_waiting: ExitWhenWaiting = False,
    use_patterns: Annotated[
        bool,
        typer.Option(
            "--patterns",
            help="Try first what won for similar kernels, and store what wins for later runs.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Tune a kernel: search, check, time, confirm, report and export."""


@command(app, "runs.resume")
def resume(
    run_dir: Run,
    *,
    fleet: Fleet = None,
    seconds: Annotated[
        float | None,
        seconds_option("Time from now on, confirming included, not the rest of what it had."),
    ] = None,
    device: DeviceOption = None,
    gpus: Gpus = None,
    max_gpus: MaxGpus = None,
    wait: Wait = False,
    keep_gpus: KeepGpus = False,
    node_label: NodeLabel = None,
    target: Target = None,
    allow_endpoint: AllowEndpoint = None,
    exit_when_waiting: ExitWhenWaiting = False,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run. What is finished is not measured again."""


@command(app, "trials.trial")
def trial(
    spec: Spec,
    *,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter's value; repeat for each."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape", metavar="NAME=VALUE,…", help="One shape, instead of the tune shapes."
        ),
    ] = None,
    device: DeviceOption = None,
    as_json: Json = False,
) -> None:
    """Compile, check and time one configuration."""


app.registered_commands += result_commands.registered_commands


@command(app, "relay.relay")
def relay(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The mailbox of a run with model mailbox:DIR.")
    ],
    *,
    models: Annotated[
        list[str], typer.Option("--model", help="A LiteLLM model id; repeat for fallbacks.")
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Answer the requests that are there, then end.")
    ] = False,
    max_cost_usd: Annotated[
        float, typer.Option("--max-cost-usd", min=0, help="What this relay may spend.")
    ] = 2.0,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0, help="Sampling temperature.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Sampling seed.")] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="Address of a server that speaks OpenAI's protocol."),
    ] = None,
) -> None:
    """Answer a mailbox through a model, on a machine with a network."""


@command(app, "mcp.mcp")
def mcp(folder: Folder = Path()) -> None:
    """Serve a coding agent over stdin and stdout (Model Context Protocol)."""


@command(app, "doctor.doctor")
def doctor(*, as_json: Json = False) -> None:
    """Show this machine's devices, packages and what is missing."""


app.registered_commands += job_commands.registered_commands
app.registered_commands += application_commands.registered_commands
app.registered_commands += campaign_command.registered_commands
app.add_typer(patterns_app, name="patterns")


def main() -> None:
    """Entry point: any failure becomes one message and the exit code of its kind."""
    use_one_algebra_thread()
    open_standard_streams()
    gc.disable()  # until a command is imported, which makes no garbage
    atexit.register(gc.freeze)  # else all objects are looked through at the end, for half a second
    with exit_with_message():
        app()
