"""Default tolerances by element type, for outputs that give none.

With a float64 reference an element may err by the larger of its tolerance and
:data:`BASELINE_ERRORS` times the baseline's own error; without one the tolerance alone holds.
``atol`` scales with the answer's median magnitude: a default one where that is above 1, a given one
relative to the first test case's; it is less in far smaller rows and columns (``workers.bounds``).
"""

from tuner.experiment.contents import Keys, Segments, Tolerance, Ulp, Unordered
from tuner.experiment.model import Experiment

BASELINE_ERRORS = 2.0
"""How many times the baseline's own error a candidate may err."""

_SCALES = "; atol times the answer's median magnitude where that is above 1"

EXACT = Tolerance(rtol=0.0, atol=0.0)

DEFAULT_TOLERANCES = {
    "float64": Tolerance(rtol=1e-10, atol=1e-10),
    "float32": Tolerance(rtol=1e-5, atol=1e-5),
    "float16": Tolerance(rtol=1e-3, atol=1e-3),
    "bfloat16": Tolerance(rtol=1e-2, atol=1e-2),
    "float8_e4m3": Tolerance(rtol=0.125, atol=0.02),
    "float8_e5m2": Tolerance(rtol=0.25, atol=0.02),
}


def default_tolerance(dtype: str) -> Tolerance:
    """The tolerance of an element type; integers and bools compare exactly."""
    return DEFAULT_TOLERANCES.get(dtype, EXACT)


def unordered_rule(compare: Unordered) -> str:
    """Within what the order of elements is free, in words."""
    match compare.unordered:
        case "whole":
            return "in any order"
        case "rows":
            return "in any order within each row"
        case Segments(segments=name):
            return f"in any order within each segment of {name}"
        case Keys(key=name):
            return f"in any order among equal keys in {name}"


def comparison_rules(experiment: Experiment) -> dict[str, str]:
    """How each output is compared, in words, by argument name."""
    table = {}
    for argument in experiment.arguments:
        if not argument.is_output:
            continue
        if isinstance(argument.compare, Ulp):
            table[argument.name] = f"within {argument.compare.ulp} units in the last place"
        elif isinstance(argument.compare, Unordered):
            table[argument.name] = unordered_rule(argument.compare)
        elif argument.compare != "close":
            table[argument.name] = argument.compare
        elif argument.tolerance is None and argument.dtype in experiment.shapes.tune[0].symbols:
            table[argument.name] = "the default of each shape's element type"
        else:
            bound = argument.tolerance or default_tolerance(argument.dtype)
            where = "given" if argument.tolerance else f"default for {argument.dtype}{_SCALES}"
            table[argument.name] = f"rtol {bound.rtol:g}, atol {bound.atol:g} ({where})"
            if experiment.reference is not None:
                table[argument.name] += f", or {BASELINE_ERRORS:g} × the baseline's own error"
    return table
