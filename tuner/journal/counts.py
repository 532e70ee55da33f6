"""What the facts of a run count up to: trials by outcome, busy seconds by worker, what was lost.

A fold of facts in their order, so cheap that a driver can count as it journals. The live table, the
page and the metrics are made of it.
"""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

from tuner.journal.facts import (
    BenchJoined,
    BenchLost,
    EpochOpened,
    Fact,
    ModelCalled,
    Span,
    TrialFinished,
    WorkKind,
    WorkLost,
)
from tuner.journal.timeline import spans
from tuner.trial import Rejected

RECENT_SECONDS = 60.0
"""How far back a worker's recent share of busy time looks."""

EQUAL = "equal"
"""The outcome of a trial that an equal one spared."""


@dataclass(slots=True)
class WorkerCounts:
    """One worker: trials measured, busy seconds by kind of work, and its last answer, Unix time."""

    is_bench: bool = False
    trials: int = 0
    busy: dict[WorkKind, float] = field(default_factory=lambda: defaultdict(float))
    began: float = 0.0
    answered: float = 0.0
    _recent: deque[Span] = field(default_factory=deque)

    def take(self, kind: WorkKind, span: Span) -> None:
        """Count what it was busy with."""
        self.is_bench = self.is_bench or kind not in ("compile", "model")
        self.trials += kind == "measure"
        self.busy[kind] += span.seconds
        self.began = min(self.began or span.began, span.began)
        self.answered = max(self.answered, span.ended)
        self._recent.append(span)
        while self._recent and self._recent[0].ended < self.answered - RECENT_SECONDS:
            self._recent.popleft()

    def share(self, now: float) -> float:
        """Its share of busy time in the last :data:`RECENT_SECONDS`, or since it began."""
        since = max(now - RECENT_SECONDS, self.began)
        busy = sum(max(0.0, min(one.ended, now) - max(one.began, since)) for one in self._recent)
        return min(1.0, busy / (now - since)) if now > since else 0.0


class RunCounts:
    """Counts over the facts that were applied."""

    def __init__(self) -> None:
        self.trials: Counter[tuple[str, str]] = Counter()
        """By outcome (``measured``, ``rejected`` or :data:`EQUAL`), and why it was rejected."""
        self.workers: dict[str, WorkerCounts] = defaultdict(WorkerCounts)
        self.lost: list[WorkLost] = []
        """Lost work in order."""
        self.losses: Counter[tuple[str, WorkKind]] = Counter()
        """Lost work by worker and kind."""
        self.benches = 0
        """Benches that take work now."""
        self.gone: dict[str, str] = {}
        """Why benches are lost that did not join again."""
        self.benches_lost = 0
        """How often a bench was lost."""
        self.calls: Counter[str] = Counter()
        """Calls to models by result."""
        self.tokens: Counter[str] = Counter()
        """Tokens read (``input``) and written (``output``) by models."""
        self.cost_usd = 0.0

    def apply(self, fact: Fact) -> None:
        """Count one fact."""
        for kind, span in spans((fact,)):
            self.workers[span.worker].take(kind, span)
        match fact:
            case TrialFinished(outcome=outcome, same_as=same_as):
                why = outcome.code.value if isinstance(outcome, Rejected) else ""
                self.trials[outcome.kind if same_as is None else EQUAL, why] += 1
            case ModelCalled():
                self.calls[fact.result] += 1
                self.tokens["input"] += fact.input_tokens
                self.tokens["output"] += fact.output_tokens
                self.cost_usd += fact.cost_usd
            case EpochOpened(bench_slots=benches):
                self.benches = benches
            case BenchJoined(bench=bench, benches=benches):
                self.benches = benches
                self.gone.pop(bench, None)
                self.workers[bench].is_bench = True
            case BenchLost(bench=bench, reason=reason, benches=benches):
                self.benches = benches
                self.gone[bench] = reason
                self.benches_lost += 1
            case WorkLost():
                self.lost.append(fact)
                self.losses[fact.worker, fact.task] += 1
            case _:
                pass
