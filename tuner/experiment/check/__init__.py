"""Every check of an experiment that types cannot express.

No check reads a file or needs a device or compiler.
"""

from collections.abc import Iterator

from tuner.experiment.check.arguments import check_arguments, check_values
from tuner.experiment.check.expressions import check_expressions
from tuner.experiment.check.finding import ANYTHING, Finding
from tuner.experiment.check.metrics import check_metrics
from tuner.experiment.check.names import check_names, check_shapes
from tuner.experiment.check.options import check_features, check_options
from tuner.experiment.check.program import check_parameters, check_programs
from tuner.experiment.check.template import check_template
from tuner.experiment.model import Experiment

__all__ = ["ANYTHING", "Finding", "check"]


def check(experiment: Experiment, *, exported: bool = False) -> Iterator[Finding]:
    """Yield everything that is wrong with an experiment.

    Args:
        experiment: the experiment.
        exported: whether it is that of an export, which is launched but not tuned: it does not say
            what arrays hold, and no template is derived from its kernel.
    """
    if refused := list(check_parameters(experiment)):
        yield from refused
        return
    found = [
        *check_shapes(experiment),
        *check_names(experiment),
        *check_expressions(experiment),
        *check_arguments(experiment),
        *check_features(experiment),
        *check_options(experiment),
    ]
    found += check_programs(experiment, found, exported=exported)
    found += check_template(experiment, found)
    found += check_metrics(experiment, found)
    yield from found
    yield from check_values(experiment, found)
