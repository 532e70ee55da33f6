"""The result as plain text for a terminal: tables, verdicts, and what to do next."""

from collections.abc import Sequence

from tuner.engine.fleet import BASELINE, INCUMBENT
from tuner.results.result import Cell, General, Portfolio, Result, ShapeBest, ShapeOfRun
from tuner.results.statistics import Comparison

_ENDED = {
    "trials": "the trial budget is spent",
    "seconds": "the time budget is spent",
    "device_seconds": "the budget of device time is spent",
    "exhausted": "every configuration was tried",
    "stopped": "it was stopped",
    "interrupted": "it was interrupted",
    "baseline": "the baseline cannot be used",
    "fleet": "the fleet lost too many workers",
}

_SIGNS = {
    "=": "the general configuration is the best there, too",
    "-": "not confirmed there; held-out shapes have no winner of their own",
}


def render(result: Result) -> str:
    """The whole report, ending with a newline."""
    parts = [_heading(result)]
    if result.refused:
        why = result.refused
        parts.append(f"The baseline cannot be used: {why.detail} ({why.stage}, {why.code}).")
    if result.general or any(result.specialised):
        parts += [_table(result), *_winners(result), _device(result)]
    elif not result.refused:
        parts.append("No configuration was valid." if result.ended else "Nothing was measured yet.")
    if result.advice:
        parts.append("\n".join(result.advice))
    if result.notes:
        parts.append("\n".join(f"note: {note}" for note in result.notes))
    return "\n\n".join(parts) + "\n"


def time_text(nanoseconds: float | None) -> str:
    """A time with a unit that suits it."""
    if nanoseconds is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.4g} {unit}"
    return f"{nanoseconds:.4g} ns"


def _speedup(speedup: float | None, comparison: Comparison | None) -> str:
    """A speedup with interval and verdict, or marked as unconfirmed."""
    if speedup is None:
        return "-"
    return f"{comparison} {comparison.verdict}" if comparison else f"{speedup:.3f}× unconfirmed"


def _heading(result: Result) -> str:
    unseen = result.trials - result.measured - result.rejected - result.merged
    lines = [
        f"{result.experiment} on {result.device or 'no device yet'} ({result.backend})",
        f"{result.trials} configurations in {result.searched_seconds:.1f} s: {result.measured} "
        f"measured, {result.rejected} rejected"
        + (f", {result.merged} with the code of another" if result.merged else "")
        + (f", {unseen} not measured" if unseen > 0 else "")
        + (f"; searching ended: {_ENDED[result.ended]}" if result.ended else ""),
    ]
    return "\n".join(lines)


def _table(result: Result) -> str:
    """Both winners against the baseline on each shape, in each cache state that was timed."""
    tables = [
        _one_table(
            result,
            result.cache,
            [shape.baseline_ns for shape in result.shapes],
            result.general.cells if result.general else (),
            [best.cell if best else None for best in result.specialised],
        )
    ]
    if other := result.other_cache:
        tables.append(
            _one_table(result, other.cache, other.baseline_ns, other.general, other.specialised)
        )
    return "\n\n".join(tables)


def _one_table(
    result: Result,
    cache: str,
    baseline_ns: Sequence[float | None],
    general: Sequence[Cell],
    specialised: Sequence[Cell | None],
) -> str:
    compared = cache == "cold" and any(shape.least_ns for shape in result.shapes)
    last = ("of a copy",) if compared else ()
    head = ("shape", "baseline", "general", "speedup", "specialised", "speedup", *last)
    rows = [
        (
            shape.label + (" (held out)" if shape.held_out else ""),
            time_text(baseline_ns[shape.index]),
            *_pair(_cell(general, shape)),
            *_best(result, shape, specialised),
            *([_of_copy(shape, _cell(general, shape))] if compared else ()),
        )
        for shape in result.shapes
    ]
    signs = [
        f"{sign} {words}" for sign, words in _SIGNS.items() if any(sign in row for row in rows)
    ]
    return "\n".join(
        [
            f"{cache} cache; median times per run of the kernel, mean speedups of the processes",
            _aligned([head, *rows]),
            *([f"({'; '.join(signs)})"] if signs else ()),
        ]
    )


def _of_copy(shape: ShapeOfRun, cell: Cell | None) -> str:
    """How near the general configuration comes to a mere copy of as many bytes."""
    if shape.least_ns is None or cell is None or cell.time_ns is None:
        return "-"
    return f"{100 * shape.least_ns / cell.time_ns:.0f} %"


