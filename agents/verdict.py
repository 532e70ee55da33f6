"""What admission and a finished search of a round found, as plain data.

Owns the verdict on a round: whether the best confirmed configuration, or the portfolio with it, is
significantly faster than the incumbents; in the first round, than the baseline. Knows neither
models nor how anything was measured.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from agents.static_profile import UNKNOWN, StaticProfile
from tuner.candidate import INCUMBENT
from tuner.experiment.model import ShapeBinding, Template
from tuner.journal.facts import IncumbentEntered
from tuner.journal.history import History
from tuner.results.parameters import Observation, observations
from tuner.results.result import Result
from tuner.results.statistics import Comparison
from tuner.trial import Configuration, Rejected, Stage

_DETAIL = 3_000
_LINES = 8
_FINDERS = {
    Stage.COMPILE: "The compiler",
    Stage.LIMITS: "The check of device limits",
    Stage.LAUNCH: "The launch",
    Stage.VERIFY: "The comparison with the original kernel",
    Stage.TIME: "The timing",
    Stage.FLEET: "The worker",
}

PLAIN = ConfigDict(extra="forbid", defer_build=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The corners of a template's space compile, and one configuration passed on a device."""

    __pydantic_config__: ClassVar[ConfigDict] = PLAIN
    kind: Literal["admitted"] = "admitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a template may not be searched: ``by`` names the check, ``detail`` quotes it."""

    __pydantic_config__: ClassVar[ConfigDict] = PLAIN
    kind: Literal["refused"] = "refused"
    by: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A tune shape that the portfolio gives to a configuration other than the general winner.

    ``incumbent`` is the configuration's index in the verdict's ``incumbents``; ``us`` its time in
    microseconds.
    """

    __pydantic_config__: ClassVar[ConfigDict] = PLAIN
    shape: int
    incumbent: int
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a round's search. Times in microseconds, one per tune shape.

    Attributes:
        configuration: The best confirmed configuration; ``None`` if none was confirmed.
        speedup: Over the baseline, over all tune shapes, confirmed; ``low`` and ``high`` bound it.
        gain: Over the general incumbent, measured in the same processes.
        portfolio_gain: The portfolio's gain over that of the incumbents.
        incumbents: What a later round must beat if this search holds the result: the general
            winner, then the portfolio's other configurations.
        advice: Why the result is what it is, for people and models.
        profile: Hardware counters by name, where they can be read.
        static: The compiled configuration.
        incumbent_failure: How the general incumbent failed in confirmation; empty if it passed.
        member_failed: Whether another incumbent failed.
        served: The shapes that incumbents other than the first serve.
    """

    __pydantic_config__: ClassVar[ConfigDict] = PLAIN
    trials: int
    seconds: float
    device_seconds: float = 0.0
    configuration: Configuration | None
    speedup: float | None
    low: float | None
    high: float | None
    gain: Comparison | None
    portfolio_gain: Comparison | None
    incumbents: tuple[IncumbentEntered, ...]
    baseline_us: tuple[float | None, ...]
    best_us: tuple[float | None, ...]
    observations: tuple[Observation, ...]
    advice: tuple[str, ...]
    profile: tuple[tuple[str, float], ...] = ()
    static: StaticProfile = UNKNOWN
    incumbent_failure: str = ""
    member_failed: bool = False
    served: tuple[Served, ...] = ()

    @property
    def gained(self) -> bool:
        """Whether it is significantly faster than the incumbent."""
        return self.gain is not None and self.gain.surely_faster

    @property
    def serves_better(self) -> bool:
        """Whether the portfolio is significantly faster than that of the incumbents."""
        return self.portfolio_gain is not None and self.portfolio_gain.surely_faster

    @property
    def supersedes(self) -> bool:
        """Whether this search holds the run's result from now on."""
        return self.gained or self.serves_better or self.member_failed

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the speedup, if it is known."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def words(self) -> str:
        """The verdict in words, for people and for later briefs."""
        if self.speedup is None and not self.observations:
            words = "out of time: the search ended before a configuration was measured"
        elif self.speedup is None:
            words = f"nothing valid: {'; '.join(self.advice) or 'no configuration passed'}"
        elif self.gained:
            words = "improved"
        else:
            words = "no significant gain"
            if self.serves_better:
                words += " over all shapes, but the portfolio with it is faster"
        if self.incumbent_failure:
            words += f"; the incumbent failed in confirmation: {self.incumbent_failure}"
        return words

    def unconfirmed(self, why: str) -> "Verdict":
        """The verdict with nothing confirmed; ``why`` is added to the advice."""
        return replace(
            self,
            configuration=None,
            speedup=None,
            low=None,
            high=None,
            gain=None,
            portfolio_gain=None,
            incumbents=(),
            served=(),
            advice=(*self.advice, why),
        )


