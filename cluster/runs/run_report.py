"""The report of a run directory as a document: composes the sections of tuner and agents.

Reads the run directory; writes nothing.
"""

import json
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from agents.call_costs import by_round
from agents.rounds_section import resource_row, rounds_section
from agents.rounds_summary import STEPS, RoundsSummary, read_summary
from agents.step_journal import StepFiles, Steps, recorded_exchanges
from agents.variants import read_variants
from cluster.runs.agent_run import BASELINE_STEP
from cluster.runs.evaluator import BASELINES
from cluster.runs.model_choice import TRANSCRIPT, transcript_beside
from cluster.runs.run_layout import searches_begun
from tuner.errors import SpecError
from tuner.files import UnreadableFile, read_bounded
from tuner.journal.history import History
from tuner.journal.timeline import timeline
from tuner.report.convergence import Search
from tuner.report.device import date_text, environment_section, roofline_section, time_section
from tuner.report.document import Document, Listing, Section
from tuner.report.search import convergence_section, parameters_section, rejections_section
from tuner.report.shapes import configurations_section, shapes_section
from tuner.results.rejections import rejections_line
from tuner.results.result import Result
from tuner.results.verdict import verdict_text
from tuner.run_directory import RunView

_ENVIRONMENT_BYTES = 1 << 20


def run_document(view: RunView, history: History, result: Result) -> Document:
    """The whole report.

    Args:
        view: the run directory.
        history: of the search that holds the result.
        result: of that history.
    """
    own = Search(name="", experiment=view.experiment, entries=view.entries())
    summary = read_summary(view.path) if view.experiment.agents else None
    searches = {path.name: _search(path) for path in searches_begun(view.path)}
    rounds = {int(name): one for name, one in searches.items() if name.isdecimal()}
    histories = {number: History.of(one.experiment, one.entries) for number, one in rounds.items()}
    journals = [own.entries, *(one.entries for one in searches.values())]
    worked = [entry for journal in journals for entry in journal]
    sections = [
        shapes_section(result),
        configurations_section(result),
        convergence_section(list(rounds.values()) or [own]),
    ]
    if summary is not None:
        sections.append(_rounds(view, summary, histories))
    sections += [
        parameters_section(history),
        rejections_section(list(histories.values()) or [history]),
        roofline_section(result, history, _resources(view, summary)),
        time_section(timeline(journals), worked),
        environment_section(result, history, _environments(view.path)),
        _reproduce(view),
    ]
    device = result.device or "no device yet"
    return Document(
        title=f"{result.experiment} on {device}",
        subtitle=f"{result.backend}, {date_text(view.info.created)}, run {view.info.run}",
        verdict=verdict_text(result),
        sections=tuple(sections),
    )


def _search(path: Path) -> Search:
    view = RunView.open(path)
    name = f"round {int(path.name)}" if path.name.isdecimal() else path.name
    return Search(name=name, experiment=view.experiment, entries=view.entries())


def _rounds(view: RunView, summary: RoundsSummary, histories: Mapping[int, History]) -> Section:
    return rounds_section(
        summary,
        view.experiment.kernel.source.text,
        read_variants(view.path / "variants"),
        {number: rejections_line(history) for number, history in histories.items()},
        by_round(recorded_exchanges(view.path / STEPS)),
    )


def _resources(view: RunView, summary: RoundsSummary | None) -> list[tuple[str, ...]]:
    """Registers, spills and occupancy of the baseline and of each round's best."""
    if summary is None:
        return []
    steps = Steps(StepFiles(view.path / STEPS), time.monotonic)
    rows: list[tuple[str, ...]] = []
    with suppress(SpecError):
        rows += resource_row("baseline", steps.recall(BASELINE_STEP, BASELINES).static)
    for past in summary.rounds:
        rows += resource_row(f"best of round {past.number}", past.static)
    return rows


def _environments(run: Path) -> list[tuple[tuple[str, str], ...]]:
    """Each distinct environment that the run was in, as terms and texts."""
    found: list[tuple[tuple[str, str], ...]] = []
    for file in sorted((run / "environment").glob("*.json")):
        try:
            data = json.loads(read_bounded(file, _ENVIRONMENT_BYTES) or "{}")
        except (UnreadableFile, ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            compilers = data.get("compilers")
            listed = compilers.items() if isinstance(compilers, dict) else ()
            text = ", ".join(f"{name} {version}" for name, version in listed)
            driver = (("driver", str(data.get("driver", ""))),)
            found.append((*driver, ("compilers", text)) if text else driver)
    return found


def _reproduce(view: RunView) -> Section:
    """Commands that measure the result again, and that repeat the search."""
    run = shlex.quote(str(view.path))
    spec = view.path / "spec.resolved.yaml"
    fleet = f" --fleet {view.info.fleet}" if view.info.fleet else ""
    again = f"kernelwright run {shlex.quote(str(spec))}{fleet}"
    if view.experiment.agents is not None:
        transcript = transcript_beside(spec, view.experiment)
        copied = shlex.join(["cp", str(view.path / TRANSCRIPT), str(transcript)])
        again = f"{copied}\n{again} --model replay"
    commands = [
        "# measure the claims again, from the exported sources",
        f"kernelwright verify {run}",
        "# the same run again, from the spec with all its sources inlined",
        again,
        "# this report again, and its figures for a paper",
        f"kernelwright report {run} --html",
        f"kernelwright report {run} --figures figures",
    ]
    return Section(
        title="Reproduce",
        parts=(Listing(text="\n".join(commands), language="sh"),),
    )
