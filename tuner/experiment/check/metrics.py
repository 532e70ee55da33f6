"""Metrics: each reads quantities that are measured or given, and has a value on every shape."""

from collections.abc import Iterator

from tuner.backends.registry import traits_of
from tuner.errors import SpecError
from tuner.experiment.check.finding import Finding, listed
from tuner.experiment.check.names import bindings
from tuner.experiment.metrics import JOULES, RESERVED, SECONDS, quantities
from tuner.experiment.model import Experiment
from tuner.experiment.yaml_document import Path
from tuner.expressions import ExpressionError, nearest


def check_metrics(experiment: Experiment, found: list[Finding]) -> Iterator[Finding]:
    """Names are known, and mean one thing; values are tried with a time of one second.

    Costs that ``found`` names as wrong are not evaluated.
    """
    if not experiment.metrics:
        return
    symbols = experiment.shapes.tune[0].symbols
    traits = traits_of(experiment.kernel.language)
    countless = "energy" in traits.unsupported
    joules = None if countless or experiment.objective == "time" else 1.0
    for name in (SECONDS, "bytes", "flops", *([JOULES] if joules else [])):
        if name in symbols:
            message = f"metrics read '{name}' as a quantity; rename the symbol"
            yield Finding(("shapes", "tune", 0, name), message)
            return
    if any(finding.path[0] in ("cost", "shapes") for finding in found):
        return
    for name, expression in experiment.metrics.items():
        path: Path = ("metrics", name)
        if name in RESERVED or name.startswith("baseline_"):
            yield Finding(path, f"'{name}' is a column of the tables: rename the metric")
            continue
        for _, binding in bindings(experiment):
            try:
                known = quantities(experiment, binding.symbols, 1.0, joules)
                numbers = {n for n, value in known.items() if not isinstance(value, str)}
                if missing := sorted({"bytes", "flops"} & expression.names - numbers):
                    yield Finding(path, f"'{missing[0]}' is not known: give cost.{missing[0]}")
                    break
                if JOULES in expression.names - numbers:
                    why = (
                        f"'joules' cannot be read: {traits.title} has no energy counter"
                        if countless
                        else "'joules' are measured where the objective is energy or energy_delay"
                    )
                    yield Finding(path, why)
                    break
                if unknown := sorted(expression.names - numbers):
                    there = (
                        nearest(unknown[0], numbers) or f"; there are: {listed(sorted(numbers))}"
                    )
                    yield Finding(path, f"unknown quantity '{unknown[0]}'{there}")
                    break
                expression.evaluate(known)
            except ExpressionError as error:
                yield Finding(path, str(error))
                break
            except SpecError:
                return
