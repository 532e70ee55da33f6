"""Planning: objective, budget and stopping; from what was measured to the next suggestion.

Owns the state of the loop between rounds and every reason to stop. What a round does is
:mod:`agents.loop`'s business, what a model is told :mod:`agents.brief`'s.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from agents.brief import (
    BRIEFS,
    Brief,
    RoundSummary,
    ShapeTimes,
    Specialist,
    planning_messages,
    repair_messages,
)
from agents.landscape import landscape
from agents.llm.port import Message, Role, StepKey
from agents.patterns.pattern import Pattern
from agents.replies import Mode, Suggestion, Unusable, read_suggestion
from agents.static_profile import UNKNOWN, StaticProfile
from agents.step_journal import Asked, Spent, StepFiles, Steps
from agents.verdict import Verdict
from tuner.device import Device
from tuner.experiment.arguments import moved_bytes
from tuner.experiment.model import Experiment, Kernel, Template
from tuner.journal.facts import IncumbentEntered

StopReason = Literal[
    "rounds", "calls", "tokens", "cost", "seconds", "ceiling", "no_gain", "planned", "search"
]

NEAR_CEILING = 0.95

Ask = Callable[[int, tuple[Message, ...]], Awaitable[Asked]]
"""Asks the role's model at an attempt of the present round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may cost. ``seconds`` are those that steps take, waiting for replies included.

    ``patience`` is of rounds in a row without a gain; ``tokens`` counts those read and written.
    """

    rounds: int = 5
    patience: int = 2
    calls: int = 40
    tokens: float = float("inf")
    cost_usd: float = 2.0
    seconds: float = float("inf")
    brief_tokens: int = 24_000
    output_tokens: int = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the loop works on: an experiment without a template, and what is known beforehand.

    ``baseline_us`` and ``floor_us`` have one entry per tune shape: the kernel's time as it stands,
    and the least that memory or arithmetic allow, ``None`` where unknown. ``static`` is of the
    kernel as it stands. ``patterns`` are what winners of earlier runs left. Each round asks for
    ``width`` drafts: templates, or with ``mode`` ``direct`` whole kernels; with ``overlap`` devices
    go on with the best template meanwhile.
    """

    experiment: Experiment
    device: Device
    baseline_us: tuple[float | None, ...]
    floor_us: tuple[float | None, ...]
    static: StaticProfile = UNKNOWN
    limits: Limits = field(default_factory=Limits)
    patterns: tuple[Pattern, ...] = ()
    mode: Mode = "template"
    width: int = 1
    overlap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A searched template: its best configuration and times are in ``verdict``.

    ``parent`` is the digest of the variant that its round started from, ``None`` for the kernel.
    ``suffix`` names the search of the round that the verdict is of, empty for the round's own.
    """

    round: int
    template: Template
    parent: str | None
    suggestion: Suggestion
    verdict: Verdict
    suffix: str = ""

    @property
    def digest(self) -> str:
        """Sixteen hex digits over the template."""
        plain = _TEMPLATES.dump_python(self.template, mode="json")
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def speedup(self) -> float:
        """Confirmed, over the kernel as it stands."""
        return self.verdict.speedup or 1.0


_TEMPLATES: TypeAdapter[Template] = TypeAdapter(Template)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsState:
    """The state between rounds. ``variants`` are all that were searched, in order.

    ``best`` is what the next round starts from. ``stands`` is the variant whose search holds the
    result so far: the best one's own, or a later one whose portfolio is faster with it.
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

    def with_more_of_best(self, verdict: Verdict, suffix: str) -> "RoundsState":
        """With what a further search of the best variant found, if that is a gain."""
        assert self.best is not None
        further = replace(self.best, verdict=verdict, suffix=suffix)
        if verdict.gained:
            return replace(self._with_best(further), result_variant=further)
        if verdict.incumbent_failure:
            return self.without_best(verdict.incumbent_failure)
        return replace(self, result_variant=further) if verdict.supersedes else self

    def without_best(self, why: str) -> "RoundsState":
        """With a best variant that failed beside others: the kernel as it stands is next."""
        if self.best is None:
            return self
        incumbent_failure = replace(self.best, verdict=self.best.verdict.refuted(why))
        return replace(self._with_best(incumbent_failure), best=None, result_variant=None)

    def _with_best(self, variant: Variant) -> "RoundsState":
        variants = tuple(variant if one is self.best else one for one in self.variants)
        return replace(self, best=variant, variants=variants)

    def after(
        self, summary: RoundSummary, tried: Variant | None, beaten: tuple[Variant, ...] = ()
    ) -> "RoundsState":
        """The state after one more round; ``tried`` is what was searched, if anything was.

        ``beaten`` are the round's other drafts.
        """
        searched = (*beaten, *([tried] if tried else []))
        incumbent_failure = tried.verdict.incumbent_failure if tried else ""
        before = self.without_best(incumbent_failure) if incumbent_failure else self
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
    experiment: Experiment,
    *,
    bytes_per_second: float | None,
    flops_per_second: float | None,
    launch_us: float,
) -> tuple[float | None, ...]:
    """The least possible time per tune shape in microseconds, from the experiment's own ``cost``.

    The largest of what memory, arithmetic and the launch itself take; ``None`` without a cost, or
    where the rate that it needs is unknown.
    """
    times: list[float | None] = []
    for binding in experiment.shapes.tune:
        parts = []
        cost = experiment.cost
        for amount, rate in (
            (cost.bytes if cost else None, bytes_per_second),
            (cost.flops if cost else None, flops_per_second),
        ):
            if amount is not None and rate is not None:
                parts.append(1e6 * int(amount.evaluate(binding.symbols)) / rate)
        times.append(max(launch_us, *parts) if parts else None)
    return tuple(times)


