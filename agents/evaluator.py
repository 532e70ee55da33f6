"""The port for everything in the loop that needs compilers or devices.

Implemented by :mod:`cluster.runs.evaluator`.
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
    """Admits and searches templates. Each method raises :class:`StopRequested` on a stop."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""
        ...

    def committed(self, known: float) -> float:
        """Seconds of the search's budget that are spent, or that the last confirmation will take.

        Waiting for models does not count. Rounds are ``known`` to have taken some, perhaps in
        earlier processes.
        """
        ...

    def confirming(self) -> float:
        """Seconds that confirming a round's search will take."""
        ...

    async def admit(self, experiment: Experiment, template: Template) -> Admitted | Refused:
        """Compile the corners of a template's space and run one configuration.

        ``Refused`` quotes the compiler or the check that failed, with the source lines it names.

        Raises:
            DeviceNeeded: The template compiles, and there is no device to run it.
        """
        ...

    async def search(
        self,
        round_number: int,
        experiment: Experiment,
        seeds: tuple[dict[str, Value], ...],
        suffix: str = "",
        incumbents: tuple[IncumbentEntered, ...] = (),
    ) -> Verdict:
        """Search the experiment's template to its end, confirmed on the tune shapes.

        Called again for a search that was cut off, it continues from what was measured.

        Args:
            round_number: The round.
            experiment: Holds the template and the budget.
            seeds: Values to try first.
            suffix: Which search of the round, such as ``-d0-rung1``; empty for the round's own.
            incumbents: Confirmed in the same processes; the verdict's gains are over them.

        Raises:
            DeviceNeeded: There is no device.
        """
        ...

    async def search_meanwhile(
        self,
        best: Variant,
        incumbents: tuple[IncumbentEntered, ...],
        suffix: str,
        until: Callable[[], bool],
    ) -> None:
        """Continue the best variant's search, as another search of its round.

        Returns soon after ``until`` holds; called again, it continues from what was measured.
        """
        ...

    async def confirm_meanwhile(
        self, best: Variant, incumbents: tuple[IncumbentEntered, ...], suffix: str
    ) -> Verdict | None:
        """Confirm what :meth:`search_meanwhile` found; ``None`` if it found no new leader."""
        ...

    async def confirm_finally(self, best: Variant, suffix: str) -> Verdict:
        """Confirm a variant's search on all that is reported, as another search of its round.

        Raises:
            DeviceNeeded: There is no device.
        """
        ...
