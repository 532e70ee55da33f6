"""The messages between supervisor and bench child, and their bytes.

A frame holds one request or more; each is answered by a frame of its own, until one fails: those
behind it are not carried out. Requests mirror the device port one to one; handles (``case``,
``module``, ``launchable``) are numbers that the supervisor chooses. Replies come from a process in
which candidate code has run, so they are validated like any other outside input.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tuner.device import Device
from tuner.experiment.model import Cache
from tuner.plan import Binary, CellPlan
from tuner.telemetry import Vitals
from tuner.trial import Code
from workers.comparison import Comparison, Expected
from workers.devices.port import Damage, Rotation, StagedBuffer, StagedNull, StagedScalar


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
    in_place: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Stage a case."""

    kind: Literal["stage"] = "stage"
    case: int
    buffers: tuple[StagedBuffer, ...]
    scalars: tuple[StagedScalar, ...]
    nulls: tuple[StagedNull, ...]
    sets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refill:
    """Write contents (argument → path) into every set of a case."""

    kind: Literal["refill"] = "refill"
    case: int
    contents: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load binaries; their code follows as blobs, in order."""

    kind: Literal["load"] = "load"
    module: int
    binaries: tuple[Binary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Bind a cell to a case."""

    kind: Literal["bind"] = "bind"
    launchable: int
    module: int
    cell: CellPlan
    case: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaken:
    """Restore one set and launch on it, answered as soon as the device runs what it may compile."""

    kind: Literal["awaken"] = "awaken"
    launchable: int
    index: int
    poison: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """Restore, burst, inspect: the one way to launch, for checks and timing alike.

    The sets ``restored`` are made whole before; ``inspect`` names the one to look at afterwards, if
    any; it need not be one of those launched. Without a ``poison`` outputs hold what earlier
    launches left. Answered by :class:`Fired`, which tells how the device is if it is to ``watch``.
    """

    kind: Literal["fire"] = "fire"
    launchable: int
    order: tuple[int, ...]
    restored: tuple[int, ...]
    poison: int | None
    inspect: int | None = None
    expected: dict[str, Expected] = field(default_factory=dict)
    watch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Inspect a set of a launchable's case, asked when nothing of it runs any more.

    For kernels that share the child's memory, and could read in a :class:`Fire` what will be looked
    at. Answered by :class:`Looked`.
    """

    kind: Literal["look"] = "look"
    launchable: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Release cases, modules and launchables, in order; not those that were never made."""

    kind: Literal["release"] = "release"
    handles: tuple[int, ...]


Request = Annotated[
    Describe | PlanRotation | Stage | Refill | Load | Bind | Awaken | Fire | Look | Release,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It is done."""

    kind: Literal["done"] = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The device, and what names it on this host."""

    kind: Literal["described"] = "described"
    device: Device
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """How to time a case."""

    kind: Literal["rotated"] = "rotated"
    rotation: Rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """Nanoseconds per launch, and the inspection; its outputs follow as blobs, in order.

    ``host_ns`` is how long the burst took by the host's clock, until nothing ran any more.
    """

    kind: Literal["fired"] = "fired"
    times: tuple[float, ...]
    host_ns: float
    damage: Damage | None = None
    outputs: tuple[str, ...] = ()
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The inspection; its outputs follow as blobs, in order."""

    kind: Literal["looked"] = "looked"
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
    Done | Described | Rotated | Fired | Looked | Failed | Broken, Field(discriminator="kind")
]

_REQUESTS: TypeAdapter[list[Request]] = TypeAdapter(list[Request])
_REPLIES: TypeAdapter[Reply] = TypeAdapter(Reply)


def encode_requests(requests: Sequence[Request]) -> bytes:
    """Requests as JSON; not-a-number and infinities are kept."""
    return json.dumps(_REQUESTS.dump_python(list(requests), mode="json")).encode()


def decode_requests(text: bytes) -> list[Request]:
    """The requests that a JSON text holds."""
    return _REQUESTS.validate_json(text)


def encode_reply(reply: Reply) -> bytes:
    """A reply as JSON."""
    return json.dumps(_REPLIES.dump_python(reply)).encode()


def decode_reply(text: bytes) -> Reply:
    """The reply that a JSON text holds.

    Raises:
        ValueError: it holds none.
    """
    try:
        return _REPLIES.validate_json(text)
    except ValidationError as error:
        raise ValueError(f"no valid reply: {error.errors()[0]['msg']}") from None
