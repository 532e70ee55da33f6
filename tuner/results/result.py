"""The result of a run as plain data, from which reports, tables and exports are made.

:func:`tuner.results.summary.summarise` makes it. Times are in nanoseconds per run of the kernel.
Speedups are the baseline's time ÷ time, above 1 is faster; with another objective they are ratios
of that, and *faster* means that less of it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from tuner.ceilings import Ceilings
from tuner.experiment.objective import Objective
from tuner.journal.facts import Reason
from tuner.plan import Shape
from tuner.results.parameters import InactiveParameter
from tuner.results.statistics import Comparison
from tuner.telemetry import Telemetry
from tuner.trial import Code, Configuration, Rejected, Stage, Value

OutcomeOfRun = Literal["improved", "no_gain", "nothing_valid", "unfinished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOfRun:
    """One shape, with the baseline's time from confirmation, or else from its preparation.

    ``baseline_scatter`` is the median absolute deviation of its times ÷ their median: between
    processes once it is confirmed, before that between bursts. ``least_ns`` is the time to copy the
    bytes that the kernel must move, or of an empty launch; ``None`` with a hot cache, or if bytes
    or bandwidth are unknown. ``baseline_mj`` is its energy where that is measured, in millijoules.
    """

    index: int
    label: str
    held_out: bool
    baseline_ns: float | None
    baseline_mj: float | None = None
    baseline_scatter: float | None = None
    least_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One configuration on one shape: confirmed with ``comparison``, else from the search.

    ``time_ns`` is ``None`` if the configuration is infeasible or was not measured. A configuration
    that is launched dependently, unlike the baseline, was timed ``serialised`` too: each launch
    after the end of the one before. ``millijoules`` per launch are known where energy is measured.
    ``unseen`` is the time of launches on inputs that it never saw ÷ that on repeated ones, the
    median over processes.
    """

    shape: int
    time_ns: float | None
    speedup: float | None
    comparison: Comparison | None = None
    millijoules: float | None = None
    serialised_ns: float | None = None
    serialised: Comparison | None = None
    unseen: float | None = None


