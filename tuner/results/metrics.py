"""The metrics of a spec for the times of a result."""

from collections.abc import Sequence

from tuner.experiment.metrics import metric_values
from tuner.experiment.model import Experiment
from tuner.results.result import Cell, General, Metric, ShapeBest, ShapeOfRun

_Measured = tuple[float | None, float | None]
_NOTHING: _Measured = None, None


def metrics_of(
    experiment: Experiment,
    shapes: Sequence[ShapeOfRun],
    general: General | None,
    specialised: Sequence[ShapeBest | None],
) -> tuple[Metric, ...]:
    """Each metric for the baseline and for what won, shape by shape."""
    symbols = [one.symbols for one in (*experiment.shapes.tune, *experiment.shapes.held_out)]
    of_general = {cell.shape: _measured(cell) for cell in general.cells} if general else {}
    of_best = {best.cell.shape: _measured(best.cell) for best in specialised if best}

    def values(measured: Sequence[_Measured]) -> list[dict[str, float | None]]:
        pairs = zip(symbols, measured, strict=False)
        return [metric_values(experiment, binding, *each) for binding, each in pairs]

    columns = (
        values([(shape.baseline_ns, shape.baseline_mj) for shape in shapes]),
        values([of_general.get(shape.index, _NOTHING) for shape in shapes]),
        values([of_best.get(index, _NOTHING) for index in range(len(specialised))]),
    )
    return tuple(
        Metric(name, *(tuple(row[name] for row in column) for column in columns))
        for name in experiment.metrics
    )


def _measured(cell: Cell) -> _Measured:
    """Nanoseconds and millijoules of a cell."""
    return cell.time_ns, cell.millijoules
