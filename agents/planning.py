"""Planning: what is known becomes a brief, and a model's reply the next suggestion.

Owns the state between rounds and every reason to stop. What a round does is in :mod:`agents.round`,
what a model is told in :mod:`agents.brief`.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from agents.brief import (
    Brief,
    RoundSummary,
    ShapeTimes,
    Specialist,
    round_messages,
)
from agents.llm.port import Request
from agents.patterns.pattern import Pattern
from agents.replies import Suggestion, read_suggestion
from agents.settings import AgentSettings
from agents.static_profile import UNKNOWN, StaticProfile
from agents.step_journal import CallTotals
from agents.turns import Ask, accepted_answer
from agents.verdict import Refused, Verdict
from tuner.device import Device
from tuner.experiment.arguments import moved_bytes
from tuner.experiment.model import Experiment, Template
from tuner.experiment.validation import adapter
from tuner.journal.facts import IncumbentEntered
from tuner.results.landscape import landscape

StopReason = Literal[
    "rounds", "calls", "tokens", "cost", "seconds", "ceiling", "no_gain", "planned", "search"
]

STOP_DETAILS: dict[str, str] = {
    "rounds": "all rounds were used",
    "calls": "all model calls were used",
    "tokens": "the remaining tokens do not cover another model call",
    "cost": "the remaining money does not cover another model call",
    "seconds": "the time was used up",
    "ceiling": "every shape is within 5 % of the least possible time",
    "no_gain": "no gain in as many rounds in a row as the agents' patience allows",
    "planned": "the model sees nothing left to try",
    "search": "the search budget was used up",
}
"""Each reason to stop, for people."""

NEAR_CEILING = 0.95
"""A run stops once every shape reaches this share of the possible speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the loop works on.

    ``baseline_us`` and ``floor_us`` are the measured and the least possible time of the baseline
    per tune shape in microseconds, ``None`` where unknown; ``static`` is the compiled baseline.
    """

    experiment: Experiment
    device: Device
    baseline_us: tuple[float | None, ...]
    floor_us: tuple[float | None, ...]
    static: StaticProfile = UNKNOWN
    agents: AgentSettings = field(default_factory=AgentSettings)
    patterns: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A searched template and the verdict on it.

    ``parent`` is the digest of the variant that the round started from, ``None`` for the baseline;
    ``suffix`` names the search of the round, empty for the round's own.
    """

    round: int
    template: Template
    parent: str | None
    suggestion: Suggestion
    verdict: Verdict
    suffix: str = ""

    @property
    def digest(self) -> str:
        """Sixteen hex digits of a SHA-256 over the template."""
        plain = adapter(Template).dump_python(self.template, mode="json")
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def speedup(self) -> float:
        """Confirmed speedup over the baseline."""
        return self.verdict.speedup or 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsState:
    """The state between rounds.

    ``best`` is the variant that the next round starts from; ``result_variant`` the one whose search
    holds the result: ``best``, or a later one whose portfolio is faster. ``without_gain`` counts
    rounds in a row.
    """

    rounds: tuple[RoundSummary, ...] = ()
    best: Variant | None = None
    result_variant: Variant | None = None
    variants: tuple[Variant, ...] = ()
    without_gain: int = 0
    trials: int = 0
    search_seconds: float = 0.0
    device_seconds: float = 0.0

    @property
    def incumbents(self) -> tuple[IncumbentEntered, ...]:
        """What a search must beat."""
        return self.result_variant.verdict.incumbents if self.result_variant else ()

    @property
    def shown(self) -> Variant | None:
        """The variant whose search holds the result, or the fastest if none is a gain."""
        valid = [one for one in self.variants if one.verdict.speedup is not None]
        return self.result_variant or max(valid, key=lambda one: one.speedup, default=None)

    def finally_confirmed(self, verdict: Verdict, suffix: str) -> "RoundsState":
        """The state after :attr:`shown` was confirmed on all that is reported.

        If nothing of its search passed, the best before it holds the result.
        """
        shown = self.shown
        passed = verdict.configuration is not None
        assert shown is not None
        before = shown.verdict
        if not passed:
            verdict = verdict.unconfirmed("nothing of it passed on all shapes")
        verdict = replace(
            verdict,
            trials=before.trials,
            seconds=before.seconds,
            device_seconds=before.device_seconds,
            observations=before.observations,
        )
        now = replace(shown, verdict=verdict, suffix=suffix)
        left = now if passed else None
        first = self.best is None and verdict.gained
        best = left if first or self.best is shown else self.best
        return replace(
            self,
            variants=tuple(now if one is shown else one for one in self.variants),
            best=best,
            result_variant=left if passed and self.result_variant is shown else best,
        )

    def with_more_of_best(self, verdict: Verdict, suffix: str) -> "RoundsState":
        """The state after a further search of the best variant."""
        assert self.best is not None
        further = replace(self.best, verdict=verdict, suffix=suffix)
        if verdict.gained:
            return replace(self._with_best(further), result_variant=further)
        if verdict.incumbent_failure:
            return self.without_best(verdict.incumbent_failure)
        return replace(self, result_variant=further) if verdict.supersedes else self

    def without_best(self, why: str) -> "RoundsState":
        """The state after the best variant failed: the next round starts from the baseline."""
        if self.best is None:
            return self
        failed = replace(self.best, verdict=self.best.verdict.unconfirmed(why))
        return replace(self._with_best(failed), best=None, result_variant=None)

    def _with_best(self, variant: Variant) -> "RoundsState":
        variants = tuple(variant if one is self.best else one for one in self.variants)
        return replace(self, best=variant, variants=variants)

    def after(
        self, summary: RoundSummary, tried: Variant | None, beaten: tuple[Variant, ...] = ()
    ) -> "RoundsState":
        """The state after one more round.

        ``tried`` is the winning draft, if anything was searched; ``beaten`` are the other drafts.
        """
        searched = (*beaten, *([tried] if tried else []))
        failure = tried.verdict.incumbent_failure if tried else ""
        before = self.without_best(failure) if failure else self
        gained = tried is not None and tried.verdict.gained
        serves_better = tried is not None and tried.verdict.serves_better
        supersedes = tried is not None and tried.verdict.supersedes
        return replace(
            before,
            rounds=(*self.rounds, summary),
            best=tried if gained else before.best,
            result_variant=tried if supersedes else before.result_variant,
            variants=(*before.variants, *searched),
            without_gain=0 if gained or serves_better else self.without_gain + 1,
            trials=self.trials + sum(one.verdict.trials for one in searched),
            search_seconds=self.search_seconds + sum(one.verdict.seconds for one in searched),
            device_seconds=self.device_seconds
            + sum(one.verdict.device_seconds for one in searched),
        )


