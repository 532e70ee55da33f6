"""Reports as files: pages, Markdown, tables and figures, also of hostile text."""

import csv
import io
import re
import warnings
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_facts, finished_run, with_energy
from tuner.errors import EnvironmentProblem
from tuner.journal.facts import Entry, TrialProposed
from tuner.journal.timeline import timeline
from tuner.report.cells import COLUMNS, cells_csv
from tuner.report.convergence import Search, convergence
from tuner.report.device import environment_section, roofline_section, time_section
from tuner.report.document import Document, Facts, Heading, Listing, Section, Table
from tuner.report.figure import Bar, BarRow, Bars, Grid, Interval, Line, Lines, Schedule, ticks
from tuner.report.html import html
from tuner.report.markdown import markdown
from tuner.report.plots import write_figures
from tuner.report.search import convergence_section, parameters_section, rejections_section
from tuner.report.shapes import configurations_section, shapes_section
from tuner.report.svg import svg
from tuner.results.summary import summarise
from tuner.trial import Code, Configuration, Rejected, Stage

BASE = [1000.0, 2000.0, 4000.0]
WRONG = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="<b>1 is not 2", shape=1)
TRIALS = [
    ({"x": 0}, [500.0, 1000.0, 2000.0]),
    ({"x": 1}, [400.0, 2000.0, 4000.0]),
    ({"x": 2}, WRONG),
]
HOSTILE = "</pre><script src=http://x>`|*\n# no heading"


def whole_document():
    given = (experiment(), GPU, BASE, TRIALS)
    history, facts = finished_run(*given), finished_facts(*given)
    entries = [Entry(fact, at=float(t), t=float(t)) for t, fact in enumerate(facts)]
    result = summarise(history)
    return Document(
        title=HOSTILE,
        subtitle="on a device",
        verdict="faster",
        sections=(
            shapes_section(result),
            configurations_section(result),
            convergence_section([Search(name="", experiment=experiment(), entries=entries)]),
            parameters_section(history),
            rejections_section([history]),
            roofline_section(result, history),
            time_section(timeline([entries]), entries),
            environment_section(result, history, [(("driver", HOSTILE),)]),
            Section(
                title="Foreign",
                parts=(
                    HOSTILE,
                    Heading(text=HOSTILE),
                    Facts(pairs=((HOSTILE, HOSTILE),)),
                    Table(head=(HOSTILE,), rows=((HOSTILE,),)),
                    Listing(text=f"+{HOSTILE}", language="diff", summary=HOSTILE),
                ),
            ),
        ),
    )


