"""What a check finds, and where in the experiment."""

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.experiment.yaml_document import Path

ANYTHING = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, at a path of the experiment.

    ``absent`` is the name that the finding says is missing, or :data:`ANYTHING` where it says that
    something is unused: no news of an experiment of which just that part could not be read.
    """

    path: Path
    message: str
    absent: str | None = None


def listed(names: Iterable[str]) -> str:
    """Names for a message, in their order."""
    return ", ".join(names) or "none"
