"""The events of a run: facts that are journalled, and signals that are not.

Facts are append-only and enough to rebuild a session; signals concern the work in flight and are
worth nothing after a crash. Plain data, encoded by pydantic with ``kind`` as discriminator.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.engine.fleet import Profile, Sample
from tuner.experiment.model import Template
from tuner.telemetry import Vitals
from tuner.trial import Configuration, Full, Outcome, Rejected

Reason = Literal[
    "trials",
    "seconds",
    "device_seconds",
    "exhausted",
    "stopped",
    "interrupted",
    "baseline",
    "fleet",
]
"""Why searching ended: a budget, the space, a request, or a failure of baseline or fleet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOpened:
    """A process began or resumed this run on ``device``; ``environment`` is a digest."""

    kind: Literal["epoch.opened"] = "epoch.opened"
    device: Device
    environment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncumbentEntered:
    """What this search must beat: the best confirmed so far, perhaps of another template.

    It is timed beside all finalists, so that the verdict on it comes from the same processes. The
    first is the general one; each that follows served some shapes better. ``origin`` says, for
    people, which search found it.
    """

    kind: Literal["incumbent.entered"] = "incumbent.entered"
    template: Template
    configuration: Configuration
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselinePrepared:
    """The baseline passed its checks; its time per shape, tune then held-out.

    ``ceilings`` are the device's; ``vitals``, here and below, where anything tells.
    """

    kind: Literal["baseline.prepared"] = "baseline.prepared"
    cells: tuple[Full, ...]
    notes: tuple[str, ...] = ()
    ceilings: Ceilings | None = None
    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRefused:
    """The baseline cannot be trusted; the run ends here."""

    kind: Literal["baseline.refused"] = "baseline.refused"
    rejected: Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProposed:
    """A configuration was chosen; journalled before anything is sent."""

    kind: Literal["trial.proposed"] = "trial.proposed"
    trial: int
    configuration: Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFinished:
    """A trial's outcome; ``searched`` is the run's searching seconds so far, over resumes.

    ``same_as`` is the trial that was measured instead, where code and launches are equal.
    """

    kind: Literal["trial.finished"] = "trial.finished"
    trial: int
    outcome: Outcome
    bench: str
    device_seconds: float
    searched: float
    same_as: int | None = None
    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnded:
    """No more proposals; finalists are confirmed next."""

    kind: Literal["search.ended"] = "search.ended"
    reason: Reason
    searched: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationSampled:
    """One fresh process timed all finalists, the incumbent and the baseline."""

    kind: Literal["confirmation.sampled"] = "confirmation.sampled"
    process: int
    samples: tuple[Sample, ...]
    failed: tuple[tuple[int, Rejected], ...] = ()
    notes: tuple[str, ...] = ()
    vitals: tuple[Vitals, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnersExamined:
    """Confirmed winners were put under the checkers; those that ``failed`` are none any more."""

    kind: Literal["winners.examined"] = "winners.examined"
    trials: tuple[int, ...]
    failed: tuple[tuple[int, Rejected], ...] = ()
    notes: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The run is over; its result is a function of the events before."""

    kind: Literal["run.finished"] = "run.finished"


Fact = Annotated[
    EpochOpened
    | IncumbentEntered
    | BaselinePrepared
    | BaselineRefused
    | TrialProposed
    | TrialFinished
    | SearchEnded
    | ConfirmationSampled
    | WinnersExamined
    | RunFinished,
    Field(discriminator="kind"),
]
