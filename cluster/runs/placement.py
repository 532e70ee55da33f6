"""The options of ``run`` and ``resume`` that say where a run executes and what it may use there.

Owns what they mean, and how they are written for the command that continues a run or begins one.
"""

from dataclasses import dataclass, field
from typing import TypedDict

from cluster.fleets.claim import Share, read_labels
from cluster.runs.model_choice import ModelAccess


class PlaceOptions(TypedDict):
    """The options as the command line reads them."""

    fleet: str | None
    device: str | None
    gpus: int | None
    max_gpus: int | None
    wait: bool
    keep_gpus: bool
    node_label: list[str] | None
    target: str | None
    allow_endpoint: list[str] | None
    exit_when_waiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a run executes: fleet, part of a device's name, GPUs, or what it compiles for.

    ``access``: how models are reached.
    """

    fleet: str | None = None
    device: str | None = None
    share: Share = field(default_factory=Share)
    target: str | None = None
    access: ModelAccess = field(default_factory=ModelAccess)

    @classmethod
    def of(cls, options: PlaceOptions) -> "Placement":
        """What the options say; raises :class:`SpecError` for a label that is none."""
        return cls(
            fleet=options["fleet"],
            device=options["device"],
            share=Share(
                gpus=options["gpus"],
                max_gpus=options["max_gpus"],
                wait=options["wait"],
                keep=options["keep_gpus"],
                labels=read_labels(options["node_label"] or ()),
            ),
            target=options["target"],
            access=ModelAccess(
                endpoints=tuple(options["allow_endpoint"] or ()),
                exit_when_waiting=options["exit_when_waiting"],
            ),
        )

    @property
    def words(self) -> list[str]:
        """The options with which a run executes in the same place, but for the target."""
        words = [] if self.fleet is None else ["--fleet", self.fleet]
        words += [] if self.device is None else ["--device", self.device]
        words += self.share.words
        for host in self.access.endpoints:
            words += ["--allow-endpoint", host]
        return [*words, "--exit-when-waiting"] if self.access.exit_when_waiting else words
