"""``status``, ``stop`` and ``export`` of a run directory."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Any

import typer

from agents.rounds_summary import (
    FILE,
    RoundsSummary,
    read_summary,
    spent_so_far,
)
from cluster.cli.console import say
from cluster.runs.run_layout import STOP_FILE, STOP_NOW, round_path, rounds_begun, searches_begun
from tuner.errors import EnvironmentProblem, NothingValid
from tuner.export.bundle import export_files
from tuner.files import inside, make_folder, unwritable, write_whole
from tuner.journal.facts import Entry
from tuner.journal.history import History
from tuner.journal.timeline import Timeline, timeline
from tuner.lease import Tenure, read_tenure
from tuner.report.kernel_tuner import cache_file, t4_results
from tuner.report.tables import results_csv
from tuner.report.timeline import bench_text
from tuner.results.result import Result
from tuner.results.summary import summarise
from tuner.results.verdict import verdict_text
from tuner.run_directory import JOURNAL, RunView, begun
from workers.backends.cuda.architectures import NO_DRIVER

_UNCONFIRMED = "best_of_search", "speedup_there"
"""The search's own figures, left out in words where a confirmed result stands beside them."""
TRIALS = {form: f"trials.{form}.json" for form in ("t4", "cache")}
"""The file in ``export/`` for all trials in each format of Kernel Tuner."""


def is_over(run_dir: Path) -> bool:
    """Whether a run has finished."""
    view = RunView.open(run_dir)
    if view.experiment.agents is None:
        return history_of(view).finished
    summary = read_summary(run_dir)
    return summary is not None and summary.over


def result_view(run_dir: Path) -> RunView:
    """The run directory whose journal holds a run's result: with agents, that of a round.

    Raises:
        NothingValid: no round found anything.
        EnvironmentProblem: the journal of the round is lost.
    """
    view = RunView.open(run_dir)
    if view.experiment.agents is None:
        return view
    summary = read_summary(run_dir)
    if summary is not None and summary.searched is not None:
        return _ended(run_dir, summary.searched, summary.suffix)
    rounds = rounds_begun(run_dir) if summary is None else []
    if not rounds:
        why = "no round has begun its search" if summary is None else summary.detail
        searched = rounds_begun(run_dir)
        where = f"; see `kernelwright report {searched[-1]}`" if searched else ""
        raise NothingValid(f"there is no result: {why}{where}")
    return RunView.open(rounds[-1])


def result_of(run_dir: Path) -> tuple[History, Result]:
    """The history that holds a run's result, and that result: unfinished until the run is over.

    Raises as :func:`result_view`.
    """
    view = result_view(run_dir)
    history = history_of(view)
    return history, _judged(run_dir, view, history)


def _judged(run_dir: Path, view: RunView, history: History) -> Result:
    result = summarise(history)
    if view.path != run_dir and not is_over(run_dir):  # a round has ended, but not the run
        return replace(result, outcome="unfinished")
    return result


def status(run_dir: Path, *, as_json: bool) -> None:
    """Print the state of a run, from its journal and its lease."""
    view = RunView.open(run_dir)
    if view.experiment.agents is not None:
        _print_status(_rounds_status(view), run_dir, as_json=as_json)
        return
    entries = view.entries()
    history = History.of(view.experiment, entries)
    state = state_of(run_dir, over=history.finished, waiting=awaits_device(history))
    searched = history.clock.searched
    if entries and state["state"] == "running":
        since = max(0.0, time.time() - entries[-1].at)
        searched = history.clock.searched_until(entries[-1].t + since)
    facts = {
        "run": view.info.run,
        **state,
        "trials": tried([history]),
        "most_trials": view.experiment.most_trials,
        "rejected": history.rejected,
        "searched_seconds": round(searched, 1),
        "confirmations": len(history.confirmations),
        **_best([history]),
        **(_verdict(summarise(history)) if history.finished else {}),
    }
    _print_status(facts, run_dir, as_json=as_json)


