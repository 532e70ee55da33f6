"""The command line: names, options and help of every command.

Imports neither pydantic, numpy, yaml nor ray, so that ``--help`` answers at once: what a command
does lies in :mod:`cluster.commands` and is imported when it runs.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cluster import package_check
from cluster.error_exit import clear_ending, open_standard_streams
from cluster.settings import use_one_algebra_thread
from tuner.errors import EnvironmentProblem

app = typer.Typer(
    name="kernelwright",
    help="Tune GPU kernels: search a template's parameters on real devices, verified and measured.",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
        help="ray: on a cluster, or one started here; local: no Ray. A new run takes ray, and a "
        "resume what the run was begun with.",
    ),
]
RunDir = Annotated[
    Path | None, typer.Option("--run-dir", help="Where to keep the run; must not exist yet.")
]
Trials = Annotated[
    int | None,
    typer.Option("--trials", min=1, help="Configurations to try, instead of the spec's."),
]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", min=0.001, help="Searching time, instead of the spec's."),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", help="Part of a device's name, or its index in `kernelwright doctor`."
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="An architecture such as sm_90: go as far as possible without the device, then end "
        "with exit code 6, to be resumed where it is.",
    ),
]
ExitWhenWaiting = Annotated[
    bool,
    typer.Option(
        "--exit-when-waiting",
        help="End with exit code 6, to be resumed, where a mailbox holds no reply yet.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.callback()
def _before_any_command() -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        raise EnvironmentProblem("the current folder was deleted: change to another") from None
    package_check.check()


@app.command()
def init(
    kernel: Annotated[
        Path | None, typer.Argument(metavar="KERNEL", help="A .cu or .cl file.")
    ] = None,
    *,
    entry: Annotated[
        str | None, typer.Option("--entry", help="Which kernel, if the file has several.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of stdout.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of specs, for editors.")
    ] = False,
) -> None:
    """Print a commented spec from a kernel's signature; -o writes it to a file."""
    from cluster.commands import specs

    specs.init(kernel, entry=entry, output=output, schema=schema)


@app.command()
def validate(
    spec: Spec,
    *,
    target: Annotated[
        str | None, typer.Option("--target", help="An architecture such as sm_90; needs no GPU.")
    ] = None,
    compile_corners: Annotated[
        bool, typer.Option("--compile", help="Compile the baseline and the space's corners too.")
    ] = False,
    device: DeviceOption = None,
    as_json: Json = False,
) -> None:
    """Check a spec: all errors at once, tolerances, the size of the space, an estimate."""
    from cluster.commands import specs

    specs.validate(
        spec, target=target, compile_corners=compile_corners, device=device, as_json=as_json
    )


@app.command()
def run(
    spec: Spec,
    *,
    fleet: Fleet = None,
    run_dir: RunDir = None,
    trials: Trials = None,
    seconds: Seconds = None,
    device: DeviceOption = None,
    target: Target = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Who writes templates: auto, replay, none, mailbox:DIR, or a LiteLLM id.",
        ),
    ] = None,
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
    """Tune a kernel: search, verify, time, confirm, report, export."""
    from cluster.commands import runs

    runs.run(
        spec,
        fleet=fleet,
        run_dir=run_dir,
        trials=trials,
        seconds=seconds,
        device=device,
        target=target,
        model=model,
        exit_when_waiting=exit_when_waiting,
        use_patterns=use_patterns,
        as_json=as_json,
    )


@app.command()
def resume(
    run_dir: Run,
    *,
    fleet: Fleet = None,
    device: DeviceOption = None,
    target: Target = None,
    exit_when_waiting: ExitWhenWaiting = False,
    as_json: Json = False,
) -> None:
    """Go on with a run that was interrupted; nothing finished is measured again."""
    from cluster.commands import runs

    runs.resume(
        run_dir,
        fleet=fleet,
        device=device,
        target=target,
        exit_when_waiting=exit_when_waiting,
        as_json=as_json,
    )


@app.command()
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
            "--shape", metavar="NAME=VALUE,…", help="One shape instead of the tune shapes."
        ),
    ] = None,
    device: DeviceOption = None,
    as_json: Json = False,
) -> None:
    """Compile, check and time one configuration: the way to reproduce a result."""
    from cluster.commands import trials

    trials.trial(spec, assignments=assignments or [], shape=shape, device=device, as_json=as_json)


@app.command()
def status(run_dir: Run, *, as_json: Json = False) -> None:
    """Show how far a run is; works while it goes on."""
    from cluster.commands import results

    results.status(run_dir, as_json=as_json)


@app.command()
def stop(run_dir: Run) -> None:
    """Ask a run to stop searching, confirm what it has, and finish."""
    from cluster.commands import results

    results.stop(run_dir)


@app.command()
def report(run_dir: Run, *, as_json: Json = False) -> None:
    """Print the result of a run."""
    from cluster.commands import results

    results.report(run_dir, as_json=as_json)


@app.command()
def export(
    run_dir: Run,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder; RUN/export by default.")
    ] = None,
) -> None:
    """Write the tuned source, with its values baked in, and a C header that dispatches by shape."""
    from cluster.commands import results

    results.export(run_dir, output=output)


@app.command()
def verify(run_dir: Run, *, device: DeviceOption = None, as_json: Json = False) -> None:
    """Measure a run's numbers again, from its exported sources alone, in new processes."""
    from cluster.commands import verify as command

    command.verify(run_dir, device=device, as_json=as_json)


patterns_app = typer.Typer(
    help="Patterns: what winners of earlier runs left for later ones.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.add_typer(patterns_app, name="patterns")

PatternName = Annotated[str, typer.Argument(metavar="NAME", help="Its name, or how that begins.")]


@patterns_app.command("list")
def patterns_list() -> None:
    """List the patterns, one a line."""
    from cluster.commands import patterns

    patterns.list_all()


@patterns_app.command("show")
def patterns_show(name: PatternName) -> None:
    """Print one pattern as JSON: all that is kept of a run."""
    from cluster.commands import patterns

    patterns.show(name)


@patterns_app.command("export")
def patterns_export() -> None:
    """Print all patterns as one JSON list."""
    from cluster.commands import patterns

    patterns.export()


@patterns_app.command("delete")
def patterns_delete(name: PatternName) -> None:
    """Delete one pattern for good."""
    from cluster.commands import patterns

    patterns.delete(name)


@app.command()
def relay(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The mailbox of a run with model mailbox:DIR.")
    ],
    *,
    models: Annotated[
        list[str],
        typer.Option("--model", help="A LiteLLM id; repeat for those to fall back on."),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Answer what lies there now, then end.")
    ] = False,
    max_cost_usd: Annotated[
        float, typer.Option("--max-cost-usd", min=0, help="What this relay may spend.")
    ] = 2.0,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0)] = None,
    seed: Annotated[int | None, typer.Option("--seed")] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Of a server that speaks OpenAI's protocol.")
    ] = None,
) -> None:
    """Answer a mailbox through a language model, from a machine that has a network."""
    from cluster.commands import relay as command

    command.relay(
        directory,
        models=models,
        once=once,
        max_cost_usd=max_cost_usd,
        temperature=temperature,
        seed=seed,
        base_url=base_url,
    )


@app.command()
def doctor(*, as_json: Json = False) -> None:
    """Say what this machine can do: devices, compilers, Ray, and what is missing."""
    from cluster.commands import doctor as command

    command.doctor(as_json=as_json)


def main() -> None:
    """Entry point: any failure becomes one message and the exit code of its kind."""
    use_one_algebra_thread()
    open_standard_streams()
    with clear_ending():
        app()
