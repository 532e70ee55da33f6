"""What types cannot say of an experiment: every semantic check, all findings at once."""

from collections.abc import Iterator
from dataclasses import dataclass

from tuner.spec.experiment import Experiment
from tuner.spec.yaml_document import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, at a path of the experiment.

    ``absence``: it says that something is missing or unused, which is no news of an experiment of
    which a part could not be read.
    """

    path: Path
    message: str
    absence: bool = False


def check(experiment: Experiment) -> Iterator[Finding]:
    """Everything that is wrong with an experiment."""
    seen: set[str] = set()
    for index, argument in enumerate(experiment.arguments):
        if argument.name in seen:
            yield Finding(("arguments", index), f"a second argument named '{argument.name}'")
        seen.add(argument.name)
