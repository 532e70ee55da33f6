"""What counts as the right answer: the bound of an element, and the comparison of whole arrays.

Owns :class:`Expected` and :class:`Comparison`, and the comparer that runs in the supervisor. A
backend that compares on its device (:mod:`workers.devices.port`) obeys the same rules exactly.
Must not know of devices, processes or candidates.

The rules. ``close``: where either side is not finite both must be the same (NaN with NaN, an
infinity with the same infinity); elsewhere ``|got - want| <= atol + rtol * |want|`` in float64.
``exact``: equal values (NaN equals NaN, -0 equals 0). ``ulp``: at most ``ulp`` representable values
apart in the output's own type, NaN with NaN. ``unordered``: as ``close`` after sorting both sides.
Every element is compared.
"""

from dataclasses import dataclass
from typing import Literal

Mode = Literal["close", "exact", "ulp", "unordered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The oracle of one output: a raw C-ordered array in a read-only file, and how near is near.

    ``dtype`` is the type of the file's elements (float64 where a float64 reference made them, the
    output's own otherwise); ``rtol`` and ``atol`` are already widened by the baseline's own error.
    One path always holds the same bytes, so a backend may keep them in pinned memory by path.
    """

    path: str
    dtype: str
    mode: Mode
    rtol: float = 0.0
    atol: float = 0.0
    ulp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How one output compares: elements outside the bound, and the worst of them.

    ``index`` is the worst element's place in the C-ordered array; ``error`` its distance divided by
    its bound (infinite where one side is not finite); with ``failures`` 0 it is the largest of all.
    ``unwritten`` counts the failing elements that still hold the poison in every byte.
    """

    failures: int
    unwritten: int
    index: int
    got: float
    want: float
    error: float
