"""``status``, ``report`` and ``export`` of a run directory, and ``stop``."""

import fcntl
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import typer

from agents.brief import inline
from agents.call_costs import by_role, by_round, notes_of
from agents.llm.port import ModelUnavailable
from agents.rounds_summary import (
    FILE,
    STEPS,
    RoundsSummary,
    read_summary,
    spent_so_far,
    summary_json,
)
from agents.step_journal import recorded_exchanges
from cluster.run_layout import STOP_FILE, round_path, rounds_begun
from tuner.errors import EnvironmentProblem, NothingValid
from tuner.export.bundle import export_files
from tuner.files import write_whole
from tuner.journal.history import History
from tuner.journal.timeline import timeline as timeline_of
from tuner.report.text import render
from tuner.report.timeline import timeline_json, timeline_text
from tuner.results.rejections import rejections_line
from tuner.results.result import Result
from tuner.results.summary import summarise
from tuner.run_directory import JOURNAL, RunView, begun
from workers.backends.cuda.architectures import NO_DRIVER


def is_over(run_dir: Path) -> bool:
    """Whether a run has finished."""
    view = RunView.open(run_dir)
    if view.experiment.agents is None:
        return _history(view).finished
    ledger = read_summary(run_dir)
    return ledger is not None and ledger.over


def result_view(run_dir: Path) -> RunView:
    """The run directory whose journal holds a run's result: with agents, that of a round.

    Raises:
        NothingValid: no round found anything.
        EnvironmentProblem: the journal of the round is lost.
    """
    view = RunView.open(run_dir)
    if view.experiment.agents is None:
        return view
    ledger = read_summary(run_dir)
    if ledger is not None and ledger.searched is not None:
        return _ended(run_dir, ledger.searched, ledger.suffix)
    rounds = rounds_begun(run_dir) if ledger is None else []
    if not rounds:
        why = "no round has begun its search" if ledger is None else ledger.detail
        raise NothingValid(f"there is no result: {why}")
    return RunView.open(rounds[-1])


def status(run_dir: Path, *, as_json: bool) -> None:
    """Print the state of a run, from its journal and its lock."""
    view = RunView.open(run_dir)
    if view.experiment.agents is not None:
        _print_facts(_rounds_status(view), as_json=as_json)
        return
    history = _history(view)
    facts = {
        "run": view.info.run,
        "state": _state(run_dir, over=history.finished, waiting=_awaits_device(history)),
        "trials": _tried([history]),
        "budget": view.experiment.search.trials,
        "rejected": history.rejected,
        "searched_seconds": round(history.searched, 1),
        "confirmations": len(history.confirmations),
        **_best([history]),
    }
    _print_facts(facts, as_json=as_json)


def _rounds_status(view: RunView) -> dict[str, object]:
    ledger, spent = read_summary(view.path), spent_so_far(view.path)
    histories = list(_of_rounds(view.path, ledger).values())
    facts: dict[str, object] = {
        "run": view.info.run,
        "state": _state(
            view.path,
            over=ledger is not None and ledger.over,
            waiting=ledger is not None and ledger.waiting,
        ),
        "rounds": len(histories),
        "trials": _tried(histories),
        "calls": spent.calls,
        "tokens": spent.input_tokens + spent.output_tokens,
        "cost_usd": round(spent.cost_usd, 4),
        **_best(histories),
    }
    return facts if ledger is None else {**facts, "ended": ledger.detail}


def _of_rounds(run_dir: Path, ledger: RoundsSummary | None) -> dict[int, History]:
    """The searches of rounds that have begun, by number."""
    found = {int(path.name): _history(RunView.open(path)) for path in rounds_begun(run_dir)}
    for past in ledger.rounds if ledger else ():
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
        if _history(view).finished:
            return view
    raise _lost(run_dir, number, path)


def _lost(run_dir: Path, number: int, path: Path) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"{path / JOURNAL} has lost the end of the search of round {number}, which "
        f"{run_dir / FILE} refers to: restore it from a backup; {run_dir / 'export'} has the "
        "exported sources"
    )


def _tried(histories: Iterable[History]) -> int:
    """The number of configurations tried."""
    return sum(trial.outcome is not None for each in histories for trial in each.trials.values())


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
    return {"best_of_search": configuration, "speedup_there": round(1 / loss, 3)}


