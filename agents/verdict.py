"""Testing: what a finished search of a round says, and what admission said, as plain data.

Owns the judgement of a round: whether the best confirmed configuration gains on what was there, or
a portfolio with it and others does. What was there are the incumbents, and the kernel as it stands
where there are none.
Knows neither models nor how anything was measured.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from agents.static_profile import UNKNOWN, Static
from tuner.candidate import INCUMBENT
from tuner.experiment.model import Template
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
    Stage.LIMITS: "The check of the device's limits",
    Stage.LAUNCH: "The device",
    Stage.VERIFY: "The comparison with the original kernel",
    Stage.TIME: "The timing",
    Stage.FLEET: "The fleet",
}

PLAIN = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The corners of a template compile, and one configuration passed on a device."""

    __pydantic_config__: ClassVar[ConfigDict] = PLAIN
    kind: Literal["admitted"] = "admitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A template may not be searched: who says so, and in which words."""

    __pydantic_config__: ClassVar[ConfigDict] = PLAIN
    kind: Literal["refused"] = "refused"
    by: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A tune shape, by index, that the portfolio gives to another than the general winner.

    ``incumbent`` is the place of who serves it among the verdict's, ``us`` its microseconds there.
    """

    __pydantic_config__: ClassVar[ConfigDict] = PLAIN
    shape: int
    incumbent: int
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a round's search came to. Times in microseconds, one per tune shape.

    ``speedup`` and its bounds are confirmed, over the tune shapes, against the kernel as it stands;
    ``None`` where no configuration was confirmed. ``gain`` compares it with what was there, in the
    same processes, and ``portfolio_gain`` the portfolio with that of the incumbents; ``fallen``
    says how the general incumbent failed in them, if it did, and ``outdated`` that another did.
    ``advice`` says why, for people and models; ``profile`` are hardware counters by name, where
    they can be read; ``static`` is of the configuration, compiled. ``incumbents`` are what a later
    round must beat if this one is what stands: the general winner, then the portfolio's others;
    ``served`` are the shapes of these.
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
    static: Static = UNKNOWN
    fallen: str = ""
    outdated: bool = False
    served: tuple[Served, ...] = ()

    @property
    def gained(self) -> bool:
        """Whether it is surely faster than what was there."""
        return self.gain is not None and self.gain.surely_faster

    @property
    def serves_better(self) -> bool:
        """Whether the portfolio is surely faster than what was there."""
        return self.portfolio_gain is not None and self.portfolio_gain.surely_faster

    @property
    def supersedes(self) -> bool:
        """Whether its search holds the result from now on, the incumbents' share included."""
        return self.gained or self.serves_better or self.outdated

    def refuted(self, why: str) -> "Verdict":
        """The same with nothing confirmed any more."""
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
FURTHER: TypeAdapter[Verdict | None] = TypeAdapter(Verdict | None)


def refused(rejected: Rejected, configuration: Configuration, template: Template) -> Refused:
    """A rejection in admission, in the words of whoever found it, with the lines it points at."""
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
    shown = f"{configuration}: {rejected.code}: {rejected.detail[:_DETAIL]}"
    where = f"\nthe lines concerned:{excerpt}" if excerpt else ""
    return Refused(by=_FINDERS[rejected.stage], detail=f"{shown}{where}")


def judge(history: History, result: Result, where: str = "") -> Verdict:
    """The verdict on a finished run of one template; ``where`` names it for people."""
    tried = result.best_new or result.general
    general = tried if tried and tried.comparison else None
    comparison = general.comparison if general else None
    tune = range(len(history.weights))
    times = {cell.shape: cell.time_ns for cell in general.cells} if general else {}
    fallen = history.failed_later.get(INCUMBENT)
    alone = not history.incumbents or fallen is not None
    incumbents = dict(_incumbents(history, result, where))
    return Verdict(
        trials=result.trials - history.merged,
        seconds=result.searched_seconds,
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
        fallen=fallen.detail if fallen else "",
        outdated=any(number in history.failed_later for number in history.incumbent_numbers[1:]),
        served=tuple(_served(result, list(incumbents), len(tune))),
    )


def _incumbents(
    history: History, result: Result, where: str
) -> Iterator[tuple[int, IncumbentEntered]]:
    """What the result would have applications run, by trial, the general configuration first."""
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
    """Who else than the first of ``incumbents`` serves which of the first ``tuned`` shapes."""
    if result.portfolio is None:
        return
    served = zip(result.portfolio.serves[:tuned], result.portfolio.cells[:tuned], strict=True)
    for shape, (trial, cell) in enumerate(served):
        if trial in incumbents[1:] and cell.time_ns is not None:
            yield Served(shape=shape, incumbent=incumbents.index(trial), us=cell.time_ns / 1000)


def _microseconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1000
