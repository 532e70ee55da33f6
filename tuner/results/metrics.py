"""The metrics of a spec for the times of a result."""

from collections.abc import Sequence

from tuner.experiment.metrics import metric_values
from tuner.experiment.model import Experiment
from tuner.results.result import General, Metric, ShapeBest, ShapeOfRun


def metrics_of(
    experiment: Experiment,
    shapes: Sequence[ShapeOfRun],
    general: General | None,
    specialised: Sequence[ShapeBest | None],
) -> tuple[Metric, ...]:
    """Each metric for the baseline and for what won, shape by shape."""
    symbols = [one.symbols for one in (*experiment.shapes.tune, *experiment.shapes.held_out)]
    of_general = {cell.shape: cell.time_ns for cell in general.cells} if general else {}
    of_best = {best.cell.shape: best.cell.time_ns for best in specialised if best}

    def values(times: Sequence[float | None]) -> list[dict[str, float | None]]:
        return [metric_values(experiment, *each) for each in zip(symbols, times, strict=False)]

    columns = (
        values([shape.baseline_ns for shape in shapes]),
        values([of_general.get(shape.index) for shape in shapes]),
        values([of_best.get(index) for index in range(len(specialised))]),
    )
    return tuple(
        Metric(name, *(tuple(row[name] for row in column) for column in columns))
        for name in experiment.metrics
    )