def _rounds_status(view: RunView) -> dict[str, object]:
    summary, spent = read_summary(view.path), spent_so_far(view.path)
    histories = list(rounds_of(view.path, summary).values())
    facts: dict[str, object] = {
        "run": view.info.run,
        **state_of(
            view.path,
            over=summary is not None and summary.over,
            waiting=summary is not None and summary.waiting,
        ),
        "rounds": len(histories),
        "trials": tried(histories),
        "calls": spent.calls,
        "tokens": spent.input_tokens + spent.output_tokens,
        "cost_usd": round(spent.cost_usd, 4),
        **_best(histories),
    }
    if summary is None:
        return facts
    over = summary.over and summary.searched is not None
    return {
        **facts,
        **(_verdict(result_of(view.path)[1]) if over else {}),
        "ended": summary.detail,
    }


def rounds_of(run_dir: Path, summary: RoundsSummary | None) -> dict[int, History]:
    """The histories of rounds that have begun, by number.

    Raises:
        EnvironmentProblem: the journal of a round is lost.
    """
    found = {int(path.name): history_of(RunView.open(path)) for path in rounds_begun(run_dir)}
    for past in summary.rounds if summary else ():
        history = found.get(past.number)
        if past.speedup is not None and not (history and history.finished):
            raise _lost(run_dir, past.number, round_path(run_dir, past.number))
    return found


def _ended(run_dir: Path, number: int, suffix: str = "") -> RunView:
    """The search of a round that ended.

    Raises:
        EnvironmentProblem: its journal lost the end.
    """
    path = round_path(run_dir, number, suffix)
    if begun(path):
        view = RunView.open(path)
        if history_of(view).finished:
            return view
    raise _lost(run_dir, number, path)


def _lost(run_dir: Path, number: int, path: Path) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{path / JOURNAL} has lost the end of the search of round {number}, which "
        f"{run_dir / FILE} refers to: restore it from a backup; {run_dir / 'export'} has the "
        "exported sources"
    )


def tried(histories: Iterable[History]) -> int:
    """The number of trials that have finished; those merged into an equal one do not count."""
    return sum(
        trial.outcome is not None and trial.same_as is None
        for each in histories
        for trial in each.trials.values()
    )


def _best(histories: Sequence[History]) -> dict[str, object]:
    """The fastest configuration so far, unconfirmed, and its speedup."""
    found = [
        (loss, str(history.configuration(leader)))
        for history in histories
        if (leader := history.leader()) is not None and (loss := history.loss(leader))
    ]
    if not found:
        return {}
    loss, configuration = min(found)
    return dict(zip(_UNCONFIRMED, (configuration, round(1 / loss, 3)), strict=True))


def _verdict(result: Result) -> dict[str, object]:
    """The outcome of a run that is over, and its confirmed result in words."""
    return {"outcome": result.outcome, "result": verdict_text(result)}


def timeline_of(run_dir: Path) -> Timeline:
    """Where the time of a run and of its rounds went, and the benches that it had."""
    searches = (run_dir, *searches_begun(run_dir))
    return timeline([RunView.open(path).entries() for path in searches])


def _print_status(facts: Mapping[str, object], run_dir: Path, *, as_json: bool) -> None:
    found = timeline_of(run_dir)
    if as_json:
        typer.echo(
            json.dumps({**facts, "benches": [asdict(one) for one in found.benches]}, indent=2)
        )
        return
    for name, value in facts.items():
        if name not in _UNCONFIRMED or "result" not in facts:
            typer.echo(f"{name.replace('_', ' '):<17}{value}")
    for one in found.benches:
        typer.echo(f"{'bench':<17}{bench_text(one, bool(found.unfinished))}")


