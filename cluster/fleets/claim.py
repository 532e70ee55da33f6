"""A run's claim on GPUs: how many it takes, whether it waits for them, and what it waits for now.

Knows nothing of Ray.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from tuner.device import Device
from tuner.errors import EnvironmentProblem, SpecError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How a run shares GPUs with other runs; by default it takes all that are free, at least one.

    ``gpus``: exactly so many; ``max_gpus``: at most so many; ``wait``: wait until they are free;
    ``keep``: keep them while a model is asked; ``labels``: of the Ray nodes that they must be on.

    Raises:
        SpecError: both numbers are given.
    """

    gpus: int | None = None
    max_gpus: int | None = None
    wait: bool = False
    keep: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gpus is not None and self.max_gpus is not None:
            raise SpecError("--gpus is an exact number and --max-gpus a limit: give one of them")

    @property
    def least(self) -> int:
        """The run cannot begin with fewer."""
        return self.gpus or 1

    def most(self, there: int) -> int:
        """How many of those that there are the run takes at most."""
        return min(there, self.gpus or self.max_gpus or there)

    def limited(self, devices: tuple[T, ...]) -> tuple[T, ...]:
        """The first of this machine's devices, as many as the run takes.

        Raises:
            SpecError: labels of nodes are given.
            EnvironmentProblem: there are too few.
        """
        if self.labels:
            raise SpecError(
                "--node-label chooses nodes of a Ray cluster by which GPUs are taken, and this run "
                "uses devices of this machine: leave it out"
            )
        if len(devices) < self.least:
            raise EnvironmentProblem(
                f"--gpus {self.least}: this machine has only {len(devices)} of them; ask for fewer"
            )
        return devices[: self.most(len(devices))]

    @property
    def words(self) -> list[str]:
        """The options that say this on a command line."""
        words = ["--gpus", str(self.gpus)] if self.gpus else []
        words += ["--max-gpus", str(self.max_gpus)] if self.max_gpus else []
        words += ["--wait"] if self.wait else []
        words += ["--keep-gpus"] if self.keep else []
        for key, value in self.labels.items():
            words += ["--node-label", f"{key}={value}"]
        return words


def read_labels(given: Sequence[str]) -> dict[str, str]:
    """Labels of nodes by key, from ``KEY=VALUE``; raises :class:`SpecError` for another form."""
    pairs = [one.partition("=") for one in given]
    for one, (key, equals, value) in zip(given, pairs, strict=True):
        if not (key and equals and value):
            raise SpecError(f"--node-label {one}: write KEY=VALUE, such as pool=tuning")
    return {key: value for key, _, value in pairs}


class Claim:
    """One run's claim, shared by the run and by what opens its fleet."""

    def __init__(self, share: Share | None = None) -> None:
        self.share = share or Share()
        self.words = ""
        """What is waited for now; empty while nothing is."""
        self.waited = 0.0
        """Seconds waited so far, which no budget counts."""
        self.device: Device | None = None
        """The model that was taken first: GPUs that were given back are taken again of it alone."""

    @property
    def waits(self) -> bool:
        """Whether the run waits for GPUs: also for those that it gave back."""
        return self.share.wait or self.device is not None

    @property
    def gives_back(self) -> bool:
        """Whether GPUs that were taken are given back while a model is asked."""
        return self.device is not None and not self.share.keep

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the seconds that this takes as waited, and clear the words at its end."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.words = ""
            self.waited += time.monotonic() - began
