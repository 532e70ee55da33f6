"""What a search learned: statistics over its trials, for a model or a person to act on.

Which parameters matter, which interact, what was rejected, and where the best values lie at the end
of their range. A search chooses its trials, they are no random sample: every figure is a hint and
has a confidence. A pure function.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from tuner.results.parameters import InactiveParameter, Observation, inactive_parameters, same_code
from tuner.trial import Configuration, Value

Floats = npt.NDArray[np.float64]
Levels = npt.NDArray[np.intp]

Confidence = Literal["high", "some", "none"]

_SHOWN = 3
_PERMUTATIONS = 400
_FEWEST = 8
_FEWEST_FOR_PAIRS = 24
_LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How much of the variance of log time one parameter explains: ω², from 0 to 1.

    ``confidence`` is by a permutation test: ``high`` for p < 1 %, ``some`` for p < 10 %.
    ``medians`` are the median ratios at each measured value. Of the ``comparisons`` of trials that
    differ in this parameter alone, ``same_code`` compiled to the same code.
    """

    parameter: str
    share: float
    confidence: Confidence
    medians: tuple[tuple[Value, float], ...]
    same_code: int = 0
    comparisons: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """Two parameters that together explain ``share`` more variance than separately."""

    first: str
    second: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """A parameter whose best configurations all have its lowest or highest value."""

    parameter: str
    value: int
    end: Literal["lowest", "highest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Landscape:
    """The statistics of a search. ``inactive`` are parameters without effect.

    ``best`` and ``worst`` are (configuration, ratio), best and worst first; ``rejected`` is (code,
    count), most frequent first.
    """

    measured: int
    best: tuple[tuple[Configuration, float], ...]
    worst: tuple[tuple[Configuration, float], ...]
    sensitivities: tuple[Sensitivity, ...]
    interactions: tuple[Interaction, ...]
    boundaries: tuple[Boundary, ...]
    rejected: tuple[tuple[str, int], ...]
    inactive: tuple[InactiveParameter, ...] = ()

    @property
    def trials(self) -> int:
        """All finished trials, measured or rejected."""
        return self.measured + sum(count for _, count in self.rejected)


def landscape(
    parameters: Mapping[str, Sequence[Value]], observations: Sequence[Observation]
) -> Landscape:
    """The statistics of a search, given all values of its parameters and its trials."""
    rejected = Counter(one.rejected for one in observations if one.ratio is None)
    measured = [one for one in observations if one.ratio is not None]
    ranked = sorted(
        ((one.configuration, one.ratio) for one in measured if one.ratio is not None),
        key=lambda pair: (pair[1], pair[0].digest),
    )
    levels = {
        name: np.array([values.index(point.as_dict()[name]) for point, _ in ranked], dtype=np.intp)
        for name, values in parameters.items()
    }
    times: Floats = np.log(np.array([ratio for _, ratio in ranked], dtype=np.float64))
    found = [
        _sensitivity(name, parameters[name], levels[name], times, same_code(name, measured))
        for name in parameters
    ]
    return Landscape(
        measured=len(ranked),
        best=tuple(ranked[:_SHOWN]),
        worst=tuple(reversed(ranked[max(_SHOWN, len(ranked) - _SHOWN) :])),
        sensitivities=tuple(sorted(found, key=lambda one: (-one.share, one.parameter))),
        interactions=_interactions(levels, times),
        boundaries=_boundaries(parameters, levels),
        rejected=tuple(sorted(rejected.items(), key=lambda item: (-item[1], item[0]))),
        inactive=inactive_parameters(observations),
    )


def _sensitivity(
    name: str, values: Sequence[Value], levels: Levels, times: Floats, same: tuple[int, int]
) -> Sensitivity:
    medians = tuple(
        (value, float(np.exp(np.median(times[levels == level]))))
        for level, value in enumerate(values)
        if np.any(levels == level)
    )
    share, confidence = _explained(levels, times)
    return Sensitivity(
        parameter=name,
        share=share,
        confidence=confidence,
        medians=medians,
        same_code=same[0],
        comparisons=same[1],
    )


def _explained(levels: Levels, times: Floats) -> tuple[float, Confidence]:
    groups = len(np.unique(levels))
    count = len(times)
    total = float(np.sum((times - np.mean(times)) ** 2)) if count else 0.0
    if count < _FEWEST or groups < 2 or groups >= count or total <= 1e-12 * count:
        return 0.0, "none"
    between = _between(levels, times[None, :])[0]
    within = (total - between) / (count - groups)
    share = float(np.clip((between - (groups - 1) * within) / (total + within), 0.0, 1.0))
    shuffled = np.random.default_rng(0).permuted(np.tile(times, (_PERMUTATIONS, 1)), axis=1)
    exceeding = int(np.sum(_between(levels, shuffled) >= between * (1 - 1e-9)))
    chance = (1 + exceeding) / (1 + _PERMUTATIONS)
    return share, "high" if chance < 0.01 else "some" if chance < 0.1 else "none"


def _between(levels: Levels, rows: Floats) -> Floats:
    """Sum of squares between groups for each row of times, shape [rows, trials]."""
    member = _indicators(levels)
    sizes = member.sum(axis=0)
    means = rows @ member / sizes
    grand = rows.mean(axis=1, keepdims=True)
    result: Floats = np.sum(sizes * (means - grand) ** 2, axis=1)
    return result


def _interactions(levels: Mapping[str, Levels], times: Floats) -> tuple[Interaction, ...]:
    if len(times) < _FEWEST_FOR_PAIRS:
        return ()
    alone = np.hstack([_indicators(column) for column in levels.values()])
    found = []
    for first, second in combinations(levels, 2):
        pair = levels[first] * (int(levels[second].max()) + 1) + levels[second]
        share = _extra_share(alone, np.hstack([alone, _indicators(pair)]), times)
        if share >= _LEAST_SHARE:
            found.append(Interaction(first=first, second=second, share=share))
    return tuple(sorted(found, key=lambda one: (-one.share, one.first, one.second))[:_SHOWN])


def _extra_share(alone: Floats, together: Floats, times: Floats) -> float:
    """Share of variance that the larger model explains beyond the smaller, less that by chance."""
    rank = int(np.linalg.matrix_rank(together))
    extra, freedom = rank - int(np.linalg.matrix_rank(alone)), len(times) - rank
    total = float(np.sum((times - times.mean()) ** 2))
    if extra <= 0 or freedom <= 0 or total <= 1e-12 * len(times):
        return 0.0
    left, least = _residual(alone, times), _residual(together, times)
    noise = least / freedom
    return float(np.clip((left - least - extra * noise) / (total + noise), 0.0, 1.0))


def _indicators(levels: Levels) -> Floats:
    _, groups = np.unique(levels, return_inverse=True)
    member: Floats = np.eye(int(groups.max()) + 1)[groups]
    return member


def _residual(design: Floats, times: Floats) -> float:
    solution = np.linalg.lstsq(design, times, rcond=None)[0]
    return float(np.sum((times - design @ solution) ** 2))


def _boundaries(
    parameters: Mapping[str, Sequence[Value]], levels: Mapping[str, Levels]
) -> tuple[Boundary, ...]:
    """Integer parameters of three values or more whose best trials agree on an end value.

    ``levels`` are ordered from the best trial to the worst.
    """
    found = []
    for name, values in parameters.items():
        numbers = [value for value in values if isinstance(value, int) and value is not True]
        if len(values) < 3 or len(numbers) < len(values) or any(v is False for v in values):
            continue
        top = {values[level] for level in levels[name][: max(_SHOWN, len(levels[name]) // 10)]}
        if len(levels[name]) < _FEWEST or len(top) != 1:
            continue
        value = numbers[list(values).index(top.pop())]
        if value == max(numbers):
            found.append(Boundary(parameter=name, value=value, end="highest"))
        elif value == min(numbers):
            found.append(Boundary(parameter=name, value=value, end="lowest"))
    return tuple(found)
