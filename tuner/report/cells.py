"""The result as CSV: a row for each configuration, shape and cache state."""

import csv
import io
from collections.abc import Iterator
from typing import Literal

from tuner.results.result import Cell, Result, ShapeOfRun, cell_on
from tuner.trial import Configuration

COLUMNS = (
    "shape held_out cache configuration_is trial parameters time_ns speedup low high verdict "
    "processes baseline_ns baseline_scatter least_ns millijoules baseline_mj"
).split()
"""``speedup`` is baseline ÷ time with its interval ``low`` to ``high``; ``baseline_scatter`` the
median absolute deviation of the baseline's times ÷ their median; ``least_ns`` the time to copy the
bytes that must be moved; ``millijoules`` and ``baseline_mj`` the energy of a launch, where it is
measured. Each metric follows, of the configuration and of the baseline."""


def cells_csv(result: Result) -> str:
    """The table with its head; empty cells where something is unknown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    metrics = [name for one in result.metrics for name in (one.name, f"baseline_{one.name}")]
    writer.writerow([*COLUMNS, *metrics])
    writer.writerows(_rows(result))
    return text.getvalue()


def _rows(result: Result) -> Iterator[list[object]]:
    general = result.general
    for shape in result.shapes:
        if general:
            cell = cell_on(general.cells, shape.index)
            yield _row(result, shape, "general", general.trial, general.configuration, cell)
        best = None if shape.held_out else result.specialised[shape.index]
        if best:
            yield _row(result, shape, "specialised", best.trial, best.configuration, best.cell)
    if (other := result.other_cache) is None or not general:
        return
    for cell in other.general:
        shape, baseline = result.shapes[cell.shape], other.baseline_ns[cell.shape]
        row = _row(result, shape, "general", general.trial, general.configuration, cell)
        changed = {"cache": other.cache, "baseline_ns": baseline}
        changed |= {"baseline_scatter": None, "least_ns": None}
        changed |= {"baseline_mj": other.baseline_mj[cell.shape]}
        figures = zip(COLUMNS, row, strict=False)  # metrics are of the run's own cache state
        yield [changed.get(name, value) for name, value in figures]


def _row(
    result: Result,
    shape: ShapeOfRun,
    kind: Literal["general", "specialised"],
    trial: int,
    configuration: Configuration,
    cell: Cell | None,
) -> list[object]:
    found = cell.comparison if cell else None
    return [
        shape.label,
        shape.held_out,
        result.cache,
        kind,
        trial,
        str(configuration),
        cell.time_ns if cell else None,
        cell.speedup if cell else None,
        found.low if found else None,
        found.high if found else None,
        found.verdict if found else "unconfirmed" if cell and cell.speedup else None,
        found.processes if found else None,
        shape.baseline_ns,
        shape.baseline_scatter,
        shape.least_ns,
        cell.millijoules if cell else None,
        shape.baseline_mj,
        *(
            value
            for metric in result.metrics
            for value in (getattr(metric, kind)[shape.index], metric.baseline[shape.index])
        ),
    ]
