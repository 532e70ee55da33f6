"""``init``: writes a first spec for a kernel, or the JSON schema of specs."""

import json
from pathlib import Path

import typer

from agents.settings import SECTIONS
from cluster.cli.console import say
from tuner.errors import EnvironmentProblem, SpecError


def init(
    kernel: Path | None,
    *,
    entry: str | None,
    output: Path | None,
    schema: bool,
    capture: Path | None,
    commands: Path | None,
    include: list[Path] | None,
    device: str | None,
) -> None:
    """Write a commented spec for a kernel, or the JSON schema of specs; to stdout by default.

    With ``capture`` the spec is drafted from that, see :mod:`cluster.commands.captures`.

    Raises:
        SpecError: no kernel is named, it cannot be understood, or the output exists.
        EnvironmentProblem: the output cannot be written.
    """
    if schema:
        from tuner.experiment.schema import json_schema

        _write(json.dumps(json_schema(SECTIONS), indent=2) + "\n", output)
        return
    if capture is not None:
        from cluster.commands.captures import draft_capture

        draft_capture(
            capture,
            kernel,
            entry=entry,
            output=output,
            commands=commands,
            include=include or [],
            device=device,
        )
        return
    if commands or include or device:
        raise SpecError("--compile-commands, -I and --device go with --capture")
    if kernel is None:
        raise SpecError("name a kernel file (.cu or .cl), or use --schema")
    from tuner.drafts.draft_spec import draft_spec

    _write(draft_spec(kernel, entry), output)
    if output is not None:
        then = f"review its guesses, then run: kernelwright validate {output}"
        say(f"wrote {output}; {then}")


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SpecError(
            f"{output} exists already: delete it, or name another file with --output"
        ) from None
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {output}: {error.strerror}") from None
