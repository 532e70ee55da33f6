"""The result of a check: a message and its place in the experiment."""

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.experiment.yaml_document import Path

ANYTHING = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem at a path of the experiment.

    ``absent`` is the name that is missing, or :data:`ANYTHING` if the finding says that something
    is unused. Such a finding is dropped if it only follows from a part that could not be read.
    """

    path: Path
    message: str
    absent: str | None = None


def listed(names: Iterable[str]) -> str:
    """Names joined for a message."""
    return ", ".join(names) or "none"
