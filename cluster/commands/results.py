"""What a run directory tells (``status``, ``report``, ``export``), and asking a run to ``stop``."""

import fcntl
import json
from pathlib import Path

import typer

from cluster.run import STOP_FILE
from tuner.errors import EnvironmentProblem, NothingValid
from tuner.report.export import export_files
from tuner.report.result import Result
from tuner.report.summary import summarise
from tuner.report.text import render
from tuner.session.history import History
from tuner.store.run_directory import RunView
from tuner.trial import Rejected


def is_over(run_dir: Path) -> bool:
    """Whether a run has ended for good."""
    return _history(RunView.open(run_dir)).finished


def status(run_dir: Path, *, as_json: bool) -> None:
    """Print how far a run is, from its journal and from whether a process holds it."""
    view = RunView.open(run_dir)
    history = _history(view)
    outcomes = [trial.outcome for trial in history.trials.values() if trial.outcome is not None]
    facts = {
        "run": view.info.run,
        "state": _state(run_dir, history),
        "trials": len(outcomes),
        "budget": view.experiment.search.trials,
        "rejected": sum(isinstance(outcome, Rejected) for outcome in outcomes),
        "searched_seconds": round(history.searched, 1),
        "confirmations": len(history.confirmations),
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        for name, value in facts.items():
            typer.echo(f"{name.replace('_', ' '):<17}{value}")


def stop(run_dir: Path) -> None:
    """Leave a request that the run looks for twice a second.

    Raises:
        EnvironmentProblem: no process is at work there.
    """
    view = RunView.open(run_dir)
    if not _is_running(run_dir):
        raise EnvironmentProblem(f"{view.path} is not running")
    (run_dir / STOP_FILE).touch()
    typer.echo("asked to stop: it confirms what it has found, then ends")


def report(run_dir: Path, *, as_json: bool) -> None:
    """Print what was found, also while the run goes on."""
    _print(summarise(_history(RunView.open(run_dir))), run_dir, as_json=as_json)


def export(run_dir: Path, *, output: Path | None) -> None:
    """Write the tuned sources and their header.

    Raises:
        NothingValid: nothing was confirmed.
        EnvironmentProblem: the folder cannot be written.
    """
    folder = output or run_dir / "export"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in export_files(_history(RunView.open(run_dir))).items():
            (folder / name).write_text(text, encoding="utf-8")
            typer.echo(folder / name)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {folder}: {error.strerror}") from None


def conclude(run_dir: Path, *, as_json: bool) -> None:
    """Print the result of a run that is over.

    Raises:
        NothingValid: no configuration was valid, or the baseline cannot be trusted.
    """
    result = summarise(_history(RunView.open(run_dir)))
    _print(result, run_dir, as_json=as_json)
    if result.outcome == "nothing_valid":
        why = result.refused
        raise NothingValid(
            "no configuration was valid"
            if why is None
            else f"the baseline cannot be used: {why.detail}"
        )


def _print(result: Result, run_dir: Path, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**result.to_json(), "run": str(run_dir)}, indent=2))
        return
    typer.echo(render(result))
    speedup = "" if result.speedup is None else f" speedup={result.speedup:.2f}"
    typer.echo(f"kernelwright: outcome={result.outcome}{speedup} run={run_dir}")


def _state(run_dir: Path, history: History) -> str:
    if history.finished:
        return "finished"
    return "running" if _is_running(run_dir) else "interrupted"


def _history(view: RunView) -> History:
    return History.of(view.experiment, view.facts())


def _is_running(run_dir: Path) -> bool:
    """Whether a process holds the run directory's lock."""
    with (run_dir / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