def cell_on(cells: Sequence[Cell], shape: int) -> Cell | None:
    """The cell of a shape among these, if it is there."""
    return next((cell for cell in cells if cell.shape == shape), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class General:
    """A configuration that serves every shape.

    ``speedup`` is the weighted geometric mean over tune shapes, ``held_out`` the plain one over
    held-out shapes. ``comparison`` is the verdict on ``speedup``, ``None`` if unconfirmed. ``gain``
    compares with the incumbent; ``None`` without one, or if either is unconfirmed. ``cells`` has
    one entry per shape, tune then held-out. ``serialised`` is the speedup over tune shapes where
    the cells were timed so.
    """

    trial: int
    configuration: Configuration
    speedup: float
    held_out: float | None
    comparison: Comparison | None
    gain: Comparison | None = None
    cells: tuple[Cell, ...]
    serialised: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeBest:
    """The best configuration for one tune shape.

    ``gain`` compares it with the general one there; ``None`` if they are the same or either is
    unconfirmed.
    """

    trial: int
    configuration: Configuration
    cell: Cell
    gain: Comparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchCondition:
    """A condition on one symbol of a shape."""

    symbol: str
    relation: Literal["<=", ">", "==", "!="]
    value: Value

    def holds(self, shape: Shape) -> bool:
        """Whether a shape meets the condition."""
        given = shape[self.symbol]
        if self.relation in ("==", "!="):
            return (given == self.value) == (self.relation == "==")
        return (int(given) <= int(self.value)) == (self.relation == "<=")

    def follows_from(self, other: "DispatchCondition") -> bool:
        """Whether the condition holds wherever ``other`` does."""
        if self.symbol != other.symbol:
            return False
        if other.relation == "==":
            return self.holds({self.symbol: other.value})
        if self.relation != other.relation or self.relation == "!=":
            return self == other
        own, its = int(self.value), int(other.value)
        return own >= its if self.relation == "<=" else own <= its

    @property
    def negated(self) -> "DispatchCondition":
        """The opposite condition."""
        opposite: dict[str, Literal["<=", ">", "==", "!="]]
        opposite = {"<=": ">", ">": "<=", "==": "!=", "!=": "=="}
        return DispatchCondition(
            symbol=self.symbol, relation=opposite[self.relation], value=self.value
        )

    def __str__(self) -> str:
        return f"{self.symbol} {self.relation} {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRule:
    """Where all conditions of ``when`` hold, ``trial`` serves: a trial, incumbent or baseline."""

    when: tuple[DispatchCondition, ...]
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One configuration of a portfolio; ``gain`` is the factor that it added to the speedup.

    ``gain`` is ``None`` for the general configuration, which the portfolio starts from.
    """

    trial: int
    configuration: Configuration
    gain: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """A few configurations, and the rule that dispatches a shape to one of them.

    The rules of ``rule`` are disjoint and cover every shape. Where the chosen trial is infeasible,
    ``fallback`` serves; where that is infeasible too, the baseline. ``speedup`` is the weighted
    geometric mean over tune shapes, each served by the rule, ``held_out`` the one over held-out
    shapes. ``serves`` and ``cells`` have the trial and its cell for each shape, tune then held-out.
    ``gain`` compares with the portfolio of the incumbents alone, ``None`` without incumbents.
    ``other_symbols`` are symbols outside the rule, each of which alone gives a rule as short.
    """

    members: tuple[Member, ...]
    rule: tuple[DispatchRule, ...]
    fallback: int
    speedup: float
    held_out: float | None
    comparison: Comparison
    serves: tuple[int, ...]
    cells: tuple[Cell, ...]
    gain: Comparison | None = None
    other_symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCache:
    """The winners in the other cache state, which decides nothing.

    ``baseline_ns``, ``baseline_mj`` and ``general`` have one entry per shape (``general`` is empty
    without a general configuration), ``specialised`` one per tune shape.
    """

    cache: str
    baseline_ns: tuple[float | None, ...]
    baseline_mj: tuple[float | None, ...]
    general: tuple[Cell, ...]
    specialised: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that the spec computes from times, for each shape, tune then held-out.

    ``specialised`` has one entry per tune shape: that of the shape's own best configuration.
    ``None`` stands where nothing was timed, or the figure has no value.
    """

    name: str
    baseline: tuple[float | None, ...]
    general: tuple[float | None, ...]
    specialised: tuple[float | None, ...]

    def on(self, shape: int) -> tuple[float | None, float | None]:
        """Of the baseline, and of the general configuration or else the shape's own best."""
        own = self.specialised[shape] if shape < len(self.specialised) else None
        general = self.general[shape]
        return self.baseline[shape], own if general is None else general


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejections:
    """The number of trials rejected for one reason, and the first of them as an example."""

    stage: Stage
    code: Code
    shape: int | None
    count: int
    trial: int
    configuration: Configuration
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a run so far.

    - ``merged``: trials with the code and launches of another, whose outcome they share.
    - ``general``: the incumbent, unless one of the run's own configurations is surely faster;
      ``best_new`` is the best of those, ``None`` if it is ``general``.
    - ``inactive``: the parameters without effect.
    - ``baseline_rejected``: why the baseline cannot be used.
    - ``advice``: lines for the user to act on; ``notes``: what was not checked.
    - ``metrics``: the spec's own figures, for the times in the run's cache state.
    - ``ceilings``, ``telemetry``: of the device, ``None`` if unavailable.
    - ``origins``: for each incumbent the search that found it, the general one first.
    - ``outcome``: ``unfinished`` until the run is over.
    - ``dependent``: of the trials named here, those that are launched dependently;
      ``baseline_dependent``: whether the baseline is.
    - ``objective``: what was minimised.
    """

    experiment: str
    device: str
    backend: str
    outcome: OutcomeOfRun
    ended: Reason | None
    cache: str
    trials: int
    measured: int
    rejected: int
    merged: int
    searched_seconds: float
    shapes: tuple[ShapeOfRun, ...]
    general: General | None
    best_new: General | None
    specialised: tuple[ShapeBest | None, ...]
    portfolio: Portfolio | None
    other_cache: OtherCache | None
    rejections: tuple[Rejections, ...]
    inactive: tuple[InactiveParameter, ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    baseline_rejected: Rejected | None
    metrics: tuple[Metric, ...] = ()
    ceilings: Ceilings | None = None
    telemetry: Telemetry | None = None
    origins: tuple[str, ...] = ()
    baseline_dependent: bool = False
    dependent: tuple[int, ...] = ()
    objective: Objective = "time"

    @property
    def speedup(self) -> float | None:
        """The speedup of the general configuration, or else the best one on a single shape.

        Unconfirmed only if no configuration is confirmed.
        """
        if self.general:
            return self.general.speedup
        cells = [s.cell for s in self.specialised if s]
        sure = [cell for cell in cells if cell.comparison]
        return max((cell.speedup for cell in sure or cells if cell.speedup), default=None)

    @property
    def comparison(self) -> Comparison | None:
        """The confirmed comparison behind ``speedup``."""
        if self.general:
            return self.general.comparison
        found = [s.cell.comparison for s in self.specialised if s and s.cell.comparison]
        return max(found, key=lambda one: one.speedup, default=None)

    @property
    def tuned(self) -> tuple[Configuration | None, dict[int, tuple[Cell, Configuration]]]:
        """The configuration behind ``speedup``; by shape, the cell to show and what it is of.

        Without a general configuration these are each shape's own best, of a tune shape.
        """
        if self.general:
            best = self.general.configuration
            return best, {cell.shape: (cell, best) for cell in self.general.cells}
        found = [one for one in self.specialised if one]
        found.sort(key=lambda one: (one.cell.comparison is not None, one.cell.speedup or 0.0))
        cells = {one.cell.shape: (one.cell, one.configuration) for one in found}
        return (found[-1].configuration if found else None), cells

    def own_best(self, shape: ShapeOfRun) -> ShapeBest | None:
        """A tune shape's own best configuration, if that is not the general one."""
        best = None if shape.held_out else self.specialised[shape.index]
        served = self.general and best and best.trial == self.general.trial
        return None if served else best

    def gain_of(self, best: ShapeBest) -> str:
        """How a shape's own best compares with the general one, and whether it is not exported."""
        words = []
        if best.gain:
            words.append(f"{best.gain} {best.gain.verdict}, compared with the general one")
        members = self.portfolio.members if self.portfolio else ()
        if best.cell.comparison and all(member.trial != best.trial for member in members):
            words.append("not exported")
        return "; ".join(words)

    @property
    def general_cells(self) -> tuple[Cell, ...]:
        """The cells of the general configuration, if there is one."""
        return self.general.cells if self.general else ()

    @property
    def confirmed(self) -> bool:
        """Whether ``speedup`` is confirmed."""
        return self.comparison is not None

    def to_json(self) -> dict[str, Any]:
        """The result as JSON data, with ``speedup``, its ``verdict``, and ``confirmed``."""
        data: dict[str, Any] = _adapter().dump_python(self, mode="json")
        members = data["portfolio"]["members"] if data["portfolio"] else []
        alone = (data["general"], data["best_new"])
        for holder in (*alone, *data["specialised"], *data["rejections"], *members):
            if holder:
                holder["configuration"] = holder["configuration"]["values"]
        verdict = self.comparison.verdict if self.comparison else None
        return {
            **data,
            "speedup": self.speedup,
            "verdict": verdict,
            "confirmed": self.confirmed,
        }


@cache
def _adapter() -> TypeAdapter[Result]:
    return TypeAdapter(Result)
