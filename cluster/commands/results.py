"""``status``, ``stop``, ``report``: what a run directory tells, and asking the run to end."""

import fcntl
import json
from pathlib import Path

import typer

from cluster.run import STOP_FILE
from tuner.errors import EnvironmentProblem, NothingValid
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
    """Print what was found so far."""
    conclude(run_dir, as_json=as_json)


def conclude(run_dir: Path, *, as_json: bool) -> None:
    """Print the result of a run that is over, and its last line."""
    history = _history(RunView.open(run_dir))
    leader = history.leader()
    loss = None if leader is None else history.loss(leader)
    if leader is None or loss is None:
        raise NothingValid("no configuration was valid")
    found = {"configuration": history.trials[leader].configuration.as_dict(), "speedup": 1 / loss}
    typer.echo(json.dumps(found) if as_json else f"{found}")
    typer.echo(f"kernelwright: outcome=improved speedup={1 / loss:.2f} run={run_dir}")


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
