"""``report``: the result of a run as text, JSON, files and figures; and the end of a run."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

import typer

from agents.brief import inline
from agents.call_costs import by_role, by_round, notes_of
from agents.llm.port import ModelUnavailable
from agents.rounds_summary import STEPS, RoundsSummary, read_summary, summary_json
from agents.step_journal import recorded_exchanges
from cluster.cli.console import say
from cluster.commands.results import (
    history_of,
    result_of,
    result_view,
    rounds_of,
    timeline_of,
    tried,
    write_export,
)
from cluster.runs.resuming import resume_command
from cluster.runs.run_layout import searches_begun
from cluster.runs.run_report import run_document
from cluster.runs.search_run import EXPORT, write_derived
from tuner.errors import EnvironmentProblem, NothingValid
from tuner.export.bundle import export_files
from tuner.files import inside, write_whole
from tuner.journal.history import History
from tuner.printable import counted, printable
from tuner.report.cells import cells_csv
from tuner.report.document import Document
from tuner.report.html import html
from tuner.report.markdown import markdown
from tuner.report.plots import write_figures
from tuner.report.tables import TABLES
from tuner.report.text import render
from tuner.report.timeline import timeline_json, timeline_text
from tuner.report.wrapping import MOST_PROSE, hanging, terminal_width
from tuner.results.rejections import rejections_line
from tuner.results.result import Result
from tuner.results.summary import summarise
from tuner.run_directory import RunDirectory, RunView

FILES: dict[str, Callable[[Document, Result], str]] = {
    "report.html": lambda document, _: html(document),
    "report.md": lambda document, _: markdown(document),
    "report.csv": lambda _, result: cells_csv(result),
}
"""The files of a report in a run directory, and what makes each; ``status.json`` is the JSON."""

FILES_MISSING = 7
"""Exit code of a run that has finished, but whose report, tables or export cannot be written."""


def report(
    run_dir: Path,
    *,
    timeline: bool = False,
    html_files: bool = False,
    figures: Path | None = None,
    as_json: bool,
) -> None:
    """Print the result, or where the time went, also of a run that is running; or write files.

    Raises:
        NothingValid: there is no result.
        EnvironmentProblem: a file cannot be written, or matplotlib is not installed.
    """
    if timeline:
        found = timeline_of(run_dir)
        typer.echo(timeline_json(found) if as_json else timeline_text(found))
        return
    history, result = result_of(run_dir)
    if not (html_files or figures):
        _print(result, run_dir, as_json=as_json)
        return
    document = run_document(RunView.open(run_dir), history, result)
    written = []
    if html_files:
        written = [*_write_files(run_dir, document, result), *_write_tables(run_dir)]
    written += write_figures(document.figures, figures) if figures else []
    typer.echo("\n".join(map(str, written)))


def _write_files(run_dir: Path, document: Document, result: Result) -> list[Path]:
    for name, text in FILES.items():
        write_whole(inside(run_dir, name), printable(text(document, result)))
    return [run_dir / name for name in FILES]


def write_plots(run_dir: Path, folder: Path) -> list[Path]:
    """Write the figures of a run's report as PNG and SVG; return their paths.

    Raises:
        EnvironmentProblem: matplotlib is not installed, or the folder cannot be written.
    """
    document = run_document(RunView.open(run_dir), *result_of(run_dir))
    return write_figures(document.figures, folder)


def _write_tables(run_dir: Path) -> list[Path]:
    """Write the tables of all trials, of each search that has finished."""
    written = []
    for search in searches_begun(run_dir) or [run_dir]:
        history = history_of(RunView.open(search))
        if history.finished:
            for name, table in TABLES.items():
                write_whole(inside(search, name), table(history))
                written.append(search / name)
    return written


def conclude(
    run_dir: Path,
    *,
    as_json: bool,
    learn: Callable[[Path, History, Result], None] = lambda *_: None,
) -> None:
    """Write the report of a finished run, call ``learn`` with its result, and print that.

    Files that cannot be written, say to a full disk, are named on stderr below the result.

    Raises:
        NothingValid: no configuration was valid, or the baseline cannot be trusted.
        ModelUnavailable: the models failed.
        typer.Exit: with ``FILES_MISSING``, if a file cannot be written.
    """
    history, result, problem = _written(run_dir)
    learn(run_dir, history, result)  # first: the reader of what is printed may be gone
    _print(result, run_dir, as_json=as_json)
    _tell(problem, run_dir)
    check_outcome(run_dir, result)
    if problem is not None:
        raise typer.Exit(FILES_MISSING)


def finish(run_dir: Path) -> Result:
    """Write the report of a finished run; return its result.

    Files that cannot be written, say to a full disk, are named on stderr.

    Raises:
        NothingValid: there is no result.
        ModelUnavailable: the models failed before anything was gained.
    """
    _, result, problem = _written(run_dir)
    _tell(problem, run_dir)
    return result


def _written(run_dir: Path) -> tuple[History, Result, EnvironmentProblem | None]:
    """Write what is made of a finished run; return that, and why a file cannot be written."""
    summary = read_summary(run_dir)
    if summary is not None and summary.searched is None and summary.model_failed:
        raise ModelUnavailable(_words(summary))
    view = result_view(run_dir)
    entries = view.entries()
    history = History.of(view.experiment, entries)
    result = summarise(history)
    try:
        if view.status_facts() < len(entries):  # the disk was full when the run ended
            with closing(RunDirectory.open(view.path)) as directory:
                write_derived(directory, history, result, len(entries))
        with suppress(NothingValid):
            names = export_files(history, result)
            if not all((run_dir / EXPORT / name).exists() for name in names):
                write_export(run_dir, run_dir / EXPORT)
        _write_files(run_dir, run_document(RunView.open(run_dir), history, result), result)
    except EnvironmentProblem as error:
        return history, result, error
    return history, result, None


def _tell(problem: EnvironmentProblem | None, run_dir: Path) -> None:
    """Say that files are missing, and how to get them."""
    if problem is not None:
        again = resume_command(run_dir)
        say(f"{problem}; the result is kept: `{again}` then writes the missing files")


def check_outcome(run_dir: Path, result: Result) -> None:
    """Raise the error with which a finished run ends, if its models failed or nothing is valid.

    Raises:
        NothingValid: no configuration was valid, or the baseline cannot be trusted.
        ModelUnavailable: the models failed.
    """
    summary = read_summary(run_dir)
    if summary is not None and summary.model_failed:
        raise ModelUnavailable(_words(summary))
    if result.outcome == "nothing_valid":
        why = result.baseline_rejected
        nothing = (
            "no configuration was valid"
            if result.rejected
            else "no configuration was measured: begin a new run with a larger budget"
        )
        raise NothingValid(nothing if why is None else f"the baseline cannot be used: {why.detail}")


def _print(result: Result, run_dir: Path, *, as_json: bool) -> None:
    summary = read_summary(run_dir)
    histories = rounds_of(run_dir, summary) if summary else {}
    rejected = {number: rejections_line(history) for number, history in histories.items()}
    if as_json:
        found = result.to_json()
        if summary is not None:
            found["agents"] = {
                **summary_json(summary),
                "trials": tried(histories.values()),
                "rejected": rejected,
            }
        typer.echo(json.dumps({**found, "run": str(run_dir)}, indent=2))
        return
    if summary is not None and len(summary.rounds) > 1:
        trials = counted(tried(histories.values()), "trial")
        typer.echo(
            f"{trials} in {len(summary.rounds)} rounds; the result below is from round "
            f"{summary.searched}:"
        )
    width = terminal_width()
    typer.echo(render(result, width))
    figures = _figure(result)
    if summary is not None:
        _print_rounds(summary, rejected, min(width, MOST_PROSE))
        _print_account(run_dir)
        spent = summary.spent
        tokens = spent.input_tokens + spent.output_tokens
        figures += (
            f" rounds={len(summary.rounds)} calls={spent.calls} tokens={tokens}"
            f" cost={spent.cost_usd:.2f}"
        )
    typer.echo(f"kernelwright: outcome={result.outcome}{figures} run={run_dir}")


def _figure(result: Result) -> str:
    """The speedup for the last line with its verdict; ``unconfirmed`` before confirmation.

    A gain or loss whose interval is wide has the interval, too.
    ``plainly`` is that of the same kernel without dependent launches, where the baseline has none.
    """
    if result.speedup is None:
        return ""
    if result.comparison is None:
        return f" unconfirmed={result.speedup:.2f}"
    served = result.portfolio if result.portfolio and len(result.portfolio.members) > 1 else None
    portfolio = f" portfolio={served.speedup:.2f}" if served else ""
    serialised = result.general.serialised if result.general else None
    plainly = f" plainly={serialised:.2f}" if serialised else ""
    verdict = f" verdict={result.comparison.verdict}"
    if result.objective != "time":
        verdict += f" objective={result.objective}"
    interval = result.comparison.caution
    return f" speedup={result.speedup:.2f}{interval}{verdict}{plainly}{portfolio}"


def _print_rounds(summary: RoundsSummary, rejected: Mapping[int, str], width: int) -> None:
    typer.echo("rounds:")
    for past in summary.rounds:
        found = ""
        if past.speedup is not None:  # the interval shown is the result's: it allows for all
            found = f", {past.speedup:.3f}× when the round ended"
        if past.gain is not None:
            found += f", {past.gain} {past.gain.verdict} against the incumbent"
        if (gain := past.portfolio_gain) is not None and gain != past.gain:
            found += f"; with it the portfolio is {gain} the previous one"
        suggested = f"  {past.number}: {inline(past.suggestion.strategy)}"
        typer.echo(hanging(suggested, width, 3))
        lines = [f"     {inline(past.verdict)}{found}"]
        if failures := rejected.get(past.number):
            lines.append(f"     {inline(failures)}")
        if past.roofline is not None:
            least, most = past.roofline
            lines.append(f"     {100 * least:.0f} to {100 * most:.0f} % of the roofline")
        if str(past.static):
            lines.append(f"     {inline(str(past.static))}")
        typer.echo(hanging("\n".join(lines), width))
    typer.echo(f"  ended: {summary.detail}\n")


def _print_account(run_dir: Path) -> None:
    exchanges = recorded_exchanges(run_dir / STEPS)
    for name, totals in {**by_round(exchanges), **by_role(exchanges)}.items():
        typer.echo(f"  {name}: {totals}")
    for note in notes_of(exchanges):
        typer.echo(f"  {note}")
    typer.echo()


def _words(summary: RoundsSummary) -> str:
    lost = [past.verdict for past in summary.rounds]
    return "; ".join([summary.detail, *(inline(words) for words in lost[-1:])])
