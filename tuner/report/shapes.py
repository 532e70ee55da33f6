"""The sections of a report that show the result: each shape, the configurations, the dispatch."""

from collections.abc import Iterator

from tuner.candidate import BASELINE
from tuner.report.document import Facts, Heading, Part, Section, Table
from tuner.report.figure import Bar, BarRow, Bars
from tuner.report.text import cell_texts, cost_text, figure_text, name_of, speedup_text
from tuner.results.result import Cell, Result, ShapeOfRun, cell_on
from tuner.results.statistics import ERROR_RATE


def shapes_section(result: Result) -> Section:
    """Speedups per shape with their intervals, in each cache state that was timed."""
    special = any(result.own_best(shape) for shape in result.shapes)
    series = ("general", "specialised") if special else ("general",)
    rows = [_row(result, shape, len(series)) for shape in result.shapes]
    shown = any(bar for row in rows for bar in row.bars)
    caption = (
        f"{result.cache.capitalize()} cache. Whiskers: intervals that all hold together in "
        f"{1 - ERROR_RATE:.0%} of runs."
    )
    if special:
        caption += " Specialised: the shape's own best, where it is another."
    figure = Bars(
        name="speedups",
        title="Speedup by shape",
        caption=caption,
        axis="speedup over the baseline (×)",
        series=series,
        rows=tuple(rows),
        reference=(1.0, "baseline"),
    )
    parts: list[Part] = [figure] if shown else []
    parts.append(_table(result, special=special))
    if result.metrics:
        parts += [Heading(text="Metrics"), _metrics(result)]
    if other := result.other_cache:
        parts += [
            Heading(text=f"{other.cache.capitalize()} cache"),
            "Timed for comparison; it decides nothing.",
            Table(
                head=("shape", "baseline", "general", "speedup"),
                rows=tuple(
                    (
                        _label(shape),
                        cost_text(other.baseline_ns[shape.index], other.baseline_mj[shape.index]),
                        *cell_texts(cell_on(other.general, shape.index)),
                    )
                    for shape in result.shapes
                ),
                numbers=frozenset({1, 2}),
            ),
        ]
    return Section(title="Speedups by shape", parts=tuple(parts))


def configurations_section(result: Result) -> Section:
    """What won, and which shapes it serves."""
    return Section(title="Configurations", parts=tuple(_configurations(result)))


def _configurations(result: Result) -> Iterator[Part]:
    pairs = []
    if one := result.general:
        held = f"; {one.held_out:.3f}× on held-out shapes" if one.held_out else ""
        words = f"{name_of(result, one.trial)}: {one.configuration}"
        pairs.append(
            (
                "general",
                f"{words}; {speedup_text(one.speedup, one.comparison)} on tune shapes{held}",
            )
        )
    for shape in result.shapes:
        if best := result.own_best(shape):
            words = f"{name_of(result, best.trial)}: {best.configuration}"
            pairs.append((shape.label, "; ".join(filter(None, (words, result.gain_of(best))))))
    if not pairs:
        yield "No configuration was confirmed."
        return
    yield Facts(pairs=tuple(pairs))
    portfolio = result.portfolio
    if portfolio is None or len(portfolio.rule) < 2:
        return
    members = {member.trial: str(member.configuration) for member in portfolio.members}
    yield Heading(text="Dispatch")
    held = f", {portfolio.held_out:.3f}× on held-out shapes" if portfolio.held_out else ""
    yield (
        f"The exported header picks a configuration by shape: {portfolio.comparison} "
        f"{portfolio.comparison.verdict} on tune shapes{held}."
    )
    yield Table(
        head=("where", "what is launched"),
        rows=tuple(
            (
                " and ".join(map(str, rule.when)),
                "the baseline"
                if rule.trial == BASELINE
                else f"{name_of(result, rule.trial)}: {members[rule.trial]}",
            )
            for rule in portfolio.rule
        ),
    )


def _row(result: Result, shape: ShapeOfRun, bars: int) -> BarRow:
    best = result.own_best(shape)
    both = (_bar(cell_on(result.general_cells, shape.index)), _bar(best.cell if best else None))
    return BarRow(label=_label(shape), bars=both[:bars])


def _bar(cell: Cell | None) -> Bar | None:
    if cell is None or cell.speedup is None:
        return None
    found = cell.comparison
    return Bar(
        value=cell.speedup,
        text=str(found) if found else f"{cell.speedup:.3f}× unconfirmed",
        low=found.low if found else None,
        high=found.high if found else None,
    )


def _table(result: Result, *, special: bool) -> Table:
    """A row for each shape; the last two columns are for other configurations than the general."""
    rows = []
    for shape in result.shapes:
        own = result.own_best(shape)
        rows.append(
            (
                _label(shape),
                cost_text(shape.baseline_ns, shape.baseline_mj),
                _scatter(shape.baseline_scatter),
                *cell_texts(cell_on(result.general_cells, shape.index)),
                *(cell_texts(own.cell) if own else ("", "")),
            )
        )
    columns = ("shape", "baseline", "scatter", "general", "speedup", "specialised", "speedup")
    shown = len(columns) if special else len(columns) - 2
    numbers = frozenset({1, 2, 3, 5}) & frozenset(range(shown))
    return Table(head=columns[:shown], rows=tuple(row[:shown] for row in rows), numbers=numbers)


def _metrics(result: Result) -> Table:
    """The spec's own figures, for the times of the table above."""
    columns = [
        (f"{one.name}, {kind}", getattr(one, kind))
        for one in result.metrics
        for kind in ("baseline", "general", "specialised")
    ]
    rows = tuple(
        (
            _label(shape),
            *(
                figure_text(values[shape.index] if shape.index < len(values) else None)
                for _, values in columns
            ),
        )
        for shape in result.shapes
    )
    head = ("shape", *(name for name, _ in columns))
    return Table(head=head, rows=rows, numbers=frozenset(range(1, len(head))))


def _label(shape: ShapeOfRun) -> str:
    return shape.label + (" (held out)" if shape.held_out else "")


def _scatter(scatter: float | None) -> str:
    return "-" if scatter is None else f"{scatter:.1%}"
