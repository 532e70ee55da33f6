"""How far a result may be from the reference: the one table, by element type.

Owns the defaults that hold where an argument gives no ``tolerance`` of its own. With a float64
reference an element may err by the larger of its tolerance and :data:`BASELINE_ERRORS` times the
baseline's own error; without one the tolerance alone holds.
"""

from tuner.spec.experiment import Tolerance

BASELINE_ERRORS = 2.0
"""The ``c`` of the bound: how many times the baseline's own error a candidate may err."""

EXACT = Tolerance(rtol=0.0, atol=0.0)

DEFAULT_TOLERANCES = {
    "float64": Tolerance(rtol=1e-10, atol=1e-10),
    "float32": Tolerance(rtol=1e-5, atol=1e-5),
    "float16": Tolerance(rtol=1e-3, atol=1e-3),
    "bfloat16": Tolerance(rtol=1e-2, atol=1e-2),
}


def default_tolerance(dtype: str) -> Tolerance:
    """The table's entry; integers and bools compare exactly."""
    return DEFAULT_TOLERANCES.get(dtype, EXACT)
