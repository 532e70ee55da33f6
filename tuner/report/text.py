"""The result as plain text for a terminal of 80 columns or more."""

from collections.abc import Iterable, Iterator, Sequence

from tuner.candidate import BASELINE, INCUMBENT
from tuner.printable import counted
from tuner.report.wrapping import MOST_PROSE, WIDTH, hanging, wrapped
from tuner.results.result import Cell, General, Portfolio, Result, ShapeBest, ShapeOfRun, cell_on
from tuner.results.statistics import Comparison
from tuner.results.verdict import objective_text, outcome_text
from tuner.trial import geometric_mean

_INDENT = 13

_ENDED = {
    "trials": "trial budget spent",
    "seconds": "its time is spent; any rest of search.seconds is for confirming",
    "device_seconds": "device-time budget spent",
    "exhausted": "every configuration tried",
    "stopped": "stopped on request",
    "interrupted": "interrupted",
    "baseline": "the baseline cannot be used",
    "fleet": "too many workers lost",
}

_PLAINLY = "  launched plainly"

_SIGNS = {
    "*": "held out: confirmed, never searched",
    "-": "infeasible or not measured there",
}


def render(result: Result, width: int = WIDTH) -> str:
    """The whole report in lines of ``width`` columns, ending with a newline."""
    width = max(width, WIDTH)
    prose = min(width, MOST_PROSE)
    parts = [_heading(result)]
    if result.outcome == "unfinished" and not result.baseline_rejected:
        parts.append(hanging(outcome_text(result), prose))
    if rejected := result.baseline_rejected:
        where = f"{rejected.stage}, {rejected.code}"
        parts.append(f"The baseline cannot be used: {rejected.detail} ({where}).")
    if result.general or any(result.specialised):
        parts.append(_tables(result, width))
        if result.metrics:
            parts.append(_metrics(result, width))
        if result.outcome == "no_gain":
            parts.append(hanging(outcome_text(result), prose))
        groups = ((*_winners(result),), (*_device(result),))
        parts += ["\n".join(labelled(prose, *each) for each in group) for group in groups]
    elif not result.baseline_rejected:
        parts.append(_nothing(result))
    notes = [f"note: {note}" for note in result.notes]
    for lines in (result.advice, notes):
        if lines:
            parts.append("\n".join(hanging(line, prose) for line in lines))
    return "\n\n".join(parts) + "\n"


def _nothing(result: Result) -> str:
    """Why there is no table."""
    if result.ended is None:
        return "Nothing was measured yet."
    if result.rejected:
        return "No configuration was valid."
    return (
        f"The search ended ({result.ended}) before anything was measured: "
        "begin a new run with a larger budget."
    )


def time_text(nanoseconds: float | None) -> str:
    """A time with four digits and a suitable unit; ``-`` for ``None``."""
    if nanoseconds is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.4g} ns"


def cost_text(nanoseconds: float | None, millijoules: float | None) -> str:
    """A time, and the energy behind it where that is measured."""
    if millijoules is None:
        return time_text(nanoseconds)
    for unit, size in (("J", 1e3), ("mJ", 1.0), ("µJ", 1e-3)):
        if millijoules >= size:
            return f"{time_text(nanoseconds)}, {millijoules / size:.4g} {unit}"
    return f"{time_text(nanoseconds)}, {millijoules * 1e6:.4g} nJ"


def speedup_text(speedup: float | None, comparison: Comparison | None) -> str:
    """A speedup with interval and verdict, or marked as unconfirmed."""
    if speedup is None:
        return "-"
    return f"{comparison} {comparison.verdict}" if comparison else f"{speedup:.3f}× unconfirmed"


def _heading(result: Result) -> str:
    finished = result.measured + result.rejected
    unmeasured = result.trials - finished - result.merged
    counts = [f"{result.measured} measured", f"{result.rejected} rejected"]
    if result.merged:
        counts.append(f"{result.merged} more with the same code as another")
    if unmeasured > 0:
        when = " when the search ended" if result.ended else ""
        counts.append(f"{unmeasured} more not yet measured{when}")
    lines = [
        f"{result.experiment} on {result.device or 'no device yet'} ({result.backend})",
        f"{counted(finished, 'trial')} in {result.searched_seconds:.1f} s: " + ", ".join(counts),
    ]
    if result.ended:
        lines.append(f"search ended: {_ENDED[result.ended]}")
    if objective := objective_text(result.objective):
        lines.append(hanging(objective, WIDTH))
    return "\n".join(lines)


