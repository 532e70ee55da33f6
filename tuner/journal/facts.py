"""The facts of a run: what is journalled, and all that is needed to resume it.

The answers of a fleet are facts themselves: :class:`TrialCompiled`, :class:`BaselinePrepared`,
:class:`TrialFinished`, :class:`ConfirmationSampled`, :class:`WinnersExamined` and
:class:`WorkLost`. Their ``work`` is the id of the :mod:`tuner.engine.work` that they answer,
``None`` where no worker was asked, and their ``span`` says which worker was busy with it, and when.

Plain data, encoded by pydantic with ``kind`` as discriminator.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.experiment.model import Template
from tuner.plan import Binary
from tuner.telemetry import Vitals
from tuner.trial import Code, Configuration, Full, Millijoules, Nanoseconds, Outcome, Rejected

Finite = Annotated[float, Field(allow_inf_nan=False)]

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

WorkKind = Literal["compile", "prepare", "measure", "confirm", "examine", "model"]
"""What a worker, or a language model, is asked to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a worker was busy: Unix seconds on the worker's own clock.

    For ``waited`` seconds of them, another process used the device.
    """

    worker: str
    began: Finite
    ended: Finite
    waited: Finite = 0.0

    @property
    def seconds(self) -> float:
        """How long it was busy."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One process's median time for one finalist (or the baseline) on one shape.

    ``shape`` counts tune shapes, then held-out ones; ``cache`` is ``cold`` or ``hot``. A finalist
    that is launched dependently, unlike the baseline, is timed ``serialised`` as well: each launch
    after the end of the one before. ``millijoules`` of a launch are measured where energy counts.
    ``unseen`` is the time of launches on inputs that the finalist never saw ÷ that on the timed
    inputs; ``None`` if not measured.
    """

    trial: int
    shape: int
    cache: str
    median_ns: Nanoseconds
    serialised: bool = False
    millijoules: Millijoules | None = None
    unseen: float | None = None

    def cost(self, share: float) -> float | None:
        """What is minimised, with the exponent ``share`` for energy; ``None`` if not measured."""
        if not share:
            return self.median_ns
        if self.millijoules is None:
            return None
        return float(self.median_ns ** (1 - share) * self.millijoules**share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Hardware counters of one launch of a finalist on one shape, by their display names."""

    trial: int
    shape: int
    counters: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOpened:
    """A process began or resumed this run on ``device``. Work in flight before is void.

    ``environment`` is a digest of what makes times incomparable when it changes; ``version`` is
    Kernelwright's.
    """

    kind: Literal["epoch.opened"] = "epoch.opened"
    device: Device
    environment: str
    version: str = ""
    compile_slots: int = 1
    bench_slots: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IncumbentEntered:
    """What this search must beat: the best confirmed so far, perhaps of another template.

    Incumbents are timed beside all finalists, in the same processes. The first is the general one;
    each that follows served some shapes better. ``origin`` says which search found it, for the
    report.
    """

    kind: Literal["incumbent.entered"] = "incumbent.entered"
    template: Template
    configuration: Configuration
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselinePrepared:
    """The baseline's time per shape, tune then held-out; or why it cannot serve as baseline.

    ``notes`` are for the report: what was not checked and why. ``ceilings`` are the device's,
    ``vitals`` its state when the baseline was timed; ``None`` where they cannot be read. Without
    ``span`` an earlier preparation was reused.
    """

    kind: Literal["baseline.prepared"] = "baseline.prepared"
    work: int | None = None
    result: tuple[Full, ...] | Rejected
    notes: tuple[str, ...] = ()
    ceilings: Ceilings | None = None
    vitals: Vitals | None = None
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProposed:
    """A configuration was chosen; journalled before any work on it is sent."""

    kind: Literal["trial.proposed"] = "trial.proposed"
    trial: int
    configuration: Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCompiled:
    """The builds of a trial, the baseline or an incumbent were compiled, or ``rejected``.

    ``binaries`` are in the order of the plan's builds; they are passed on but never journalled.
    """

    kind: Literal["trial.compiled"] = "trial.compiled"
    work: int
    trial: int
    rejected: Rejected | None = None
    span: Span | None = None
    binaries: Annotated[tuple[Binary, ...], Field(exclude=True)] = field(
        default=(), repr=False, compare=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFinished:
    """A trial's outcome. ``span`` is ``None`` if it was not measured.

    ``same_as`` is the trial that was measured instead, because its code and launches are equal.
    ``device_seconds`` count against the budget of that name. ``vitals`` is the device's state when
    the trial was timed, ``None`` where it cannot be read.
    """

    kind: Literal["trial.finished"] = "trial.finished"
    work: int | None = None
    trial: int
    outcome: Outcome
    same_as: int | None = None
    device_seconds: Finite = 0.0
    vitals: Vitals | None = None
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnded:
    """No more proposals; finalists are confirmed next."""

    kind: Literal["search.ended"] = "search.ended"
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """Inputs of a ``shape`` that finalists were not checked on: the baseline gives no outputs.

    ``reason`` and ``code`` say why; ``wrong``: it is wrong there, at a shape of the domain that is
    not timed.
    """

    shape: str
    inputs: str
    reason: str
    code: Code
    wrong: bool


Note = str | Unchecked
"""A line of the report on what was not checked."""


ConfirmScope = Literal["tune", "rest", "all"]
"""What a process of confirmation times.

``tune``: the tune shapes in the experiment's cache state, by which finalists are compared.
``rest``: the held-out shapes and, on a GPU, the other cache state, reported of winners. Or both.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationSampled:
    """One fresh process timed finalists, incumbents and the baseline, on what is in ``scope``.

    ``extra_checks`` are the finalists that were given the extra checks in it; ``failed`` maps those
    that failed to the reason. ``notes`` are for the report: what was not checked and why.
    ``vitals`` has the device's state after each shape, where it can be read.
    """

    kind: Literal["confirmation.sampled"] = "confirmation.sampled"
    work: int | None = None
    process: int
    scope: ConfirmScope = "all"
    extra_checks: tuple[int, ...] = ()
    samples: tuple[Sample, ...]
    failed: tuple[tuple[int, Rejected], ...] = ()
    notes: tuple[Note, ...] = ()
    vitals: tuple[Vitals, ...] = ()
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnersExamined:
    """Confirmed winners were run under the checkers; those that ``failed`` win no longer.

    ``profiles`` where hardware counters can be read; ``notes`` say what was not checked and why.
    """

    kind: Literal["winners.examined"] = "winners.examined"
    work: int | None = None
    trials: tuple[int, ...]
    failed: tuple[tuple[int, Rejected], ...] = ()
    notes: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The run is over; its result is a function of the facts before."""

    kind: Literal["run.finished"] = "run.finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBegan:
    """Work that takes more than a second is sent; journalled before, so that a crash shows it."""

    kind: Literal["work.began"] = "work.began"
    work: int
    task: WorkKind
    trials: tuple[int, ...] = ()
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLost:
    """A worker died before it answered: which, why, and the ``trials`` without an answer.

    ``attempt`` counts from 1. After a ``final`` loss the work is not sent again: the first of the
    trials is rejected. One that is not ``counted`` is no attempt: the worker lacked room.
    """

    kind: Literal["work.lost"] = "work.lost"
    work: int
    task: WorkKind
    trials: tuple[int, ...] = ()
    worker: str
    reason: str
    attempt: int = 1
    final: bool = False
    counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJoined:
    """A bench has prepared and takes work: at first, later in a run, or again after a loss.

    ``bench`` is its name in spans, ``node`` the host, ``device`` the model. ``benches`` counts
    those that take work now.
    """

    kind: Literal["bench.joined"] = "bench.joined"
    bench: str
    node: str
    device: str
    benches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLost:
    """A bench takes no more work, for a ``reason``; it may join again. Or it could not be used."""

    kind: Literal["bench.lost"] = "bench.lost"
    bench: str
    node: str
    reason: str
    benches: int


BenchChange = BenchJoined | BenchLost
"""What a fleet tells of its benches unasked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled:
    """A language model was asked in a ``step`` of a run with agents, and what came of it.

    ``waiting``: the reply is awaited elsewhere. ``unavailable``: no model could be reached. Neither
    prompt nor reply is here; the steps hold them.
    """

    kind: Literal["model.called"] = "model.called"
    work: int
    step: str
    model: str
    result: Literal["reply", "waiting", "unavailable"]
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Finite = 0.0
    span: Span


Fact = Annotated[
    EpochOpened
    | IncumbentEntered
    | BaselinePrepared
    | TrialProposed
    | TrialCompiled
    | TrialFinished
    | SearchEnded
    | ConfirmationSampled
    | WinnersExamined
    | RunFinished
    | WorkBegan
    | WorkLost
    | BenchJoined
    | BenchLost
    | ModelCalled,
    Field(discriminator="kind"),
]

Answer = (
    TrialCompiled
    | BaselinePrepared
    | TrialFinished
    | ConfirmationSampled
    | WinnersExamined
    | WorkLost
)
"""The facts that a fleet answers with."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal: a fact, and when it was written.

    ``at`` is in Unix seconds; ``t`` in seconds since the writing process began its work, on a clock
    that never goes back. Both belong to the line, not to the fact: replays compare facts.
    """

    fact: Fact
    at: float = 0.0
    t: float = 0.0