def kernel_digest(kernel: Kernel) -> str:
    """SHA-256 over everything that makes the kernel what it is, as hex."""
    parts = [
        kernel.language,
        kernel.entry,
        kernel.source.text,
        list(kernel.options),
        [list(header) for header in kernel.headers],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def stop_reason(task: Task, progress: RoundsState) -> StopReason | None:
    """Why no further round begins, if so."""
    if progress.best and _near_ceiling(task, progress.best.verdict):
        return "ceiling"
    if progress.without_gain >= task.limits.patience:
        return "no_gain"
    if len(progress.rounds) >= task.limits.rounds:
        return "rounds"
    return None


def overspent(limits: Limits, spent: Spent, *, tokens: int, price: float) -> StopReason | None:
    """Why a call of at most so many ``tokens`` and so high a ``price`` may not be made, if so."""
    if spent.calls >= limits.calls:
        return "calls"
    if spent.input_tokens + spent.output_tokens + tokens > limits.tokens:
        return "tokens"
    if spent.cost_usd >= limits.cost_usd or spent.cost_usd + price > limits.cost_usd:
        return "cost"
    if spent.seconds >= limits.seconds:
        return "seconds"
    return None


def brief_of(task: Task, progress: RoundsState) -> Brief:
    """What a model is told now."""
    best: tuple[float | None, ...] = (None,) * len(task.baseline_us)
    found, baselines = None, task.baseline_us
    if progress.best:  # times from different processes are not compared
        best, baselines = progress.best.verdict.best_us, progress.best.verdict.baseline_us
    if progress.variants:
        last = progress.variants[-1]
        found = landscape(last.template.parameters, last.verdict.observations)
        if None in baselines:  # the run began where the device was not at hand
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
        best_static=progress.best.verdict.static if progress.best else UNKNOWN,
        incumbent=progress.best.template if progress.best else None,
        specialists=tuple(_specialists(progress, shapes)),
        landscape=found,
        rounds=progress.rounds,
        patterns=task.patterns,
        profile=progress.variants[-1].verdict.profile if progress.variants else (),
    )


def _specialists(progress: RoundsState, shapes: tuple[ShapeTimes, ...]) -> Iterator[Specialist]:
    if progress.result_variant is None:
        return
    verdict = progress.result_variant.verdict
    for place, incumbent in enumerate(progress.incumbents):
        times = tuple(
            replace(shapes[one.shape], best=one.us, baseline=verdict.baseline_us[one.shape])
            for one in verdict.served
            if one.incumbent == place
        )
        if times:
            yield Specialist(
                template=incumbent.template, configuration=incumbent.configuration, shapes=times
            )


def brief_step(round_number: int, width: int) -> StepKey:
    """Where the brief of a round with so many drafts is recorded."""
    return StepKey(round=round_number, draft=width, role=Role.TESTING, attempt=0)


def recorded_brief(steps: Path, round_number: int, width: int = 1) -> Brief:
    """The brief that a round of a recorded run began with, to run a role alone from it.

    Raises:
        SpecError: it is not there, or is damaged.
    """
    files = Steps(StepFiles(steps), lambda: 0.0)
    return files.recall(brief_step(round_number, width), BRIEFS)


async def suggest(brief: Brief, ask: Ask, limits: Limits) -> Suggestion | Unusable:
    """One suggestion; an unusable reply is asked for once more, with its fault quoted."""
    messages = planning_messages(brief, budget_tokens=limits.brief_tokens)
    asked = await ask(0, messages)
    found = read_suggestion(asked.reply)
    if isinstance(found, Unusable):
        again = repair_messages(messages, asked.reply.text, found.detail, what="The reader")
        found = read_suggestion((await ask(1, again)).reply)
    return found


def _near_ceiling(task: Task, verdict: Verdict) -> bool:
    """Whether every tune shape is within reach of the least possible time."""
    pairs = list(zip(task.floor_us, verdict.best_us, strict=True))
    return all(
        floor is not None and best is not None and floor >= NEAR_CEILING * best
        for floor, best in pairs
    )