def _tables(result: Result, width: int) -> str:
    """The winners on each shape, for each cache state that was timed."""
    baseline = [cost_text(shape.baseline_ns, shape.baseline_mj) for shape in result.shapes]
    best = [best.cell if best else None for best in result.specialised]
    tables = [_table(result, width, result.cache, baseline, result.general_cells, best)]
    if other := result.other_cache:
        tables.append(
            _table(
                result,
                width,
                other.cache,
                list(map(cost_text, other.baseline_ns, other.baseline_mj)),
                other.general,
                other.specialised,
            )
        )
    return "\n\n".join(tables)


def _table(
    result: Result,
    width: int,
    cache: str,
    baseline: Sequence[str],
    general: Sequence[Cell],
    specialised: Sequence[Cell | None],
) -> str:
    """A row per shape for the general configuration, and one for a better one on that shape."""
    copies = cache == "cold" and any(shape.least_ns for shape in result.shapes)
    rows: list[tuple[str, ...]] = [("shape", "baseline", "time", "speedup", "of copy speed")]
    for shape in result.shapes:
        cell = cell_on(general, shape.index)
        copy = "-"
        if shape.least_ns and cell and cell.time_ns:
            copy = f"{100 * shape.least_ns / cell.time_ns:.0f} %"
        label = shape.label + (" *" if shape.held_out else "")
        rows.append((label, baseline[shape.index], *cell_texts(cell), copy))
        rows += _serialised(cell)
        if best := result.own_best(shape):
            name = f"  {name_of(result, best.trial)}"
            rows.append((name, "", *cell_texts(specialised[shape.index]), ""))
            rows += _serialised(specialised[shape.index])
    if not copies:
        rows = [row[:-1] for row in rows]
    signs = [
        f"{sign} {words}"
        for sign, words in _SIGNS.items()
        if any(text == sign or text.endswith(f" {sign}") for row in rows for text in row)
    ]
    title = f"{cache} cache; time: median per run, speedup: mean of the processes"
    return "\n".join([title, aligned(rows, width), *([f"({'; '.join(signs)})"] if signs else ())])


def _metrics(result: Result, width: int) -> str:
    """The spec's own figures: of the baseline, then of the configuration in the row."""
    rows: list[tuple[str, ...]] = [("shape", *(metric.name for metric in result.metrics))]
    for shape in result.shapes:
        figures = (
            f"{figure_text(one.baseline[shape.index])} → {figure_text(one.general[shape.index])}"
            for one in result.metrics
        )
        rows.append((shape.label + (" *" if shape.held_out else ""), *figures))
        if best := result.own_best(shape):
            own = (figure_text(metric.specialised[shape.index]) for metric in result.metrics)
            rows.append((f"  {name_of(result, best.trial)}", *(f"→ {one}" for one in own)))
    return "\n".join(["metrics: baseline → general configuration", aligned(rows, width)])


def figure_text(value: float | None) -> str:
    """A metric with four digits; ``-`` for ``None``."""
    return "-" if value is None else f"{value:.4g}"


def cell_texts(cell: Cell | None) -> tuple[str, str]:
    """Time, with the energy if measured, and speedup of a cell."""
    if cell is None:
        return "-", "-"
    return cost_text(cell.time_ns, cell.millijoules), speedup_text(cell.speedup, cell.comparison)


def _serialised(cell: Cell | None) -> Iterator[tuple[str, ...]]:
    """A row for a cell that is launched dependently, unlike the baseline: its plain launches."""
    if cell and cell.serialised_ns:
        speedup = cell.serialised.speedup if cell.serialised else None
        yield (
            _PLAINLY,
            "",
            time_text(cell.serialised_ns),
            speedup_text(speedup, cell.serialised),
            "",
        )


def aligned(rows: Sequence[Sequence[str]], width: int) -> str:
    """Columns side by side; a first cell that leaves no room for the rest has its own line."""
    widths = [max(len(row[column]) for row in rows) for column in range(1, len(rows[0]))]
    room = max(width - sum(widths) - 2 * len(widths), 2)
    first = max([len(row[0]) for row in rows if len(row[0]) <= room], default=2)
    lines = []
    for label, *cells in rows:
        if len(label) > first:
            lines.append(label)
            label = ""
        columns = zip((label, *cells), (first, *widths), strict=True)
        lines.append("  ".join(text.ljust(size) for text, size in columns).rstrip())
    return "\n".join(lines)


def labelled(width: int, label: str, *paragraphs: str) -> str:
    """Wrapped paragraphs behind a label."""
    indent = " " * _INDENT
    lines = [wrapped(paragraph, width, indent, indent) for paragraph in paragraphs]
    return label.ljust(_INDENT) + "\n".join(lines)[_INDENT:]


