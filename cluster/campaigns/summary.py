"""What a campaign found: a row for each run, as text, Markdown, CSV and JSON.

Reads the campaign's folder; writes nothing.
"""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from agents.rounds_summary import read_summary
from cluster.campaigns.folder import Record
from cluster.campaigns.plan import LEAST_SECONDS, PlannedRun
from cluster.commands.results import history_of, result_of, rounds_of, tried
from tuner.errors import KernelwrightError
from tuner.printable import counted, printable_line
from tuner.report.document import Document, Section, Table
from tuner.report.markdown import markdown
from tuner.report.wrapping import hanging
from tuner.results.result import Result
from tuner.results.statistics import interval_text
from tuner.results.verdict import faster_shapes, is_faster_overall, verdict_text
from tuner.run_directory import RunView, begun

NOT_BEGUN, FAILED = "not_begun", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one run; empty where there is nothing to say.

    Attributes:
        outcome: that of the run, ``not_begun``, or ``failed`` without a result.
        verdict: on ``speedup``, the geometric mean over the tune shapes with its interval.
        words: the verdict in a sentence, the last line of a run that failed, or why none began.
        faster_on: on how many of the ``shapes`` (tune shapes) something is faster, where that is
            not so over all of them; ``None`` otherwise.
        trials: configurations tried.
        seconds: of all processes that worked on it.
        code: the exit code of the last one.
    """

    name: str
    outcome: str
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = ""
    faster_on: int | None = None
    shapes: int | None = None
    trials: int | None = None
    seconds: float | None = None
    code: int | None = None
    device: str = ""
    words: str = ""
    spec: str
    run: str = ""

    @property
    def outcome_text(self) -> str:
        """The outcome, and on how many shapes where that is not on all."""
        words = self.outcome.replace("_", " ")
        if self.faster_on is None:
            return words
        return f"{words} on {self.faster_on} of {self.shapes} shapes"

    @property
    def speedup_text(self) -> str:
        """The speedup with its interval and verdict."""
        if self.speedup is None:
            return "-"
        return f"{interval_text(self.speedup, self.low, self.high)} {self.verdict}"


def rows_of(path: Path, record: Record) -> list[Row]:
    """A row for each run of a campaign, in the order in which they begin."""
    return [_row(path / "runs" / run.name, run, record) for run in record.campaign.runs]


def _row(path: Path, run: PlannedRun, record: Record) -> Row:
    ended = record.ended.get(run.name)
    words = printable_line(ended.words) if ended else ""
    code, seconds = (ended.code, ended.seconds) if ended else (None, None)
    row = Row(name=run.name, outcome=FAILED, words=words, code=code, seconds=seconds, spec=run.spec)
    if not begun(path):
        return row if ended else replace(row, outcome=NOT_BEGUN, words=_too_late(record))
    row = replace(row, run=str(path))
    try:
        result, trials = result_of(path)[1], _trials(path)
    except KernelwrightError as error:
        return replace(row, words=printable_line(str(error)))
    found = result.comparison
    partly = result.outcome == "improved" and not is_faster_overall(result)
    return replace(
        row,
        outcome=result.outcome,
        speedup=found.speedup if found else result.speedup,
        low=found.low if found else None,
        high=found.high if found else None,
        verdict=_verdict(result),
        faster_on=len(faster_shapes(result)) if partly else None,
        shapes=sum(not shape.held_out for shape in result.shapes),
        trials=trials,
        device=result.device or "",
        words=words if result.outcome == "unfinished" and words else verdict_text(result),
    )


def _too_late(record: Record) -> str:
    """What to say of a run for which the campaign has too little time left; else nothing."""
    seconds = record.campaign.seconds
    if seconds is None or (left := seconds - record.spent) >= LEAST_SECONDS:
        return ""
    return (
        f"{max(0, int(left))} s of the campaign's {seconds:g} s are left; a run needs at least "
        f"{LEAST_SECONDS:g} s"
    )


def _verdict(result: Result) -> str:
    if result.comparison:
        return result.comparison.verdict
    return "unconfirmed" if result.speedup else ""


def _trials(path: Path) -> int:
    view = RunView.open(path)
    if view.experiment.agents is None:
        return tried([history_of(view)])
    return tried(rounds_of(path, read_summary(path)).values())


def sentence(rows: Sequence[Row]) -> str:
    """How many kernels are faster, and what became of the others."""
    count = Counter(row.outcome for row in rows)
    parts = [
        (count["no_gain"], "without a gain"),
        (count["nothing_valid"], "without a valid configuration"),
        (count["unfinished"], "not finished"),
        (count[FAILED], "failed"),
        (count[NOT_BEGUN], "not begun"),
    ]
    others = ", ".join(f"{number} {what}" for number, what in parts if number)
    partly = sum(row.faster_on is not None for row in rows)
    some = f", {partly} of them on some shapes only" if partly else ""
    more = f"; {others}" if others else ""
    return f"{count['improved']} of {counted(len(rows), 'kernel')} improved{some}{more}."


def text(rows: Sequence[Row], width: int) -> str:
    """A table with a row for each run, wrapped to ``width`` columns; or why it has no result."""
    longest = max(len(name) for name in ("kernel", *(row.name for row in rows)))
    wide = max(13, *(len(row.outcome_text) for row in rows))
    lines = [f"{'kernel':<{longest}}  {'outcome':<{wide}}  {'trials':>6}  {'time':>8}  speedup"]
    for row in rows:
        without = row.outcome in (FAILED, NOT_BEGUN) and row.words
        said = row.words if without else row.speedup_text
        trials = "-" if row.trials is None else str(row.trials)
        line = (
            f"{row.name:<{longest}}  {row.outcome_text:<{wide}}  {trials:>6}  "
            f"{_time(row.seconds):>8}  {said}"
        )
        lines.append(hanging(line, width))
    return "\n".join([*lines, "", sentence(rows)])


def as_markdown(name: str, date: str, rows: Sequence[Row]) -> str:
    """The report as Markdown, with the verdict on each kernel in words."""
    head = ("kernel", "outcome", "speedup", "trials", "time", "device")
    cells = tuple(
        (
            row.name,
            row.outcome_text,
            row.speedup_text,
            "-" if row.trials is None else str(row.trials),
            _time(row.seconds),
            row.device or "-",
        )
        for row in rows
    )
    verdicts = tuple((row.name, row.words or row.outcome_text, row.run or row.spec) for row in rows)
    document = Document(
        title=f"Campaign {name}",
        subtitle=f"{counted(len(rows), 'kernel')}, begun {date}",
        verdict=sentence(rows),
        sections=(
            Section(
                title="Results", parts=(Table(head=head, rows=cells, numbers=frozenset({3, 4})),)
            ),
            Section(
                title="Verdicts",
                parts=(Table(head=("kernel", "verdict", "run"), rows=verdicts),),
            ),
        ),
    )
    return markdown(document)


def as_csv(rows: Sequence[Row]) -> str:
    """The rows with all fields."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(as_data(rows))
    return stream.getvalue()


def as_data(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The rows as JSON data."""
    return [asdict(row) for row in rows]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
