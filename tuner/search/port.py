"""The port that every search strategy implements: ask for a point, be told its loss."""

from typing import Protocol

from tuner.trial import Configuration

Losses = tuple[float, ...]
"""Time ÷ baseline, smaller is better: the weighted mean over shapes, then each shape's own.

Only the mean has to be there. It is what decides; the others tell of specialists.
"""


class Proposer(Protocol):
    """Proposes feasible configurations, never one twice.

    Deterministic: what :meth:`ask` returns is a function of the space, the seed, ``trial`` and what
    was recorded before it, so a proposer is rebuilt after a crash by :meth:`record` and
    :meth:`tell` alone. Adapters obey ``tests/conformance/proposer.py``.
    """

    def ask(self, trial: int) -> Configuration | None:
        """The configuration of trial number ``trial``; ``None`` once the space is exhausted.

        The answer counts as recorded.
        """
        ...

    def record(self, trial: int, configuration: Configuration) -> None:
        """Take note of a proposal made by an earlier process, as if :meth:`ask` had returned it."""
        ...

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Report a trial's losses, or ``None`` if it failed."""
        ...
