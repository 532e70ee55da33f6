"""Metrics: figures of a spec's own, computed from measured times."""

from collections.abc import Mapping

from tuner.experiment.model import Experiment
from tuner.expressions import ExpressionError
from tuner.trial import Value

SECONDS, JOULES = "seconds", "joules"
"""The quantities that are measured: time and energy of one run of the kernel."""

RESERVED = frozenset(
    "shape held_out cache configuration_is trial parameters time_ns speedup low high verdict "
    "processes least_ns ns millijoules".split()
)
"""Columns that the tables have of their own; those that begin with ``baseline_`` too."""


def quantities(
    experiment: Experiment, symbols: Mapping[str, Value], seconds: float, joules: float | None
) -> dict[str, float | str]:
    """What metrics may read on one shape: the symbols, what is measured, and what ``cost`` gives.

    ``joules`` is ``None`` where energy is not measured.
    """
    found: dict[str, float | str] = dict(symbols)
    for name in ("bytes", "flops"):
        cost = getattr(experiment.cost, name) if experiment.cost else None
        if cost is not None:
            found[name] = float(cost.evaluate(symbols))
    measured = {} if joules is None else {JOULES: joules}
    return {**found, SECONDS: seconds, **measured}


def metric_values(
    experiment: Experiment,
    symbols: Mapping[str, Value],
    time_ns: float | None,
    millijoules: float | None,
) -> dict[str, float | None]:
    """Every metric of one shape for one time and energy; ``None`` where it has no value."""
    if time_ns is None:
        return dict.fromkeys(experiment.metrics)
    joules = None if millijoules is None else millijoules / 1e3
    known = quantities(experiment, symbols, time_ns / 1e9, joules)
    found: dict[str, float | None] = {}
    for name, expression in experiment.metrics.items():
        try:
            found[name] = expression.evaluate(known)
        except ExpressionError:
            found[name] = None
    return found
