"""``import``: a tuning problem of another tuner as a spec."""

from pathlib import Path

import typer

from agents.settings import SECTIONS
from cluster.cli.console import say
from tuner.drafts.t1 import import_t1
from tuner.errors import SpecError
from tuner.experiment.load import load_experiment


def import_problem(file: Path, *, output: Path) -> None:
    """Write the spec folder of a T1 file, check it, and print its path and what was guessed."""
    spec, guesses = import_t1(file, output)
    typer.echo(spec)
    for guess in guesses:
        typer.echo(f"guess: {guess}")
    try:
        load_experiment(spec, SECTIONS)
    except SpecError:
        say(f"{spec} needs to be corrected: edit it, then run: kernelwright validate {spec}")
        raise
