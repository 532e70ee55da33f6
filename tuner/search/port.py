"""The port of a search: ask for a configuration, tell its losses."""

from typing import Protocol

from tuner.trial import Configuration

Losses = tuple[float, ...]
"""Time ÷ baseline, smaller is better: the weighted mean over shapes, then one loss per shape.

The mean is required and decides; the others reveal specialists.
"""


class Proposer(Protocol):
    """Proposes feasible configurations, never one twice.

    Deterministic: a proposal is a function of the space, the seed, ``trial`` and the calls before,
    so :meth:`record` and :meth:`tell` rebuild a proposer after a crash. Every implementation passes
    ``tests/conformance/proposer.py``.
    """

    def ask(self, trial: int) -> Configuration | None:
        """The configuration of trial number ``trial``; ``None`` once the space is exhausted.

        The answer counts as recorded.
        """
        ...

    def record(self, trial: int, configuration: Configuration) -> None:
        """Replay a proposal of an earlier process, as if :meth:`ask` had returned it."""
        ...

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Report a trial's losses, or ``None`` if it failed."""
        ...
