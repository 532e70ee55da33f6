"""The result of a run, as plain data: what every report, table and export is made from.

A pure function of a history makes it: :func:`tuner.results.summary.summarise`. Times are in
nanoseconds per run of the kernel; speedups are baseline ÷ time, above 1 is faster.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from tuner.ceilings import Ceilings
from tuner.journal.facts import Reason
from tuner.plan import Shape
from tuner.results.parameters import InactiveParameter
from tuner.results.statistics import Comparison
from tuner.telemetry import Telemetry
from tuner.trial import Code, Configuration, Rejected, Stage, Value

OutcomeOfRun = Literal["improved", "no_gain", "nothing_valid", "unfinished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOfRun:
    """One shape, and the baseline's time there: over confirming processes, or as prepared.

    ``least_ns`` is what a copy of as many bytes as the kernel must move takes on a cold cache, or
    an empty launch; ``None`` where the cache is hot, or bytes or rate are unknown.
    """

    index: int
    label: str
    held_out: bool
    baseline_ns: float | None
    least_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One configuration on one shape: confirmed if ``comparison`` is there, else as searched.

    ``time_ns`` is ``None`` where the configuration is infeasible or was not measured.
    """

    shape: int
    time_ns: float | None
    speedup: float | None
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class General:
    """A configuration that serves every shape.

    ``speedup`` is the weighted geometric mean over tune shapes, ``held_out`` the plain one over
    held-out shapes. ``comparison`` judges ``speedup``; it is ``None`` if nothing was confirmed.
    ``gain`` compares it with the incumbent, ``None`` if there is none or either is unconfirmed.
    ``cells`` has one entry per shape, tune then held-out.
    """

    trial: int
    configuration: Configuration
    speedup: float
    held_out: float | None
    comparison: Comparison | None
    gain: Comparison | None = None
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeBest:
    """The best configuration for one tune shape.

    ``gain`` compares it with the general one there, ``None`` if they are the same or either is
    unconfirmed. Dispatch prefers it where the gain is confirmed.
    """

    trial: int
    configuration: Configuration
    cell: Cell
    gain: Comparison | None

    @property
    def preferred(self) -> bool:
        """Whether dispatch should take it on its shape instead of the general one."""
        return self.gain is not None and self.gain.verdict == "faster"


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchCondition:
    """What a dispatch rule asks of one symbol of a shape."""

    symbol: str
    relation: Literal["<=", ">", "==", "!="]
    value: Value

    def holds(self, shape: Shape) -> bool:
        """Whether a shape meets it."""
        given = shape[self.symbol]
        if self.relation in ("==", "!="):
            return (given == self.value) == (self.relation == "==")
        return (int(given) <= int(self.value)) == (self.relation == "<=")

    def follows_from(self, other: "DispatchCondition") -> bool:
        """Whether it holds wherever ``other`` does."""
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
        """What holds exactly where this does not."""
        opposite: dict[str, Literal["<=", ">", "==", "!="]]
        opposite = {"<=": ">", ">": "<=", "==": "!=", "!=": "=="}
        return DispatchCondition(
            symbol=self.symbol, relation=opposite[self.relation], value=self.value
        )

    def __str__(self) -> str:
        return f"{self.symbol} {self.relation} {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRule:
    """Where all of ``when`` hold, ``trial`` serves.

    That may be the baseline or the incumbent too (their indices are in :mod:`tuner.engine.fleet`).
    """

    when: tuple[DispatchCondition, ...]
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One configuration of a portfolio; ``gain`` is the factor that it added to the speedup.

    ``None`` for the general one, which a portfolio starts from.
    """

    trial: int
    configuration: Configuration
    gain: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """A few configurations and the rule that says which one serves a shape.

    The cases of ``rule`` are disjoint and cover every shape. Where a choice is infeasible,
    ``otherwise`` serves, and where that is infeasible too, the baseline. ``speedup`` is the
    weighted geometric mean over tune shapes with each served by the rule, ``held_out`` that over
    held-out shapes; ``serves`` and ``cells`` have one entry per shape, tune then held-out: who
    serves it, and how that did. ``gain`` compares it with the portfolio of the incumbents alone,
    ``None`` without any. ``as_well`` are symbols that the rule does not ask for, and by each of
    which alone it could be as short.
    """

    members: tuple[Member, ...]
    rule: tuple[DispatchRule, ...]
    otherwise: int
    speedup: float
    held_out: float | None
    comparison: Comparison
    serves: tuple[int, ...]
    cells: tuple[Cell, ...]
    gain: Comparison | None = None
    as_well: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCache:
    """The winners in the cache state that did not decide, for comparison.

    ``baseline_ns`` and ``general`` have one entry per shape (``general`` none without a general
    configuration), ``specialised`` one per tune shape.
    """

    cache: str
    baseline_ns: tuple[float | None, ...]
    general: tuple[Cell, ...]
    specialised: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejections:
    """How many trials ended for one reason, and the first of them as an example."""

    stage: Stage
    code: Code
    shape: int | None
    count: int
    trial: int
    configuration: Configuration
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run found so far.

    Of all ``trials``, those ``merged`` had the code and launches of another, whose outcome they
    share; ``dead`` are the parameters that change nothing.
    ``general`` is the incumbent unless one of the run's own is surely faster; ``tried`` is the best
    of those then, ``None`` where it is the general one itself.
    ``origins`` say of each incumbent which search found it, the general one first.
    ``outcome`` is ``unfinished`` until the run is over. ``refused`` says why the baseline cannot
    serve as one. ``advice`` are lines for the user to act on, ``notes`` what was not checked.
    ``ceilings`` and ``telemetry`` are of the device, ``None`` where they could not be had.
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
    tried: General | None
    specialised: tuple[ShapeBest | None, ...]
    portfolio: Portfolio | None
    other_cache: OtherCache | None
    rejections: tuple[Rejections, ...]
    dead: tuple[InactiveParameter, ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    refused: Rejected | None
    ceilings: Ceilings | None = None
    telemetry: Telemetry | None = None
    origins: tuple[str, ...] = ()

    @property
    def speedup(self) -> float | None:
        """The figure for one line: the general configuration's, else the best specialised one's.

        One of the search only where none is confirmed.
        """
        if self.general:
            return self.general.speedup
        cells = [s.cell for s in self.specialised if s]
        sure = [cell for cell in cells if cell.comparison]
        return max((cell.speedup for cell in sure or cells if cell.speedup), default=None)

    @property
    def confirmed(self) -> bool:
        """Whether that figure comes from fresh processes."""
        if self.general:
            return self.general.comparison is not None
        return any(s and s.cell.comparison for s in self.specialised)

    def to_json(self) -> dict[str, Any]:
        """The same as JSON data, with the two figures above; configurations are plain mappings."""
        data: dict[str, Any] = _adapter().dump_python(self, mode="json")
        members = data["portfolio"]["members"] if data["portfolio"] else []
        lone = (data["general"], data["tried"])
        for holder in (*lone, *data["specialised"], *data["rejections"], *members):
            if holder:
                holder["configuration"] = holder["configuration"]["values"]
        return {**data, "speedup": self.speedup, "confirmed": self.confirmed}


@cache
def _adapter() -> TypeAdapter[Result]:
    return TypeAdapter(Result)