def _print_facts(facts: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        for name, value in facts.items():
            typer.echo(f"{name.replace('_', ' '):<17}{value}")


def stop(run_dir: Path) -> None:
    """Write a stop request, which the run looks for twice a second.

    Raises:
        EnvironmentProblem: the run is not running.
    """
    view = RunView.open(run_dir)
    if not _is_running(run_dir):
        raise EnvironmentProblem(f"{view.path} is not running")
    (run_dir / STOP_FILE).touch()
    typer.echo("stop requested: the run confirms what it found, then ends")


def report(run_dir: Path, *, timeline: bool = False, as_json: bool) -> None:
    """Print the result, or where the time went, also of a run that is running."""
    if timeline:
        _print_timeline(run_dir, as_json=as_json)
        return
    _print(summarise(_history(result_view(run_dir))), run_dir, as_json=as_json)


def _print_timeline(run_dir: Path, *, as_json: bool) -> None:
    """Print where the time of a run and of its rounds went."""
    searches = sorted(path for path in (run_dir / "rounds").glob("*") if begun(path))
    found = timeline_of([RunView.open(path).entries() for path in (run_dir, *searches)])
    typer.echo(timeline_json(found) if as_json else timeline_text(found))


def export(run_dir: Path, *, output: Path | None) -> None:
    """Write the tuned sources and their header.

    Raises:
        NothingValid: nothing was confirmed.
        EnvironmentProblem: the folder cannot be written.
    """
    folder = output or run_dir / "export"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in export_files(_history(result_view(run_dir))).items():
            write_whole(folder / name, text)
            typer.echo(folder / name)
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {folder}: {error.strerror}") from None


def conclude(
    run_dir: Path,
    *,
    as_json: bool,
    learn: Callable[[Path, History, Result], None] = lambda *_: None,
) -> None:
    """Print the result of a finished run, after calling ``learn`` with it.

    Raises:
        NothingValid: no configuration was valid, or the baseline cannot be trusted.
        ModelUnavailable: the models failed before anything was gained.
    """
    ledger = read_summary(run_dir)
    if ledger is not None and ledger.searched is None and ledger.model_failed:
        raise ModelUnavailable(_words(ledger))
    history = _history(result_view(run_dir))
    result = summarise(history)
    learn(run_dir, history, result)
    _print(result, run_dir, as_json=as_json)
    if ledger is not None and ledger.model_failed:
        raise ModelUnavailable(_words(ledger))
    if result.outcome == "nothing_valid":
        why = result.baseline_rejected
        nothing = (
            "no configuration was valid"
            if result.rejected
            else "no configuration was measured: begin a new run with a larger budget"
        )
        raise NothingValid(nothing if why is None else f"the baseline cannot be used: {why.detail}")


def _print(result: Result, run_dir: Path, *, as_json: bool) -> None:
    ledger = read_summary(run_dir)
    histories = _of_rounds(run_dir, ledger) if ledger else {}
    rejected = {number: rejections_line(history) for number, history in histories.items()}
    if as_json:
        found = result.to_json()
        if ledger is not None:
            found["agents"] = {
                **summary_json(ledger),
                "trials": _tried(histories.values()),
                "rejected": rejected,
            }
        typer.echo(json.dumps({**found, "run": str(run_dir)}, indent=2))
        return
    if ledger is not None and len(ledger.rounds) > 1:
        typer.echo(
            f"{_tried(histories.values())} configurations in {len(ledger.rounds)} rounds; the "
            f"result below is from round {ledger.searched}:"
        )
    typer.echo(render(result))
    figures = _figure(result)
    if ledger is not None:
        _print_rounds(ledger, rejected)
        _print_account(run_dir)
        spent = ledger.spent
        tokens = spent.input_tokens + spent.output_tokens
        figures += (
            f" rounds={len(ledger.rounds)} calls={spent.calls} tokens={tokens}"
            f" cost={spent.cost_usd:.2f}"
        )
    typer.echo(f"kernelwright: outcome={result.outcome}{figures} run={run_dir}")


def _figure(result: Result) -> str:
    """The speedup for the last line; named ``unconfirmed`` before confirmation.

    ``plainly`` is that of the same kernel without dependent launches, where the baseline has none.
    """
    if result.speedup is None:
        return ""
    name = "speedup" if result.confirmed else "unconfirmed"
    served = result.portfolio if result.portfolio and len(result.portfolio.members) > 1 else None
    portfolio = f" portfolio={served.speedup:.2f}" if served else ""
    serialised = result.general.serialised if result.general else None
    plainly = f" plainly={serialised:.2f}" if serialised else ""
    return f" {name}={result.speedup:.2f}{plainly}{portfolio}"


def _print_rounds(ledger: RoundsSummary, rejected: Mapping[int, str]) -> None:
    typer.echo("rounds:")
    for past in ledger.rounds:
        found = "" if past.speedup is None else f", {past.speedup:.2f}×"
        if past.interval is not None:
            found += f" [{past.interval[0]:.2f}, {past.interval[1]:.2f}]"
        if past.gain is not None:
            found += f", {past.gain} {past.gain.verdict} against the incumbent"
        if (gain := past.portfolio_gain) is not None and gain != past.gain:
            found += f"; with it the portfolio is {gain} the previous one"
        typer.echo(f"  {past.number}: {inline(past.suggestion.strategy)}")
        typer.echo(f"     {inline(past.verdict)}{found}")
        if failures := rejected.get(past.number):
            typer.echo(f"     {inline(failures)}")
        if past.roofline is not None:
            least, most = past.roofline
            typer.echo(f"     {100 * least:.0f} to {100 * most:.0f} % of the roofline")
        if str(past.static):
            typer.echo(f"     {inline(str(past.static), 1000)}")
    typer.echo(f"  ended: {ledger.detail}\n")


def _print_account(run_dir: Path) -> None:
    exchanges = recorded_exchanges(run_dir / STEPS)
    for name, totals in {**by_round(exchanges), **by_role(exchanges)}.items():
        typer.echo(f"  {name}: {totals}")
    for note in notes_of(exchanges):
        typer.echo(f"  {note}")
    typer.echo()


def _words(ledger: RoundsSummary) -> str:
    lost = [past.verdict for past in ledger.rounds]
    return "; ".join([ledger.detail, *(inline(words) for words in lost[-1:])])


def _state(run_dir: Path, *, over: bool, waiting: bool) -> str:
    if over:
        return "finished"
    if _is_running(run_dir):
        return "running"
    return "waiting" if waiting else "interrupted"


def _awaits_device(history: History) -> bool:
    """Whether the last process of the run had no device."""
    return history.device is not None and history.device.driver == NO_DRIVER


def _history(view: RunView) -> History:
    return History.of(view.experiment, view.entries())


def _is_running(run_dir: Path) -> bool:
    """Whether a process holds the lock of the run directory."""
    try:
        with (run_dir / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {run_dir / 'lock'}: {error.strerror}") from None
    return False