def stop(run_dir: Path, *, now: bool) -> None:
    """Write a stop request, which the run looks for twice a second; a second one says *now*.

    A run that has finished needs none, and is left alone.

    Raises:
        EnvironmentProblem: the run is not running, and has not finished.
    """
    RunView.open(run_dir)
    if not is_running(run_dir):
        if is_over(run_dir):
            typer.echo(f"{run_dir} has finished: `kernelwright report {run_dir}` prints its result")
            return
        raise EnvironmentProblem(
            f"{run_dir} is not running; `kernelwright resume {run_dir}` continues it"
        )
    if now or (run_dir / STOP_FILE).exists():
        write_whole(run_dir / STOP_FILE, STOP_NOW)
        typer.echo("stop requested: the run ends at once; `kernelwright resume` continues it")
    else:
        write_whole(run_dir / STOP_FILE, "")
        typer.echo("stop requested: the run confirms what it found, then ends; again: at once")


def export(run_dir: Path, *, output: Path | None, form: str) -> None:
    """Write the tuned sources and their header, or all trials; print the paths.

    Raises:
        NothingValid: nothing was confirmed, or nothing was tried.
        EnvironmentProblem: a file cannot be written.
    """
    view = result_view(run_dir)
    entries = view.entries()
    history = History.of(view.experiment, entries)
    result = _judged(run_dir, view, history)
    if form == "sources":
        written = _write_sources(export_files(history, result), output or run_dir / "export")
        if result.outcome == "no_gain":
            nothing = "nothing is confirmed as faster: the header picks your kernel on every shape"
            say(nothing)
    else:
        path = output or run_dir / "export" / TRIALS[form]
        written = [_write_trials(history, entries, form, path)]
    if result.outcome == "unfinished":
        again = f"export again when it has (`kernelwright status {run_dir}`)"
        say(f"{run_dir} has not ended: {again}")
    for path in written:
        typer.echo(path)


def _write_trials(history: History, entries: Sequence[Entry], form: str, path: Path) -> Path:
    """Write all trials in a format of Kernel Tuner, ``t4`` or ``cache``; return the path."""
    if not history.outcomes:
        raise NothingValid("there is nothing to export: no trial has finished")
    make_folder(path.absolute().parent)
    write_whole(path, (t4_results if form == "t4" else cache_file)(history, entries))
    return path


def data_frame(run_dir: Path) -> Any:
    """All trials of a run as a ``pandas.DataFrame``.

    Raises:
        EnvironmentProblem: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise EnvironmentProblem("a data frame needs pandas: pip install pandas") from None
    text = results_csv(history_of(result_view(run_dir)))
    return pandas.read_csv(StringIO(text), keep_default_na=False, na_values=[""])


def exported(run_dir: Path) -> dict[str, str]:
    """The files of a run's export; raises :class:`NothingValid` if nothing was confirmed."""
    return export_files(*result_of(run_dir))


def write_export(run_dir: Path, folder: Path) -> list[Path]:
    """Write the tuned sources and their header; return their paths.

    Raises:
        NothingValid: nothing was confirmed.
        EnvironmentProblem: the folder cannot be written.
    """
    return _write_sources(exported(run_dir), folder)


def _write_sources(files: Mapping[str, str], folder: Path) -> list[Path]:
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            place = inside(folder, name)
            make_folder(place.parent)
            write_whole(place, text)
            written.append(place)
    except OSError as error:
        raise unwritable(folder, error) from None
    return written


def state_of(run_dir: Path, *, over: bool, waiting: bool) -> dict[str, str]:
    """The ``state`` of a run, and the ``writer`` of one that is running."""
    if over:
        return {"state": "finished"}
    if (held := writer(run_dir)) is not None:
        return {"state": "running", "writer": str(held)}
    return {"state": "waiting" if waiting else "interrupted"}


def is_running(run_dir: Path) -> bool:
    """Whether a live process writes the run directory."""
    return writer(run_dir) is not None


def writer(run_dir: Path) -> Tenure | None:
    """The lease of the live process that writes a run directory; ``None`` if there is none.

    Raises:
        EnvironmentProblem: the lease cannot be read.
    """
    found = read_tenure(run_dir)
    return found if found is not None and found.alive else None


def awaits_device(history: History) -> bool:
    """Whether the last process of the run had no device."""
    return history.device is not None and history.device.driver == NO_DRIVER


def history_of(view: RunView) -> History:
    """What the journal of a run directory adds up to."""
    return History.of(view.experiment, view.entries())
