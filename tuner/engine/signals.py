"""What a session is told and nobody journals: it concerns work in flight, void after a crash."""

from dataclasses import dataclass
from typing import Literal

from tuner.engine.commands import Work
from tuner.trial import Rejected


@dataclass(frozen=True, slots=True)
class CandidateCompiled:
    """A trial, or the baseline, was compiled, or ``rejected`` by the compiler or the limits.

    ``same_as`` is the first trial whose machine code and launches are the same on every shape.
    """

    trial: int
    rejected: Rejected | None = None
    same_as: int | None = None


@dataclass(frozen=True, slots=True)
class SpaceExhausted:
    """The proposer has nothing left to propose."""


@dataclass(frozen=True, slots=True)
class JobLost:
    """The worker that carried this command died before answering, or before answering all of it."""

    command: Work
    reason: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Someone wants the run to end.

    ``stopped``: search no further, confirm the best so far, finish. ``interrupted``: leave at once;
    the run can be resumed.
    """

    reason: Literal["stopped", "interrupted"]


Signal = CandidateCompiled | SpaceExhausted | JobLost | StopRequested
