"""Patterns: the values that won for a kernel and their effect, with the kernel's features.

A pattern holds no source: features, the names of the experiment and its parameters, values, and one
line on the strategy. Knows nothing of where patterns are kept.
"""

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from agents.patterns.features import Features, distance
from tuner.experiment.contents import STRICT, Name
from tuner.trial import Value

FARTHEST = 3.0
"""Patterns at a larger distance are never used."""

SIMILAR = 1.8
"""Patterns at a larger distance are used only for a template that has their parameters."""

MOST_INHERITED = 3

Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Line = Annotated[str, Field(max_length=300, pattern=r"^[^\x00-\x1f\x7f`]*$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """What won on one device model: values, confirmed speedup over the baseline and its bounds."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    device: Line
    values: Annotated[dict[Name, Value], Field(min_length=1, max_length=24)]
    speedup: Factor
    low: Factor
    high: Factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The winners of one kernel.

    ``kernel`` is the beginning of its digest; ``experiment`` may be empty in old patterns.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)
    format: Literal["kernelwright-pattern"] = "kernelwright-pattern"
    version: Literal[1] = 1
    kernel: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    experiment: Line = ""
    features: Features
    strategy: Line
    winners: Annotated[tuple[Winner, ...], Field(min_length=1, max_length=64)]

    @property
    def name(self) -> str:
        """Sixteen hex digits: the same kernel with the same parameters is the same pattern."""
        parameters = sorted(self.winners[0].values)
        return hashlib.sha256(json.dumps([self.kernel, parameters]).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.experiment} ({self.name})" if self.experiment else self.name

    def winner_for(self, device: str) -> Winner:
        """What won on ``device``, else the largest gain on any."""
        own = [winner for winner in self.winners if winner.device == device]
        return (own or sorted(self.winners, key=lambda winner: -winner.low))[0]

    def fits(self, parameters: Collection[str]) -> bool:
        """Whether a winner has a value for one of ``parameters``."""
        return any(name in parameters for winner in self.winners for name in winner.values)

    def with_winners_of(self, other: "Pattern") -> "Pattern":
        """This pattern, with the winners of ``other`` on further devices."""
        mine = {winner.device for winner in self.winners}
        more = tuple(winner for winner in other.winners if winner.device not in mine)
        return replace(self, winners=(*self.winners, *more)[:64])


PATTERNS: TypeAdapter[Pattern] = TypeAdapter(Pattern)


def nearest(
    patterns: Iterable[Pattern],
    features: Features,
    kernel: str = "",
    farthest: float = FARTHEST,
) -> tuple[Pattern, ...]:
    """The patterns at most ``farthest`` from ``features``, nearest first, and few of them.

    At equal distance the kernel's own come first, then those with the larger gain.
    """

    def order(pattern: Pattern) -> tuple[float, bool, float, str]:
        return (
            distance(pattern.features, features),
            pattern.kernel != kernel,
            -max(winner.low for winner in pattern.winners),
            pattern.name,
        )

    near = [one for one in patterns if distance(one.features, features) <= farthest]
    return tuple(sorted(near, key=order)[:MOST_INHERITED])


def seeds(patterns: Iterable[Pattern], device: str) -> tuple[dict[str, Value], ...]:
    """The patterns' winning values."""
    return tuple(dict(pattern.winner_for(device).values) for pattern in patterns)