def _device(result: Result) -> str:
    """What the device can do, and how it was."""
    lines = [f"ceilings     {result.ceilings}"] if result.ceilings else []
    if result.telemetry:
        return "\n".join([*lines, f"while timing {result.telemetry}"])
    return "\n".join(
        [*lines, f"clocks, power and temperature: {result.backend} does not tell them"]
    )


def _best(result: Result, shape: ShapeOfRun, specialised: Sequence[Cell | None]) -> tuple[str, str]:
    """A tune shape's own winner; ``=`` where it is the general one."""
    best = None if shape.held_out else result.specialised[shape.index]
    if best and result.general and best.trial == result.general.trial:
        return "=", "="
    return _pair(specialised[shape.index] if best else None)


def _pair(cell: Cell | None) -> tuple[str, str]:
    if cell is None:
        return "-", "-"
    return time_text(cell.time_ns), _speedup(cell.speedup, cell.comparison)


def _cell(cells: Sequence[Cell], shape: ShapeOfRun) -> Cell | None:
    return next((cell for cell in cells if cell.shape == shape.index), None)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _winners(result: Result) -> list[str]:
    lines = []
    if result.general:
        lines.append(f"general      {_general(result, result.general)}")
    else:
        lines.append(
            "general      none: no configuration is feasible and right on every tune shape"
        )
    if result.tried:
        lines.append(f"tried        {_general(result, result.tried)}")
    lines += [
        _specialised(result, index, best)
        for index, best in enumerate(result.specialised)
        if best and not (result.general and best.trial == result.general.trial)
    ]
    if result.portfolio:
        if len(result.portfolio.rule) > 1:
            lines.append(_portfolio(result, result.portfolio))
        lines += _slower(result.portfolio, result.shapes)
    if result.dead:
        lines.append(f"no effect    {', '.join(map(str, result.dead))}")
    return lines


def _specialised(result: Result, index: int, best: ShapeBest) -> str:
    """A shape's own winner, and whether it is exported."""
    members = result.portfolio.members if result.portfolio else ()
    unused = "" if any(member.trial == best.trial for member in members) else " (not exported)"
    shape = result.shapes[index].label
    text = f"specialised  {shape}: {_who(result, best.trial)}: {best.configuration}"
    if best.gain is None:
        return text
    return f"{text}\n             {best.gain} {best.gain.verdict} against the general one{unused}"


def _general(result: Result, general: General) -> str:
    """A configuration for all shapes, and what it is worth."""
    return (
        f"{_who(result, general.trial)}: {general.configuration}\n"
        f"             {_speedup(general.speedup, general.comparison)} over the tune shapes"
        + (f", {general.held_out:.3f}× over the held-out ones" if general.held_out else "")
        + _against_before(general.gain)
    )


def _against_before(gain: Comparison | None) -> str:
    if gain is None:
        return ""
    return f"\n             {gain} {gain.verdict} against what was there"


def _who(result: Result, trial: int) -> str:
    if trial > INCUMBENT:
        return f"trial {trial}"
    origin = result.origins[INCUMBENT - trial]
    return f"what was there ({origin})" if origin else "what was there"


def _slower(portfolio: Portfolio, shapes: Sequence[ShapeOfRun]) -> list[str]:
    """Where what is exported is a loss: the rule is made of tune shapes alone."""
    return [
        f"slower       than the kernel as it was on {shapes[cell.shape].label} "
        f"({cell.speedup:.3f}×), which the header does not know: a tune shape near it would "
        "teach it"
        for cell in portfolio.cells
        if cell.speedup and cell.comparison and cell.comparison.verdict == "slower"
    ]


def _portfolio(result: Result, portfolio: Portfolio) -> str:
    """Who serves which shapes, and what that is worth."""
    members = {member.trial: member for member in portfolio.members}
    lines = [
        f"portfolio    {portfolio.comparison} {portfolio.comparison.verdict} over the tune shapes"
        + (f", {portfolio.held_out:.3f}× over the held-out ones" if portfolio.held_out else "")
    ]
    for case in portfolio.rule:
        where = " and ".join(map(str, case.when))
        if case.trial == BASELINE:
            lines.append(f"{where}: the baseline")
            continue
        member = members[case.trial]
        gain = f" (adds {100 * (member.gain - 1):.1f} %)" if member.gain else ""
        lines.append(f"{where}: {_who(result, case.trial)}: {member.configuration}{gain}")
    if portfolio.gain:
        lines.append(f"{portfolio.gain} the portfolio that was there")
    if portfolio.as_well:
        others = ", ".join(portfolio.as_well)
        lines.append(
            f"({others} would tell the tune shapes apart as well: a further one shows what counts)"
        )
    return "\n             ".join(lines)