class Reader(HTMLParser):
    """Reads a page: every element is closed, and what could load something is kept."""

    VOID = ("meta", "link", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links = [], set(), []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("href", "src", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_page_is_whole_loads_nothing_and_quotes_foreign_text():
    page = html(whole_document())
    read = Reader(page)
    assert not read.tags & {"script", "img", "iframe", "link", "object", "b>1"}
    assert all(link.startswith("#") for link in read.links)
    assert "url(" not in page
    assert "default-src 'none'" in page
    assert len(page.encode()) < 1_000_000


def test_markdown_has_every_section_and_no_foreign_markup():
    text = re.sub(r"(?ms)^```\w*$.*?^```$", "", markdown(whole_document()))
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert "## Speedups by shape" in headings
    assert "# no heading" not in headings
    assert "| n=256 | 1 µs |" in text
    assert "\\<script" in text


def test_each_shape_has_its_speedup_interval_baseline_and_scatter_as_csv():
    result = summarise(finished_run(experiment(), GPU, BASE, TRIALS))
    rows = list(csv.DictReader(io.StringIO(cells_csv(result))))
    assert list(rows[0]) == COLUMNS
    general = {row["shape"]: row for row in rows if row["configuration_is"] == "general"}
    assert {shape: float(row["speedup"]) for shape, row in general.items()} == pytest.approx(
        {"n=256": 2.0, "n=1024": 2.0, "n=4096": 2.0}
    )
    one = general["n=256"]
    assert float(one["low"]) <= 2.0 <= float(one["high"])
    assert (float(one["baseline_ns"]), float(one["baseline_scatter"])) == (1000.0, 0.0)
    assert [row["trial"] for row in rows if row["configuration_is"] == "specialised"] == ["1", "0"]


def test_the_best_so_far_never_falls_and_goes_on_over_searches():
    facts = finished_facts(experiment(), GPU, BASE, TRIALS)
    entries = [Entry(fact, t=float(t)) for t, fact in enumerate(facts)]
    searches = [Search(name=n, experiment=experiment(), entries=entries) for n in ("one", "two")]
    over_trials, over_seconds, _ = convergence(searches)
    assert [name for _, name in over_trials.marks] == ["one", "two"]
    for figure in (over_trials, over_seconds):
        best, tried = figure.lines
        assert [y for _, y in best.points] == sorted(y for _, y in best.points)
        assert len(tried.points) == 4


FIGURES = (
    Bars(
        name="bars",
        title="<&>",
        caption="",
        axis="×",
        series=("a", "b"),
        rows=(
            BarRow(label="a<b" * 40, bars=(Bar(value=2, text="2×", low=1.5, high=2.5), None)),
            BarRow(label="", bars=(None, Bar(value=0.0, text="0×"))),
            BarRow(label="wide", bars=(Bar(value=1, text="1×", low=0.01, high=100.0), None)),
        ),
        reference=(1.0, "baseline"),
    ),
    Bars(name="none", title="", caption="", axis="", series=("a",), rows=()),
    Lines(
        name="lines",
        title="l",
        caption="",
        x_axis="x",
        y_axis="y",
        lines=(
            Line(name="best", style="steps", points=((1.0, 1.0), (5.0, 2.0))),
            Line(name="each", style="points", points=((3.0, -9.0),)),
        ),
        floor=0.5,
        marks=((0.0, "round 1"), (1.0, "round 2")),
        reference=(1.0, "baseline"),
    ),
    Lines(name="flat", title="", caption="", x_axis="", y_axis="", lines=(), floor=1.0),
    Grid(
        name="grid",
        title="g",
        caption="",
        x_axis="x",
        y_axis="y",
        cell_axis="z",
        columns=("1", "2"),
        rows=("a",),
        cells=((1.0, None),),
    ),
    Schedule(
        name="schedule",
        title="s",
        caption="",
        axis="s",
        rows=("worker" * 20,),
        kinds=("compiling", "timing"),
        intervals=(Interval(row=0, kind=1, began=0.0, ended=1.0),),
    ),
)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_drawn_inside_its_frame(figure):
    drawn = ElementTree.fromstring(svg(figure))
    _, _, width, height = map(float, drawn.get("viewBox").split())
    for part in drawn.iter("text"):
        assert -1 <= float(part.get("x", 0)) <= width
        assert float(part.get("y", 0)) <= height
    for part in drawn.iter("rect"):
        assert float(part.get("x")) + float(part.get("width")) <= width + 1


def test_one_wide_interval_does_not_shorten_all_bars():
    wide, narrow, none = FIGURES[0], replace(FIGURES[0], rows=FIGURES[0].rows[:1]), FIGURES[1]
    assert (wide.end, narrow.end, none.end) == (6, 2.5, 0)


@pytest.mark.slow
def test_figures_for_papers_are_written_as_png_and_svg(tmp_path):
    pytest.importorskip("matplotlib")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of what leaves no room to draw
        written = write_figures(FIGURES, tmp_path / "figures")
    assert len(written) == 2 * len(FIGURES)
    assert all(path.stat().st_size > 1000 for path in written)
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot write"):
        write_figures(FIGURES, tmp_path / "file")


def test_trials_that_were_never_measured_do_not_count_as_accepted():
    history = finished_run(experiment(), GPU, BASE, TRIALS[:2])
    proposed = TrialProposed(trial=2, configuration=Configuration.of({"x": 2}))
    history.apply(Entry(proposed, t=3.0))
    assert rejections_section([history]).parts == ("None of 2 configurations was rejected.",)


def test_ticks_are_round_numbers_inside_the_range():
    assert ticks(0, 2.1) == pytest.approx([0, 0.5, 1, 1.5, 2])
    assert ticks(0.93, 1.33) == pytest.approx([1.0, 1.1, 1.2, 1.3])
    assert ticks(0, 0.0007) == pytest.approx([0, 0.0002, 0.0004, 0.0006])
    assert ticks(3, 3) == [3]


def test_a_page_has_no_column_for_configurations_that_there_are_none_of():
    alone = summarise(finished_run(experiment(), GPU, BASE, TRIALS[:1]))
    figure, table = shapes_section(alone).parts
    assert (figure.series, table.head[-2:]) == (("general",), ("general", "speedup"))
    assert all(len(row) == len(table.head) for row in table.rows)
    figure, table = shapes_section(summarise(finished_run(experiment(), GPU, BASE, TRIALS))).parts
    assert (figure.series[-1], table.head[-2:]) == ("specialised", ("specialised", "speedup"))


def test_effects_of_parameters_are_those_on_what_is_minimised():
    spec = replace(experiment(), objective="energy")
    history = finished_run(spec, GPU, BASE, TRIALS, told=with_energy)
    figures = [part for part in parameters_section(history).parts if isinstance(part, Bars)]
    assert [figure.caption.split(",")[0] for figure in figures] == [
        "ω² of log energy",
        "Median energy over the configurations with the value",
    ]
