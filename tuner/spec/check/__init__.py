"""What types cannot say of an experiment: every semantic check, all findings at once.

Each module owns one kind of question; none of them reads a file or knows a device. What only a
compiler or a device can tell is found later, by them.
"""

from collections.abc import Iterator

from tuner.spec.check.arguments import check_arguments, check_values
from tuner.spec.check.expressions import check_expressions
from tuner.spec.check.finding import ANYTHING, Finding
from tuner.spec.check.language import check_language
from tuner.spec.check.names import check_names, check_shapes
from tuner.spec.check.options import check_options
from tuner.spec.check.program import check_programs
from tuner.spec.check.template import check_template
from tuner.spec.experiment import Experiment

__all__ = ["ANYTHING", "Finding", "check"]


def check(experiment: Experiment) -> Iterator[Finding]:
    """Everything that is wrong with an experiment."""
    found = [
        *check_shapes(experiment),
        *check_names(experiment),
        *check_expressions(experiment),
        *check_arguments(experiment),
        *check_language(experiment),
        *check_options(experiment),
    ]
    found += check_programs(experiment, found)
    found += check_template(experiment, found)
    yield from found
    yield from check_values(experiment, found)
