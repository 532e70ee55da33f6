"""What the driver asks of a fleet of workers, and what it answers: jobs out, answers back.

A fleet carries jobs to compile workers and benches: in this process's children, through Ray, or
simulated on a virtual clock. It decides nothing; the session does.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Protocol

from tuner.ceilings import Ceilings
from tuner.device import Device
from tuner.experiment.model import ConfirmSettings, Experiment, SearchSettings
from tuner.plan import Binary, Build, Plan
from tuner.search.port import Losses
from tuner.telemetry import Vitals
from tuner.trial import Configuration, Full, Infeasible, Outcome, Rejected

BASELINE = -1
"""The candidate index of the baseline; trials count from 0."""

INCUMBENT = -2
"""That of the best confirmed before this search, where there is one.

The configurations that served some shapes better are incumbents too, and count down from it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A compiled configuration, or the baseline: everything a bench needs to run it.

    ``binaries`` are in the order of ``plan.builds``. ``configuration`` is for messages only.
    """

    trial: int
    configuration: Configuration
    plan: Plan
    binaries: tuple[Binary, ...]

    @property
    def work(self) -> str:
        """A digest of what a device is asked to do: code and launches on every shape."""
        codes = [hashlib.sha256(b.code + repr(b.symbols).encode()).digest() for b in self.binaries]
        done = [
            "infeasible"
            if isinstance(cell, Infeasible)
            else (codes[cell.build], cell.steps, cell.scratch)
            for cell in self.plan.cells
        ]
        return hashlib.sha256(repr(done).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSetup:
    """What every bench of a run shares.

    ``secret`` seeds the inputs and reaches no prompt and no kernel; ``baseline`` has one cell per
    tune shape, then one per held-out shape, then one per odd shape
    (:mod:`tuner.experiment.odd_shapes`).
    """

    experiment: Experiment
    baseline: Candidate
    secret: int

    @property
    def prepares(self) -> Experiment:
        """What of the experiment decides how its baseline is prepared: nothing that follows."""
        return replace(
            self.experiment,
            template=None,
            search=SearchSettings(),
            confirm=ConfirmSettings(),
            agents=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileJob:
    """Compile every build of one candidate; answered by :class:`Compiled`."""

    trial: int
    builds: tuple[Build, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareJob:
    """Make the oracle and the baseline's times ready; answered by :class:`Prepared`."""

    setup: BenchSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJob:
    """Verify and time candidates on the tune shapes; answered by one :class:`Benched` for each.

    Cells above the ``cutoffs`` of :mod:`tuner.racing` may be given up; without, none is.
    """

    candidates: tuple[Candidate, ...]
    cutoffs: Losses = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmJob:
    """Time finalists and baseline interleaved, in one fresh process, on tune and held-out shapes.

    Answered by :class:`Confirmed`. ``process`` numbers the replication. The finalists, of which the
    incumbents are some, have plans with cells like the baseline's; on odd shapes they are only
    checked. Those in ``harder`` are asked the further questions first, once in a run.
    """

    process: int
    finalists: tuple[Candidate, ...]
    harder: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamineJob:
    """Put confirmed winners, the best first, under memory and race checkers and a profiler.

    Answered by :class:`Examined`.
    """

    winners: tuple[Candidate, ...]


Job = CompileJob | PrepareJob | BenchJob | ConfirmJob | ExamineJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The binaries in the order of the job's builds, or why there are none."""

    trial: int
    result: tuple[Binary, ...] | Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The baseline's time per shape, tune then held-out; or why it cannot serve as one.

    ``notes`` are for the report: what was not checked and why. ``vitals`` is how the device was,
    where anything tells.
    """

    result: tuple[Full, ...] | Rejected
    notes: tuple[str, ...] = ()
    ceilings: Ceilings | None = None
    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Benched:
    """One trial's outcome, the bench it ran on, and the device seconds it took.

    ``vitals`` is how the device was when it was timed, where anything tells.
    """

    trial: int
    outcome: Outcome
    bench: str
    seconds: float
    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One process's median for one finalist (or the baseline) on one shape, in nanoseconds.

    ``shape`` counts tune shapes, then held-out ones; ``cache`` is ``cold`` or ``hot``.
    """

    trial: int
    shape: int
    cache: str
    median_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Hardware counters of one launch of a finalist on one shape, by their names for people."""

    trial: int
    shape: int
    counters: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """One process's samples; ``failed`` maps finalists that failed in it to the reason.

    ``notes`` are for the report: what was not checked and why. ``vitals`` has a look at the device
    after each shape, where anything tells.
    """

    process: int
    samples: tuple[Sample, ...]
    failed: tuple[tuple[int, Rejected], ...] = ()
    notes: tuple[str, ...] = ()
    vitals: tuple[Vitals, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What the checkers found of which of the ``trials``; ``profiles`` where counters can be read.

    ``notes`` are for the report: what was not checked and why.
    """

    trials: tuple[int, ...]
    failed: tuple[tuple[int, Rejected], ...] = ()
    notes: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A job whose worker died before answering; of a bench job, the trials still unanswered."""

    job: Job
    reason: str


Answer = Compiled | Prepared | Benched | Confirmed | Examined | Lost


class Fleet(Protocol):
    """Carries jobs to workers and brings back answers.

    Implementations: ``cluster.fleets.local``, ``cluster.fleets.ray``,
    ``tuner.engine.simulated_fleet``. All obey ``tests/conformance/fleet.py``.
    """

    @property
    def device(self) -> Device:
        """The device model that this run tunes for."""
        ...

    @property
    def compile_slots(self) -> int:
        """How many compile jobs run at once."""
        ...

    @property
    def bench_slots(self) -> int:
        """How many bench jobs run at once: one per device of the model."""
        ...

    def now(self) -> float:
        """Seconds on the fleet's clock, which never goes back."""
        ...

    def submit(self, job: Job) -> None:
        """Queue a job. Answers come from :meth:`answers`, never from here."""
        ...

    async def answers(self, timeout: float) -> tuple[Answer, ...]:
        """Wait for at least one answer, at most ``timeout`` seconds of the fleet's clock."""
        ...

    async def close(self) -> None:
        """Stop all work and release every device; pending jobs are dropped."""
        ...
