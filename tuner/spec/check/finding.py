"""What a check finds, and where in the experiment."""

from dataclasses import dataclass

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


def listed(names: object) -> str:
    """Names for a message, in their order."""
    assert hasattr(names, "__iter__")
    return ", ".join(map(str, names)) or "none"
