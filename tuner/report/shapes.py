"""The sections of a report that show the result: each shape, the configurations, the dispatch."""

from collections.abc import Iterator

from tuner.candidate import BASELINE
from tuner.report.document import Facts, Heading, Part, Section, Table
from tuner.report.figure import Bar, BarRow, Bars
from tuner.report.text import cost_text, figure_text, name_of, speedup_text
from tuner.results.result import Cell, Result, ShapeOfRun
from tuner.results.statistics import ERROR_RATE


def shapes_section(result: Result) -> Section:
    """Speedups per shape with their intervals, in each cache state that was timed."""
    special = any(_own_best(result, shape) for shape in result.shapes)
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
                        *_cell(_at(other.general, shape.index)),
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
    for index, best in enumerate(result.specialised):
        if best and not (result.general and best.trial == result.general.trial):
            words = f"{name_of(result, best.trial)}: {best.configuration}"
            if best.gain:
                words += f"; {best.gain} {best.gain.verdict}, compared with the general one"
            pairs.append((result.shapes[index].label, words))
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
    general = _at(result.general.cells if result.general else (), shape.index)
    both = (_bar(general), _bar(_own_best(result, shape)))
    return BarRow(label=_label(shape), bars=both[:bars])


def _own_best(result: Result, shape: ShapeOfRun) -> Cell | None:
    """The cell of a tune shape's own best configuration, if that is not the general one."""
    best = None if shape.held_out else result.specialised[shape.index]
    if best is None or (result.general and best.trial == result.general.trial):
        return None
    return best.cell


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
        general = _at(result.general.cells if result.general else (), shape.index)
        own = _own_best(result, shape)
        rows.append(
            (
                _label(shape),
                cost_text(shape.baseline_ns, shape.baseline_mj),
                _scatter(shape.baseline_scatter),
                *_cell(general),
                *(_cell(own) if own else ("", "")),
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


def _cell(cell: Cell | None) -> tuple[str, str]:
    if cell is None:
        return "-", "-"
    return cost_text(cell.time_ns, cell.millijoules), speedup_text(cell.speedup, cell.comparison)


def _at(cells: tuple[Cell, ...], shape: int) -> Cell | None:
    return next((cell for cell in cells if cell.shape == shape), None)
