"""A compiled configuration, or the baseline, ready to be run on a device."""

import hashlib
from dataclasses import dataclass

from tuner.plan import Binary, Plan
from tuner.trial import Configuration, Infeasible

BASELINE = -1
"""The baseline's number where trials have one; trials count from 0."""

INCUMBENT = -2
"""The number of the first incumbent; further incumbents count down from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Everything that a bench needs to run one configuration.

    ``binaries`` are in the order of ``plan.builds``. ``configuration`` is for messages only.
    """

    trial: int
    configuration: Configuration
    plan: Plan
    binaries: tuple[Binary, ...]

    @property
    def code_digest(self) -> str:
        """A digest of machine code and launches on every shape: equal work has an equal digest."""
        codes = [hashlib.sha256(b.code + repr(b.symbols).encode()).digest() for b in self.binaries]
        cells = [
            "infeasible"
            if isinstance(cell, Infeasible)
            else (codes[cell.build], cell.steps, cell.scratch)
            for cell in self.plan.cells
        ]
        return hashlib.sha256(repr(cells).encode()).hexdigest()