def _device(result: Result) -> Iterator[tuple[str, ...]]:
    if result.ceilings:
        yield ("ceilings", str(result.ceilings))
    yield (
        "telemetry",
        str(result.telemetry)
        if result.telemetry
        else f"clocks, power and temperature are not available with {result.backend}",
    )


def _winners(result: Result) -> Iterator[tuple[str, ...]]:
    if result.general:
        yield ("general", *_general(result, result.general))
    else:
        yield ("general", "none: no configuration is valid on every tune shape")
    if result.dependent or result.baseline_dependent:
        yield ("launches", _launches(result))
    if result.best_new:
        yield ("best new", *_general(result, result.best_new))
    for shape in result.shapes:
        if best := result.own_best(shape):
            yield ("specialised", *_specialised(result, shape, best))
    if portfolio := result.portfolio:
        if len(portfolio.rule) > 1:
            yield ("portfolio", *_portfolio(result, portfolio))
        for cell in portfolio.cells:
            if cell.speedup and cell.comparison and cell.comparison.verdict == "slower":
                where = f"than your kernel on {result.shapes[cell.shape].label}"
                remedy = "add a tune shape near it so that dispatch learns it"
                yield "slower", f"{where} ({cell.speedup:.3f}×): {remedy}"
    if result.inactive:
        yield ("no effect", ", ".join(map(str, result.inactive)))


def _launches(result: Result) -> str:
    """Whether baseline and finalists are launched dependently."""
    names = ["the baseline"] if result.baseline_dependent else []
    names += [name_of(result, trial) for trial in result.dependent]
    text = f"dependent launches (may begin before the launch ahead has ended): {', '.join(names)}"
    if result.baseline_dependent:
        return text
    return f"{text}; the baseline is launched plainly"


def _specialised(result: Result, shape: ShapeOfRun, best: ShapeBest) -> Iterator[str]:
    """A shape's own winner, and whether it is exported."""
    yield f"{shape.label}: {name_of(result, best.trial)}: {best.configuration}"
    if words := result.gain_of(best):
        yield words
    yield from _unseen([best.cell])


def _general(result: Result, general: General) -> Iterator[str]:
    """A configuration for all shapes, with its speedups."""
    yield f"{name_of(result, general.trial)}: {general.configuration}"
    yield f"{speedup_text(general.speedup, general.comparison)} {_shapes(general.held_out)}"
    if general.serialised:
        yield f"{general.serialised:.3f}× if launched plainly, as the baseline is"
    yield from _unseen(general.cells)
    if general.gain:
        yield f"{general.gain} {general.gain.verdict}, compared with the incumbent"


def _unseen(cells: Iterable[Cell]) -> Iterator[str]:
    """How these cells fare on inputs that they never saw, where that was measured."""
    ratios = [cell.unseen for cell in cells if cell.unseen]
    if ratios:
        ratio = geometric_mean(ratios, [1.0] * len(ratios))
        yield f"{ratio:.2f} times as long on inputs never seen as on repeated ones"


def _shapes(held_out: float | None) -> str:
    return "on tune shapes" + (f", {held_out:.3f}× on held-out" if held_out else "")


def name_of(result: Result, trial: int) -> str:
    """What a trial or an incumbent is called."""
    if trial > INCUMBENT:
        return f"trial {trial}"
    origin = result.origins[INCUMBENT - trial]
    return f"incumbent ({origin})" if origin else "incumbent"


def _portfolio(result: Result, portfolio: Portfolio) -> Iterator[str]:
    """The rule with its configurations, and the speedup of the whole."""
    comparison = portfolio.comparison
    yield f"{comparison} {comparison.verdict} {_shapes(portfolio.held_out)}"
    members = {member.trial: member for member in portfolio.members}
    for rule in portfolio.rule:
        where = " and ".join(map(str, rule.when))
        if rule.trial == BASELINE:
            yield f"{where}: the baseline"
            continue
        member = members[rule.trial]
        gain = f" (adds {100 * (member.gain - 1):.1f} %)" if member.gain else ""
        yield f"{where}: {name_of(result, rule.trial)}: {member.configuration}{gain}"
    if portfolio.gain:
        yield f"{portfolio.gain} compared with the portfolio before this search"
    if portfolio.other_symbols:
        yield (
            f"{', '.join(portfolio.other_symbols)} would separate the tune shapes as well: add a "
            "tune shape to decide"
        )
