"""A configuration and the outcome of its trial, as plain data.

An ``Outcome`` is either :class:`Measured`, with one cell per tune shape, or :class:`Rejected`: a
candidate's failure is a value, never an exception.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

Nanoseconds = Annotated[float, Field(ge=1e-9, le=1e18, allow_inf_nan=False)]
"""No time of a run is shorter or longer, and quotients of two such have a logarithm."""

Millijoules = Annotated[float, Field(ge=1e-12, le=1e18, allow_inf_nan=False)]

Value = bool | int | str
"""A parameter's value: a bool, an integer, or the name of an enum member."""


def _as_items(given: object) -> object:
    return tuple(given.items()) if isinstance(given, Mapping) else given


@dataclass(frozen=True, slots=True)
class Configuration:
    """One value per parameter, in the template's order."""

    values: Annotated[
        tuple[tuple[str, Value], ...],
        BeforeValidator(_as_items),
        PlainSerializer(dict, return_type=dict[str, Value]),
    ]

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "Configuration":
        """Build one from a mapping, in its order."""
        return cls(tuple(values.items()))

    def as_dict(self) -> dict[str, Value]:
        """The values by parameter name."""
        return dict(self.values)

    @property
    def digest(self) -> str:
        """Sixteen hex digits over names and values."""
        return hashlib.sha256(json.dumps(self.values).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values) or "(no parameters)"


class Stage(StrEnum):
    """The stage at which a candidate was rejected, in order."""

    COMPILE = "compile"
    LIMITS = "limits"
    LAUNCH = "launch"
    VERIFY = "verify"
    TIME = "time"
    FLEET = "fleet"


class Code(StrEnum):
    """Why a candidate was rejected, for decisions by code; ``detail`` is for people."""

    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    COMPILER_CRASH = "compiler_crash"
    THREADS = "threads_over_limit"
    GRID = "grid_over_limit"
    SHARED_MEMORY = "shared_memory_over_limit"
    REGISTERS = "registers_over_limit"
    LAUNCH_FAILED = "launch_failed"
    ILLEGAL_ADDRESS = "illegal_address"
    TRAP = "trap"
    CRASH = "crash"
    HANG = "hang"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
    DISAGREES = "disagrees_with_reference"
    ROUNDING = "rounding_over_tolerance"
    SPEC_ERROR = "spec_error"
    NOT_FINITE = "not_finite"
    NOT_DETERMINISTIC = "not_deterministic"
    NOT_WRITTEN = "not_written"
    INPUT_OVERWRITTEN = "input_overwritten"
    OUT_OF_BOUNDS = "out_of_bounds"
    DEFECT = "defect"
    IMPOSSIBLE_TIME = "impossible_time"
    SLOWER_AGAIN = "slower_again"
    WORKER_LOST = "worker_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Millijoules per run of a candidate, and of the baseline measured right before it.

    ``share`` is the exponent of energy in the objective; that of time is ``1 - share``.
    """

    millijoules: Millijoules
    baseline_mj: Millijoules
    share: Annotated[float, Field(gt=0, le=1)]

    def objective(self, time_ratio: float) -> float:
        """The weighted geometric mean of time and energy, each divided by the baseline's."""
        ratio = self.millijoules / self.baseline_mj
        return float(time_ratio ** (1 - self.share) * ratio**self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """A cell timed by the full protocol; times in nanoseconds per run.

    ``median_ns`` and ``mad_ns`` (median absolute deviation) are over ``samples`` timings;
    ``baseline_ns`` is the baseline's median in the same child process. ``energy`` is ``None`` where
    time alone counts.
    """

    kind: Literal["full"] = "full"
    median_ns: Nanoseconds
    mad_ns: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    samples: int
    baseline_ns: Nanoseconds
    energy: Energy | None = None

    @property
    def time_ratio(self) -> float:
        """Time divided by the baseline's: below 1 is faster."""
        return self.median_ns / self.baseline_ns

    @property
    def ratio(self) -> float:
        """The objective divided by the baseline's: below 1 is better."""
        return self.energy.objective(self.time_ratio) if self.energy else self.time_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShort:
    """A correct cell whose timing was cut short because it was slower than the cut-off.

    ``median_ns`` is over the ``samples`` timings taken until then: enough to rank the cell and for
    the search to learn from, but never reported. A configuration with such a cell is not selected
    until it was measured in full.
    """

    kind: Literal["short"] = "short"
    median_ns: Nanoseconds
    samples: int
    baseline_ns: Nanoseconds

    @property
    def time_ratio(self) -> float:
        """Time divided by the baseline's, from few samples."""
        return self.median_ns / self.baseline_ns

    @property
    def ratio(self) -> float:
        """The same: the energy of a cell that was cut short is not measured."""
        return self.time_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """A shape outside the configuration's constraints; dispatch uses the baseline there."""

    kind: Literal["infeasible"] = "infeasible"
    reason: str

    @property
    def time_ratio(self) -> float:
        """1, as for the baseline."""
        return 1.0

    @property
    def ratio(self) -> float:
        """1, as for the baseline."""
        return 1.0


Cell = Full | CutShort | Infeasible


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A verified and timed configuration: one cell per tune shape, in the spec's order."""

    kind: Literal["measured"] = "measured"
    cells: tuple[Cell, ...]

    @property
    def general(self) -> bool:
        """Whether the configuration is feasible on every shape."""
        return not any(isinstance(cell, Infeasible) for cell in self.cells)

    @property
    def complete(self) -> bool:
        """Whether no cell was cut short, so that the times may be reported."""
        return not any(isinstance(cell, CutShort) for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A configuration that failed: stage, reason, and index of the tune shape if any."""

    kind: Literal["rejected"] = "rejected"
    stage: Stage
    code: Code
    detail: str
    shape: int | None = None


Outcome = Measured | Rejected


def geometric_mean(ratios: Sequence[float], weights: Sequence[float]) -> float:
    """Weighted geometric mean; raises ``ValueError`` for lengths that differ or a ratio ≤ 0."""
    total = math.fsum(weights)
    logs = (w * math.log(r) for r, w in zip(ratios, weights, strict=True))
    return math.exp(math.fsum(logs) / total)


def loss(outcome: Outcome, weights: Sequence[float]) -> float | None:
    """The search's objective: weighted geometric mean of what is minimised ÷ the baseline's.

    ``None`` if rejected.
    """
    if isinstance(outcome, Rejected):
        return None
    return geometric_mean([cell.ratio for cell in outcome.cells], weights)
