"""The section of a report that shows the search: convergence, parameters, rejected trials."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tuner.experiment.objective import COSTS
from tuner.journal.history import History
from tuner.report.convergence import Search, convergence
from tuner.report.document import Part, Section, Table
from tuner.report.figure import Bar, BarRow, Bars, Grid
from tuner.results.landscape import Interaction, Landscape, Sensitivity, landscape
from tuner.results.parameters import Observation, observations
from tuner.results.rejections import REMEDIES, WORDS, count_rejections
from tuner.results.result import Rejections
from tuner.trial import Stage

_MOST_VALUES = 40
_MOST_LEVELS = 16
_CONFIDENCE = {"high": "p < 1 %", "some": "p < 10 %", "none": "not significant"}


def convergence_section(searches: Sequence[Search]) -> Section:
    """Best speedup against trials and seconds."""
    figures = convergence(searches)
    return Section(title="Convergence", parts=figures or ("Nothing was measured yet.",))


def parameters_section(history: History) -> Section:
    """What each parameter did to what is minimised, and which depend on each other."""
    template = history.experiment.template
    if template is None:
        return Section(title="Parameters", parts=("There is no template.",))
    seen = observations(history)
    found = landscape(template.parameters, seen)
    if not found.measured:
        return Section(title="Parameters", parts=("Nothing was measured yet.",))
    cost = COSTS[history.experiment.objective]
    return Section(title="Parameters", parts=tuple(_parameters(found, seen, cost)))


def _parameters(found: Landscape, seen: Sequence[Observation], cost: str) -> Iterator[Part]:
    yield (
        f"From {found.measured} measured configurations. A search tries good values more often, so "
        "these figures are hints."
    )
    yield Bars(
        name="sensitivity",
        title="Variance explained by each parameter",
        caption=f"ω² of log {cost}, alone. Small or not significant: the parameter hardly matters.",
        axis="variance explained (%)",
        series=("alone",),
        rows=tuple(
            BarRow(
                label=one.parameter,
                bars=(
                    Bar(
                        value=100 * one.share,
                        text=f"{one.share:.0%}, {_CONFIDENCE[one.confidence]}",
                    ),
                ),
            )
            for one in found.sensitivities
        ),
    )
    rows = [row for one in found.sensitivities for row in _effects(one)]
    if len(rows) <= _MOST_VALUES:
        yield Bars(
            name="parameters",
            title="Effect of each parameter's values",
            caption=f"Median {cost} over the configurations with the value, above that of the "
            "parameter's best value.",
            axis=f"median {cost} above that of the best value (%)",
            series=("median",),
            rows=tuple(rows),
        )
    for pair in found.interactions[:1]:
        if (grid := _grid(pair, seen)) is not None:
            yield grid
    yield Table(
        head=("parameter", "variance explained", "confidence", "median speedup by value"),
        rows=tuple(_sensitivity(one) for one in found.sensitivities),
        numbers=frozenset({1}),
    )
    if found.interactions:
        yield Table(
            head=("parameters together", "variance explained beyond each alone"),
            rows=tuple(
                (f"{pair.first}, {pair.second}", f"{pair.share:.0%}") for pair in found.interactions
            ),
            numbers=frozenset({1}),
        )
    if found.inactive:
        yield f"Without effect: {', '.join(map(str, found.inactive))}."


def _effects(one: Sensitivity) -> Iterator[BarRow]:
    best = min(ratio for _, ratio in one.medians)
    for value, ratio in one.medians:
        slower = 100 * (ratio / best - 1)
        bar = Bar(value=slower, text=f"{slower:.1f} %" if slower else "best")
        yield BarRow(label=f"{one.parameter} = {value}", bars=(bar,))


def _sensitivity(one: Sensitivity) -> tuple[str, ...]:
    medians = ", ".join(f"{value}: {1 / ratio:.2f}×" for value, ratio in one.medians)
    return one.parameter, f"{one.share:.0%}", _CONFIDENCE[one.confidence], medians


def _grid(pair: Interaction, seen: Sequence[Observation]) -> Grid | None:
    """The best speedup for each pair of two parameters' values."""
    best: dict[tuple[str, str], float] = {}
    for one in seen:
        if one.ratio is not None:
            values = one.configuration.as_dict()
            key = str(values[pair.first]), str(values[pair.second])
            best[key] = max(best.get(key, 0.0), 1 / one.ratio)
    rows = sorted({first for first, _ in best}, key=_order)
    columns = sorted({second for _, second in best}, key=_order)
    if max(len(rows), len(columns)) > _MOST_LEVELS:
        return None
    return Grid(
        name="interaction",
        title=f"{pair.first} and {pair.second} together",
        caption="Best speedup over the baseline (×) for each pair of values; the pair that depends "
        "most on each other. Empty: not measured.",
        x_axis=pair.second,
        y_axis=pair.first,
        cell_axis="best speedup (×)",
        columns=tuple(columns),
        rows=tuple(rows),
        cells=tuple(tuple(best.get((row, column)) for column in columns) for row in rows),
    )


def _order(value: str) -> tuple[int, str]:
    return (int(value), "") if value.lstrip("-").isdigit() else (0, value)


def rejections_section(histories: Sequence[History]) -> Section:
    """Rejected trials of all searches by stage and reason."""
    groups = [group for history in histories for group in count_rejections(history)]
    trials = sum(history.outcomes.total() for history in histories)
    if not groups:
        return Section(title="Rejected", parts=(f"None of {trials} configurations was rejected.",))
    counts = Counter[tuple[Stage, str]]()
    examples: dict[tuple[Stage, str], Rejections] = {}
    for group in groups:
        counts[group.stage, group.code] += group.count
        examples.setdefault((group.stage, group.code), group)
    order = list(Stage)
    listed = sorted(counts.items(), key=lambda item: (order.index(item[0][0]), -item[1]))
    figure = Bars(
        name="rejections",
        title="Rejected configurations by stage and reason",
        caption="Stages in the order in which a configuration passes them.",
        axis="configurations",
        series=("rejected",),
        rows=tuple(
            BarRow(
                label=f"{stage}: {WORDS[examples[stage, code].code]}",
                bars=(Bar(value=count, text=str(count)),),
            )
            for (stage, code), count in listed
        ),
    )
    table = Table(
        head=("stage", "reason", "count", "an example", "remedy"),
        rows=tuple(
            (
                stage,
                WORDS[one.code],
                str(count),
                f"{one.configuration}: {one.detail}"[:400],
                REMEDIES[one.code],
            )
            for (stage, code), count in listed
            for one in [examples[stage, code]]
        ),
        numbers=frozenset({2}),
    )
    told = f"{sum(counts.values())} of {trials} configurations were rejected."
    return Section(title="Rejected", parts=(told, figure, table))