def least_times(
    experiment: Experiment, *, bytes_per_second: float | None, launch_us: float
) -> tuple[float | None, ...]:
    """The least possible time per tune shape in microseconds, from the experiment's ``cost``.

    The larger of memory time and launch time; ``None`` without ``cost.bytes`` or a rate.
    """
    tune, cost = experiment.shapes.tune, experiment.cost
    moved = cost.bytes if cost else None
    if moved is None or bytes_per_second is None:
        return (None,) * len(tune)
    memory = (1e6 * int(moved.evaluate(one.symbols)) / bytes_per_second for one in tune)
    return tuple(max(launch_us, time) for time in memory)


def stop_reason(task: Task, state: RoundsState) -> StopReason | None:
    """Why no further round begins; ``None`` if one does."""
    if state.best and _near_ceiling(task, state.best.verdict):
        return "ceiling"
    if state.without_gain >= task.agents.patience:
        return "no_gain"
    if len(state.rounds) >= task.agents.rounds:
        return "rounds"
    return None


def overspent(
    agents: AgentSettings, spent: CallTotals, request: Request, price: float | None
) -> StopReason | None:
    """Why a request is not made; ``None`` if the highest that it may cost fits the budget."""
    tokens = request.input_tokens + request.max_output_tokens
    tokens += spent.input_tokens + spent.output_tokens
    if spent.calls >= agents.max_calls:
        return "calls"
    if agents.max_tokens is not None and tokens > agents.max_tokens:
        return "tokens"
    if spent.cost_usd >= agents.max_cost_usd or spent.cost_usd + (price or 0) > agents.max_cost_usd:
        return "cost"
    if agents.seconds is not None and spent.seconds >= agents.seconds:
        return "seconds"
    return None


def brief_of(task: Task, state: RoundsState) -> Brief:
    """The brief of the next round."""
    best: tuple[float | None, ...] = (None,) * len(task.baseline_us)
    found, baselines = None, task.baseline_us
    if state.best:  # both from the same processes
        best, baselines = state.best.verdict.best_us, state.best.verdict.baseline_us
    if state.variants:
        last = state.variants[-1]
        found = landscape(last.template.parameters, last.verdict.observations)
        if None in baselines:  # the run began without the device
            baselines = last.verdict.baseline_us
    shapes = tuple(
        ShapeTimes(
            shape=str(shape),
            baseline=baseline,
            best=time,
            floor=floor,
            moved=moved_bytes(task.experiment, shape.symbols),
        )
        for shape, baseline, time, floor in zip(
            task.experiment.shapes.tune, baselines, best, task.floor_us, strict=True
        )
    )
    return Brief(
        experiment=replace(task.experiment, template=None),
        device=task.device,
        shapes=shapes,
        static=task.static,
        best_static=state.best.verdict.static if state.best else UNKNOWN,
        incumbent=state.best.template if state.best else None,
        specialists=tuple(_specialists(state, shapes)),
        landscape=found,
        rounds=state.rounds,
        patterns=task.patterns,
        profile=state.variants[-1].verdict.profile if state.variants else (),
    )


def _specialists(state: RoundsState, shapes: tuple[ShapeTimes, ...]) -> Iterator[Specialist]:
    if state.result_variant is None:
        return
    verdict = state.result_variant.verdict
    for place, incumbent in enumerate(state.incumbents):
        times = tuple(
            replace(shapes[one.shape], best=one.us, baseline=verdict.baseline_us[one.shape])
            for one in verdict.served
            if one.incumbent == place
        )
        if times:
            yield Specialist(
                template=incumbent.template, configuration=incumbent.configuration, shapes=times
            )


async def suggest(brief: Brief, ask: Ask) -> Suggestion | Refused:
    """One suggestion. After an unusable reply the model is asked once more."""

    async def judge(_attempt: int, _found: Suggestion) -> None:
        """Any is good: what comes of it is measured."""

    return await accepted_answer(round_messages("planning", brief), ask, read_suggestion, judge)


def _near_ceiling(task: Task, verdict: Verdict) -> bool:
    """Whether every tune shape is near its least possible time."""
    pairs = list(zip(task.floor_us, verdict.best_us, strict=True))
    return all(
        floor is not None and best is not None and floor >= NEAR_CEILING * best
        for floor, best in pairs
    )
