"""What a search minimises: the time of a launch, its energy, or both.

Owns the weights, the words and what measuring energy costs. :mod:`workers.bench.energy` measures
it.
"""

from typing import Literal

Objective = Literal["time", "energy", "energy_delay"]

ENERGY_SHARE: dict[Objective, float] = {"time": 0.0, "energy": 1.0, "energy_delay": 0.5}
"""The exponent of the energy ratio in the objective; the time ratio has what is left of 1."""

COSTS: dict[Objective, str] = {
    "time": "time",
    "energy": "energy",
    "energy_delay": "geometric mean of energy and time",
}
"""What is minimised, in words."""

UNITS: dict[str, str] = {"time": "ms", "energy": "mJ", "energy_delay": "mJ ms"}
"""The units of these in files of trials."""

TIME_SLACK = 1.5
"""How much slower than a cut-off a configuration may be before its energy is of no interest.

Energy is power × time, and the power of kernels that do the same work differs by less.
"""

SETTLE_SECONDS = 0.3
"""Launches before the first reading, for the counter follows a change of power late.

Read at once after one of 380 W, a kernel of 620 W seemed to take 7 % less energy, on an H200.
"""

ENERGY_SECONDS = 0.3
"""Launches between the first and the last reading of a counter that changes every 20 to 100 ms."""

ENERGY_ROUNDS = 2
"""How often a process of confirmation measures the energy of each candidate on each shape."""

TAKEN_SECONDS = 0.75
"""What one measurement of energy takes, with the wait for the counter's first change."""
