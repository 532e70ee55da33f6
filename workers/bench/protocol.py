"""The messages between supervisor and bench child, and their encoding.

A frame holds one or more requests, each answered by a frame of its own; after a failure the rest
are dropped. A burst's answer follows two :data:`MARK`. Requests mirror the device port. Handles
(``buffer_sets``, ``module``, ``launchable``) are numbers that the supervisor chooses. Replies come
from a process in which candidate code has run, so they are validated like any outside input.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tuner.device import Device
from tuner.experiment.model import Cache
from tuner.plan import Binary, CellPlan
from tuner.telemetry import Vitals
from tuner.trial import Code
from workers.comparison import ArrayComparison, Expected
from workers.devices.port import (
    Damage,
    EnergyReading,
    LateWrite,
    OtherContents,
    OwnInputs,
    Parts,
    Rotation,
    Staged,
)

REPEATS = 4
"""How often a burst is repeated to measure energy, at least, however long it takes."""


MARK = b""
"""Sent when a burst's launches begin, and when they have ended, for the supervisor's clock."""

_NUMBERS = ConfigDict(ser_json_inf_nan="constants")
"""NaN and infinities are kept in JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """Answered by :class:`Described`."""

    kind: Literal["describe"] = "describe"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRotation:
    """Answered by :class:`Rotated`."""

    kind: Literal["rotation"] = "rotation"
    size: int
    cache: Cache
    warmup: int
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBuffers:
    """Stage the arguments of a shape in so many ``sets``."""

    kind: Literal["stage"] = "stage"
    buffer_sets: int
    arguments: tuple[Staged, ...]
    sets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refill:
    """Write contents (argument → path) into every set."""

    kind: Literal["refill"] = "refill"
    buffer_sets: int
    contents: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load binaries; their code follows as blobs, in order."""

    kind: Literal["load"] = "load"
    module: int
    binaries: tuple[Binary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Bind a cell to buffer sets."""

    kind: Literal["bind"] = "bind"
    launchable: int
    module: int
    cell: CellPlan
    buffer_sets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerCompile:
    """Restore one set and launch on it; answered once the launch runs, hence is compiled."""

    kind: Literal["compile"] = "compile"
    launchable: int
    index: int
    poison: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBurst:
    """Restore, launch, inspect: the one way to launch, for checks and timing alike.

    ``inspect`` is the set to inspect after the launches; ``idle`` ones must be as they were
    restored, and ``decoy_sets`` are restored for nothing. Of outputs in ``parts`` only those bytes
    are returned. Without a ``poison`` outputs keep what
    earlier launches left. Outputs that are ``expected`` are compared in the child, others are
    returned. One set may hold ``other`` contents during this burst, or each inputs of its own. With
    ``late`` the last launch finds its memory written late. With ``changed_only`` outputs that equal
    those of the launchable's last such burst are named in the answer, but not sent. With
    ``forgets`` a processor first forgets what it has learnt of branches. Answered by
    :class:`BurstReply`, with the device's state if ``read_telemetry``.

    A launch may take ``deadline`` seconds, and all but one ``other_deadline`` if there is one, to
    which the supervisor holds them.
    """

    kind: Literal["burst"] = "burst"
    launchable: int
    order: tuple[int, ...]
    poison: int | None
    deadline: float
    other_deadline: float | None = None
    inspect: int | None = None
    parts: Parts = field(default_factory=dict)
    expected: Mapping[str, Expected] = field(default_factory=dict)
    read_telemetry: bool = False
    idle: tuple[int, ...] = ()
    decoy_sets: tuple[int, ...] = ()
    other: OtherContents | OwnInputs | None = None
    late: LateWrite | None = None
    changed_only: bool = False
    forgets: bool = False

    @property
    def restored(self) -> tuple[int, ...]:
        """The sets to restore: launched on, inspected, idle, and decoys."""
        inspected = () if self.inspect is None else (self.inspect,)
        return tuple(sorted({*self.order, *inspected, *self.idle, *self.decoy_sets}))

    @property
    def inspects(self) -> bool:
        """Whether any set is inspected afterwards."""
        return self.inspect is not None or bool(self.idle)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureEnergy:
    """Restore once, then repeat launches on the sets of ``order`` for so many ``seconds``.

    Counted from the first change of the energy counter after ``settle`` seconds; ``at_most`` in
    all, if it never changes. Answered by :class:`EnergyMeasured`.
    """

    kind: Literal["energy"] = "energy"
    launchable: int
    order: tuple[int, ...]
    poison: int | None
    settle: float
    seconds: float
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectSet:
    """Inspect a launchable's sets after its launches, as a :class:`RunBurst` would.

    For kernels that share the child's memory and could read there which sets will be inspected.
    Answered by :class:`SetInspected`.
    """

    kind: Literal["inspect"] = "inspect"
    launchable: int
    inspect: int | None
    idle: tuple[int, ...]
    parts: Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Release handles in order; unknown ones are skipped."""

    kind: Literal["release"] = "release"
    handles: tuple[int, ...]


Request = Annotated[
    Describe
    | PlanRotation
    | StageBuffers
    | Refill
    | Load
    | Bind
    | TriggerCompile
    | RunBurst
    | MeasureEnergy
    | InspectSet
    | Release,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Success without a value."""

    kind: Literal["done"] = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The device and its identity on this host."""

    kind: Literal["described"] = "described"
    device: Device
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """How to time a shape."""

    kind: Literal["rotated"] = "rotated"
    rotation: Rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstReply:
    """Nanoseconds per launch, and the inspection; its outputs follow as blobs, in order.

    ``host_ns`` is the burst's duration on the host's clock, until the device was idle. ``repeated``
    names the outputs that are as before and do not follow.
    """

    kind: Literal["burst"] = "burst"
    times: tuple[float, ...]
    host_ns: float
    damage: Damage | None = None
    outputs: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    comparisons: dict[str, ArrayComparison] = field(default_factory=dict)
    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyMeasured:
    """The settled counter at each of its changes, and the device's state after the last."""

    kind: Literal["energy"] = "energy"
    readings: tuple[EnergyReading, ...]
    vitals: Vitals | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetInspected:
    """The inspection; its outputs follow as blobs, in order."""

    kind: Literal["inspected"] = "inspected"
    damage: Damage | None
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A :class:`workers.devices.port.DeviceFailure`."""

    kind: Literal["failed"] = "failed"
    code: Code
    detail: str
    sticky: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A :class:`tuner.errors.EnvironmentProblem`: no device, no driver, no package."""

    kind: Literal["broken"] = "broken"
    detail: str


Reply = Annotated[
    Done | Described | Rotated | BurstReply | EnergyMeasured | SetInspected | Failed | Broken,
    Field(discriminator="kind"),
]

REQUESTS: TypeAdapter[list[Request]] = TypeAdapter(list[Request], config=_NUMBERS)
"""The requests of a frame."""
REPLY: TypeAdapter[Reply] = TypeAdapter(Reply, config=_NUMBERS)


def decode_reply(text: bytes) -> Reply:
    """The reply in a JSON text.

    Raises:
        ValueError: it is not a valid reply.
    """
    try:
        return REPLY.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"no valid reply: {error.errors()[0]['msg']}") from None
