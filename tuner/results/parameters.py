"""Parameters without effect: all their values give equal code or equal times.

Compares trials that differ in that parameter alone; a search may leave too few of them to judge.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.journal.history import History
from tuner.trial import Configuration, Rejected, loss

MIN_COMPARISONS = 4
"""Comparisons needed to call a parameter inactive."""

NOISE = 0.02
"""Relative difference up to which times count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One finished trial: ``ratio`` is time ÷ baseline, or ``rejected`` names the reason's code.

    ``code`` is the digest of the first configuration with the same machine code and launches.
    """

    configuration: Configuration
    ratio: float | None = None
    rejected: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InactiveParameter:
    """A parameter without effect in each of ``comparisons`` comparisons.

    ``why``: the trials had the same ``code``, or the same ``time`` within :data:`NOISE`.
    """

    parameter: str
    why: Literal["code", "time"]
    comparisons: int

    def __str__(self) -> str:
        if self.why == "code":
            return f"{self.parameter} (the same code in all {self.comparisons} comparisons)"
        return f"{self.parameter} (times within {NOISE:.0%} in all {self.comparisons} comparisons)"


def observations(history: History) -> tuple[Observation, ...]:
    """The finished trials of a run."""
    return tuple(
        Observation(
            configuration=trial.configuration,
            ratio=loss(trial.outcome, history.weights),
            rejected=trial.outcome.code if isinstance(trial.outcome, Rejected) else "",
            code=history.trials[
                trial.number if trial.same_as is None else trial.same_as
            ].configuration.digest,
        )
        for trial in history.trials.values()
        if trial.outcome is not None
    )


def inactive_parameters(seen: Sequence[Observation]) -> tuple[InactiveParameter, ...]:
    """The parameters without effect, in the configurations' order."""
    names = [name for name, _ in seen[0].configuration.values] if seen else []
    judged = (_judge(place, name, seen) for place, name in enumerate(names))
    return tuple(one for one in judged if one is not None)


def same_code(name: str, seen: Sequence[Observation]) -> tuple[int, int]:
    """In how many comparisons of a parameter the code stayed the same, and how many there are."""
    known = [one for one in seen if one.code]
    names = [name for name, _ in known[0].configuration.values] if known else []
    compared = _compared(names.index(name), known) if name in names else []
    codes = sum(len({one.code for one in group}) for group in compared)
    return sum(map(len, compared)) - codes, sum(map(len, compared)) - len(compared)


def _compared(place: int, seen: Sequence[Observation]) -> list[list[Observation]]:
    """Groups of trials that differ in one parameter alone, unless all failed alike."""
    groups: dict[tuple[object, ...], list[Observation]] = defaultdict(list)
    for one in seen:
        values = one.configuration.values
        groups[values[:place] + values[place + 1 :]].append(one)
    return [group for group in groups.values() if len(group) > 1 and not _all_failed(group)]


def _judge(place: int, name: str, seen: Sequence[Observation]) -> InactiveParameter | None:
    compared = _compared(place, seen)
    comparisons = sum(len(group) - 1 for group in compared)
    if comparisons < MIN_COMPARISONS or any(one.rejected for group in compared for one in group):
        return None
    if all(len({one.code for one in group}) == 1 and group[0].code for group in compared):
        return InactiveParameter(parameter=name, why="code", comparisons=comparisons)
    ratios = [[one.ratio for one in group if one.ratio is not None] for group in compared]
    if all(max(each) <= (1 + NOISE) * min(each) for each in ratios):
        return InactiveParameter(parameter=name, why="time", comparisons=comparisons)
    return None


def _all_failed(group: Sequence[Observation]) -> bool:
    """Whether all failed for the same reason, which says nothing about the parameter."""
    return group[0].rejected != "" and len({one.rejected for one in group}) == 1
