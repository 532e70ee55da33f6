"""``import``: a tuning problem of another tuner as a spec."""

from pathlib import Path

import typer

from agents.settings import SECTIONS
from tuner.drafts.t1 import import_t1
from tuner.experiment.load import load_experiment


def import_problem(file: Path, *, output: Path) -> None:
    """Write the spec folder of a T1 file, check it, and print its path and what was guessed."""
    spec, guesses = import_t1(file, output)
    load_experiment(spec, SECTIONS)
    typer.echo(spec)
    for guess in guesses:
        typer.echo(f"guess: {guess}")
