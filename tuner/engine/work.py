"""The five kinds of work, and what else a client may ask of the engine.

Work goes to a fleet of workers and is answered by the facts of :mod:`tuner.journal.facts`. It is
never journalled. A client leaves ``id`` and ``attempt`` alone: the engine sets them.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar

from tuner.candidate import Candidate
from tuner.experiment.model import ConfirmSettings, Experiment, SearchSettings
from tuner.journal.facts import ConfirmScope, Fact, WorkKind
from tuner.plan import Plan
from tuner.search.port import Losses
from tuner.trial import Configuration


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
        """The experiment, less everything that a preparation does not depend on."""
        return replace(
            self.experiment,
            template=None,
            search=SearchSettings(),
            confirm=ConfirmSettings(),
            agents=None,
        )

    @property
    def key(self) -> str:
        """A digest of what a preparation depends on: setups of equal key can share one."""
        return hashlib.sha256(repr((self.prepares, self.secret)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    """What every work has: a number, and how often it was sent, counted from 1."""

    id: int = 0
    attempt: int = 1

    @property
    def trials(self) -> tuple[int, ...]:
        """The numbers of the candidates in it, in order."""
        match self:
            case CompileWork(trial=trial):
                return (trial,)
            case (
                MeasureWork(candidates=candidates)
                | ConfirmWork(finalists=candidates)
                | ExamineWork(winners=candidates)
            ):
                return tuple(candidate.trial for candidate in candidates)
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileWork(_Numbered):
    """Compile every build of one candidate; answered by ``TrialCompiled``."""

    kind: ClassVar[WorkKind] = "compile"
    trial: int
    configuration: Configuration
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareWork(_Numbered):
    """Compute the expected outputs, check and time the baseline; answered by ``BaselinePrepared``.

    Every bench prepares, since later work needs it; one of them answers.
    """

    kind: ClassVar[WorkKind] = "prepare"
    setup: BenchSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureWork(_Numbered):
    """Verify and time candidates on the tune shapes; answered by one ``TrialFinished`` for each.

    Cells above the ``cutoffs`` of :mod:`tuner.racing` may be cut short; without cut-offs, none is.
    """

    kind: ClassVar[WorkKind] = "measure"
    candidates: tuple[Candidate, ...]
    cutoffs: Losses = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmWork(_Numbered):
    """Time finalists and baseline interleaved, in one fresh process, on what is in ``scope``.

    Answered by ``ConfirmationSampled``. ``process`` numbers the replication. The finalists, with
    the incumbents among them, have plans with cells like the baseline's. Those in ``extra_checks``
    are checked on further inputs first, once in a run for each shape; with the tune shapes on odd
    shapes too, which are not timed.
    """

    kind: ClassVar[WorkKind] = "confirm"
    process: int
    scope: ConfirmScope = "all"
    finalists: tuple[Candidate, ...]
    extra_checks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamineWork(_Numbered):
    """Run confirmed winners under memory and race checkers, and the first under a profiler.

    Answered by ``WinnersExamined``. Either may be left out.
    """

    kind: ClassVar[WorkKind] = "examine"
    winners: tuple[Candidate, ...]
    checkers: bool = True
    profiler: bool = True


Work = CompileWork | PrepareWork | MeasureWork | ConfirmWork | ExamineWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """Ask the proposer for configuration number ``trial``.

    First ``tell`` it these losses, in this order (``None``: the trial failed). The engine answers
    with a ``TrialProposed``, or tells the client that the space is exhausted.
    """

    trial: int
    tell: tuple[tuple[int, Losses | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Nothing is left to do for this client in this process."""


Command = Fact | Propose | Work | Finish
"""What a client may ask for; a fact is journalled, then applied to the client."""
