"""The port to everything of the loop that needs compilers or devices.

Its one implementation outside of tests is :mod:`cluster.evaluator`.
"""

from collections.abc import Callable
from typing import Protocol

from agents.planning import Variant
from agents.verdict import Admitted, Refused, Verdict
from tuner.experiment.model import Experiment, Template
from tuner.journal.facts import IncumbentEntered
from tuner.trial import Value


class StopRequested(Exception):
    """The user asked for an end. Raised instead of beginning a model call or other work."""


class TemplateEvaluator(Protocol):
    """Everything of the loop that needs compilers or devices."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def admit(self, experiment: Experiment, template: Template) -> Admitted | Refused:
        """Compile the corners of a template's space and run one configuration.

        ``Refused`` quotes the compiler's or checker's own words, with the lines concerned.

        Raises:
            DeviceNeeded: it compiles, and there is no device at hand.
        """
        ...

    async def search(
        self,
        round_number: int,
        experiment: Experiment,
        seeds: tuple[dict[str, Value], ...],
        heat: str = "",
        incumbents: tuple[IncumbentEntered, ...] = (),
    ) -> Verdict:
        """Search the experiment's template to its end, confirmation included.

        ``heat`` names a search of the round that only screens drafts; the round's own has none.
        The ``incumbents`` are confirmed beside what was found; the verdict's gains are over them.
        Called again for a search that was cut off, it goes on from what was measured.

        Raises:
            DeviceNeeded: there is none at hand.
        """
        ...

    async def search_meanwhile(
        self,
        best: Variant,
        incumbents: tuple[IncumbentEntered, ...],
        heat: str,
        until: Callable[[], bool],
    ) -> None:
        """Search further where the best variant's search ended, as a ``heat`` of its round.

        Returns soon after ``until`` holds; called again, it goes on from what was measured.
        """
        ...

    async def confirm_meanwhile(
        self, best: Variant, incumbents: tuple[IncumbentEntered, ...], heat: str
    ) -> Verdict | None:
        """Confirm what :meth:`search_meanwhile` found; ``None`` if it leads nothing."""
        ...