ADMISSIONS: TypeAdapter[Admitted | Refused] = TypeAdapter(
    Annotated[Admitted | Refused, Field(discriminator="kind")]
)
VERDICTS: TypeAdapter[Verdict] = TypeAdapter(Verdict)
MEANWHILE: TypeAdapter[Verdict | None] = TypeAdapter(Verdict | None, config=PLAIN)


def refused(
    rejected: Rejected,
    configuration: Configuration,
    template: Template,
    shapes: Sequence[ShapeBinding],
) -> Refused:
    """A rejection in admission, with its shape and the source lines that its message names."""
    lines = template.source.text.splitlines()
    name = re.escape(template.source.name)
    numbers = sorted(
        {
            int(number)
            for number in re.findall(rf"{name}[:(](\d{{1,7}})", rejected.detail)
            if 0 < int(number) <= len(lines)
        }
    )[:_LINES]
    excerpt = "".join(f"\n{number:5} | {lines[number - 1][:200]}" for number in numbers)
    at = "" if rejected.shape is None else f" at {shapes[rejected.shape]}"
    shown = f"{configuration}{at}: {rejected.code}: {rejected.detail[:_DETAIL]}"
    where = f"\nthe lines named:{excerpt}" if excerpt else ""
    return Refused(by=_FINDERS[rejected.stage], detail=f"{shown}{where}")


def round_verdict(history: History, result: Result, where: str = "") -> Verdict:
    """The verdict on a finished search; ``where`` names it in the origin of incumbents."""
    tried = result.best_new or result.general
    general = tried if tried and tried.comparison else None
    comparison = general.comparison if general else None
    tune = range(len(history.weights))
    times = {cell.shape: cell.time_ns for cell in general.cells} if general else {}
    failure = history.failed_later.get(INCUMBENT)
    alone = not history.incumbents or failure is not None
    incumbents = dict(_incumbents(history, result, where))
    return Verdict(
        trials=result.trials - history.merged,
        seconds=history.clock.spent,
        device_seconds=history.device_seconds,
        configuration=general.configuration if general else None,
        speedup=general.speedup if general else None,
        low=comparison.low if comparison else None,
        high=comparison.high if comparison else None,
        gain=comparison if alone or general is None else general.gain,
        portfolio_gain=result.portfolio.gain if result.portfolio else None,
        incumbents=tuple(incumbents.values()),
        baseline_us=tuple(_microseconds(result.shapes[shape].baseline_ns) for shape in tune),
        best_us=tuple(_microseconds(times.get(shape)) for shape in tune),
        observations=observations(history),
        advice=result.advice,
        profile=next((p.counters for e in history.examinations for p in e.profiles), ()),
        incumbent_failure=failure.detail if failure else "",
        member_failed=not history.failed_later.keys().isdisjoint(history.incumbent_numbers[1:]),
        served=tuple(_served(result, list(incumbents), len(tune))),
    )


def _incumbents(
    history: History, result: Result, where: str
) -> Iterator[tuple[int, IncumbentEntered]]:
    """The configurations that the result exports, by trial, the general one first."""
    general = result.general
    if general is None or general.comparison is None:
        return
    members = result.portfolio.members if result.portfolio else ()
    for trial in dict.fromkeys([general.trial, *(member.trial for member in members)]):
        if trial <= INCUMBENT:
            yield trial, history.incumbent(trial)
        elif (template := history.template(trial)) is not None:
            origin = f"{where}, trial {trial}" if where else ""
            configuration = history.configuration(trial)
            yield (
                trial,
                IncumbentEntered(template=template, configuration=configuration, origin=origin),
            )


def _served(result: Result, incumbents: list[int], tuned: int) -> Iterator[Served]:
    """The tune shapes that another than the first of ``incumbents`` serves."""
    if result.portfolio is None:
        return
    served = zip(result.portfolio.serves[:tuned], result.portfolio.cells[:tuned], strict=True)
    for shape, (trial, cell) in enumerate(served):
        if trial in incumbents[1:] and cell.time_ns is not None:
            yield Served(shape=shape, incumbent=incumbents.index(trial), us=cell.time_ns / 1000)


def _microseconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1000
