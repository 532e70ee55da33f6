"""``patterns``: the user's pattern store, and what a run reads from it and adds to it."""

from pathlib import Path

import typer

from agents.patterns.inheritance import inherited, left_by
from agents.patterns.pattern import PATTERNS, Pattern
from agents.patterns.store import PatternStore, dump_patterns
from agents.settings import agent_settings
from cluster.cli.console import say
from cluster.runs.search_run import PATTERNS_FILE
from cluster.settings import Settings
from tuner.errors import EnvironmentProblem
from tuner.journal.history import History
from tuner.results.result import Result
from tuner.run_directory import RunDirectory


def list_all() -> None:
    """Print one line per winner."""
    for pattern in _patterns():
        for winner in pattern.winners:
            values = " ".join(f"{name}={value}" for name, value in winner.values.items())
            name = f"{pattern.name}  {pattern.experiment}".rstrip()
            typer.echo(
                f"{name}  {winner.speedup:.2f}x [{winner.low:.2f}, {winner.high:.2f}]  "
                f"{winner.device}: {values}"
            )


def show(name: str) -> None:
    """Print one pattern."""
    pattern = _store().find(name)
    typer.echo(PATTERNS.dump_json(pattern, indent=2).decode())


def export() -> None:
    """Print every pattern as one JSON list."""
    typer.echo(dump_patterns(_patterns()), nl=False)


def delete(name: str) -> None:
    """Delete one pattern."""
    store = _store()
    pattern = store.find(name)
    store.delete(pattern)
    typer.echo(f"deleted {pattern.name}")


def copy_near(directory: RunDirectory) -> None:
    """Copy the patterns of similar kernels into a new run that uses patterns. Replays use none.

    Raises:
        EnvironmentProblem: There is no folder for patterns.
    """
    agents = agent_settings(directory.experiment)
    if agents is not None and agents.model == "replay":
        return
    near = inherited(_patterns(), directory.experiment)
    directory.write(PATTERNS_FILE, dump_patterns(near))
    if near:
        names = ", ".join(map(str, near))
        used = "tried first" if directory.experiment.template else "quoted to the model"
        say(f"patterns of similar kernels are {used}: {names}")


def leave(run_dir: Path, history: History, result: Result) -> None:
    """Store the pattern of a finished run that uses patterns, if it gained anything.

    If that fails, the run's result stands, and a note says why.
    """
    if not history.finished or not (run_dir / PATTERNS_FILE).exists():
        return
    pattern = left_by(history, result)
    if pattern is not None:
        try:
            _store().add(pattern)
        except EnvironmentProblem as problem:
            say(f"cannot keep the winner as a pattern: {problem}")


def _patterns() -> tuple[Pattern, ...]:
    """The patterns of the store; files that are skipped are named on stderr."""
    patterns, notes = _store().read()
    for note in notes:
        say(note)
    return patterns


def _store() -> PatternStore:
    if (home := Settings.read().home) is None:
        raise EnvironmentProblem("patterns are off: KERNELWRIGHT_HOME is empty")
    return PatternStore(home / "patterns")
