"""The port of a device: what the bench child can do with one device, and nothing more.

Runs inside the bench child, beside candidate code, so it decides nothing: it stages buffers,
launches, reads clocks and reports; :mod:`workers.bench.device_bench` judges. A backend obeys
``tests/conformance/device_backend.py``.

The arguments of one shape are staged in one or more *buffer sets* of equal contents; a *launchable*
is one cell of a plan bound to them. Checks and timing use the same cycle: ``restore`` (inputs as
filled, outputs poisoned), ``burst`` (launch on a sequence of sets, timed), ``inspect`` (guards,
inputs and outputs of one set).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal, Protocol, runtime_checkable

from pydantic import Field

from tuner.device import Device
from tuner.experiment.model import Cache
from tuner.plan import Binary, CellPlan, KernelStep
from tuner.space.limits import launch_excess
from tuner.telemetry import Vitals
from tuner.trial import Code
from workers.comparison import ArrayComparison, Expected

GUARD_BYTES = 4096
"""Guard bytes before and after every buffer, at least."""

NOISE = 0x3E9D2B71
"""Fills on-chip memory: an ordinary number as a float and as two halves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """How other contents follow from given ones.

    ``rotated`` by any number of places; ``mixed``, each element in part from one place and in part
    from another, so that all are others, but within the ``limits``; or floats ``nudged`` by a few
    units in the last place, which keeps any structure.
    """

    kind: Literal["mixed", "rotated", "nudged"]
    limits: tuple[int | float, int | float] | None = None


class DeviceFailure(Exception):
    """A candidate failed on the device; classified by the driver's status code, never by text.

    After a ``sticky`` failure the process must be replaced.
    """

    def __init__(self, code: Code, detail: str, *, sticky: bool = False) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.sticky = sticky


def check_launch(step: KernelStep, device: Device) -> None:
    """Refuse a launch that is over the device's limits, or empty.

    Raises:
        DeviceFailure: naming the limit.
    """
    if excess := launch_excess(step, device):
        raise DeviceFailure(*excess)
    if min(*step.grid, *step.block) < 1:
        raise DeviceFailure(Code.GRID, f"empty launch: grid {step.grid}, block {step.block}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBuffer:
    """One buffer argument: guarded at both ends and aligned to exactly ``align`` bytes.

    Exactly: the address is a multiple of ``align`` and not of ``2 * align``. ``size`` is in bytes
    and spans the strides; ``shape`` and ``strides`` are in elements. ``contents`` is the path of a
    read-only file of ``size`` raw bytes for ``in``, ``inout`` and ``constant`` buffers; the same
    path always holds the same bytes. ``symbol`` names a ``constant``'s variable in the module.
    Where the device can protect memory, a launch that writes to a ``read_only`` buffer crashes.
    ``varies`` says how its contents may be changed for a launch on inputs of its own.
    """

    name: str
    kind: Literal["in", "out", "inout", "scratch", "constant"]
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int
    align: int
    contents: str | None = None
    symbol: str | None = None
    read_only: bool = False
    varies: Variation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedValue:
    """A scalar, struct or null pointer: its bytes as the kernel reads them, in hexadecimal."""

    kind: Literal["value"] = "value"
    name: str
    data: str

    @property
    def packed(self) -> bytes:
        """The bytes themselves."""
        return bytes.fromhex(self.data)


Staged = Annotated[StagedBuffer | StagedValue, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How to time one shape: buffer ``sets``, warm-up and timed bursts.

    A burst launches on each set once, so that no launch finds what another left there.
    """

    sets: int
    warmup: int
    bursts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes that a launch must not change: in a guard, in an input itself, or in an idle set."""

    argument: str
    where: Literal["front", "back", "input", "idle"]
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The state of one set after a launch.

    ``outputs`` holds the raw bytes, gaps of strides included, of every ``out`` and ``inout``
    argument that was not compared on the device; ``comparisons`` the results of those that were.
    """

    damage: Damage | None
    outputs: dict[str, bytes]
    comparisons: dict[str, ArrayComparison]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateWrite:
    """A write that a dependent launch must wait for.

    Before this ``step`` of a burst's last launch another kernel lets it begin, waits, and only then
    writes what the set held. Until then buffers hold zeros, or their contents ``rotated`` by half.
    """

    step: int
    stale: Literal["zeros", "rotated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherContents:
    """Contents (argument → path) that one set of a burst holds, and the others do not."""

    set_index: int
    contents: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnInputs:
    """Inputs that vary from set to set of a burst, the same for the same ``seed``.

    Every set's ``in`` and ``inout`` buffers hold what follows from their contents by their
    :data:`Variation`, seed and set. Where it is known before the launches, ``set_index`` is the set
    that is inspected after them.
    """

    seed: int
    set_index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyReading:
    """A device's energy counter just after it changed, and what had been launched by then.

    ``ns`` is the time since the launches began.
    """

    millijoules: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    launches: int
    ns: Annotated[float, Field(ge=0, allow_inf_nan=False)]


Parts = Mapping[str, tuple[int, int]]
"""Of some outputs the first byte of a part, and the one behind its last."""
WHOLE: Parts = MappingProxyType({})
"""All of each output."""


def unobserved() -> None:
    """The callback of a burst whose launches the host does not time."""


class BufferSets(Protocol):
    """The arguments of one shape, staged in ``sets`` buffer sets at fixed addresses."""

    @property
    def sets(self) -> int:
        """How many buffer sets there are."""

    def refill(self, contents: Mapping[str, str]) -> None:
        """From the next :meth:`restore` on, sets hold these contents (argument → path).

        Arguments left out keep their contents; guards are restored.
        """

    def restore(
        self,
        sets: Sequence[int],
        poison: int | None,
        other: OtherContents | OwnInputs | None = None,
    ) -> None:
        """Prepare these sets for a launch: ``inout`` as filled, ``out`` and scratch poisoned.

        Without a ``poison`` there is one set, whose ``out`` and scratch buffers are kept. Until the
        next time one of the sets may hold ``other`` contents, or each inputs of its own: on a
        device that is told before which set is inspected, no other one is then.
        """

    def inspect(
        self, set_index: int, expected: Mapping[str, Expected], parts: Parts = WHOLE
    ) -> Inspection:
        """Inspect one set after a burst: guards, ``in`` bytes, outputs.

        A backend that compares on its device compares the outputs named in ``expected`` there, and
        scrubs the oracle's device copy before it returns; a CPU backend returns every output's
        bytes. Of outputs in ``parts`` only those bytes are returned.
        """

    def touched(self, sets: Sequence[int]) -> Damage | None:
        """The first change to these sets since :meth:`restore`; no launch may work on them."""

    def release(self) -> None:
        """Free every buffer."""


class Module(Protocol):
    """Loaded machine code of one candidate; a new one for each, so that no state is shared.

    Its variables have their first values when it is loaded. A burst of one launch on one of several
    sets finds what earlier launches left, as in an application. Other bursts are timings: where the
    backend can, each of their launches finds the first values.
    """

    def release(self) -> None:
        """Unload it."""


class Launchable(Protocol):
    """A cell of a plan bound to buffer sets, with its scratch buffers until it is released."""

    def trigger_compile(self, set_index: int) -> None:
        """Launch once where the driver compiles at a first launch; return once it runs.

        The next :meth:`Case.restore` waits for its end.
        """

    def burst(
        self,
        order: Sequence[int],
        begins: Callable[[], None] = unobserved,
        late: LateWrite | None = None,
    ) -> tuple[float, ...]:
        """Launch the given sets in order, wait for all, and return nanoseconds per launch.

        Calls ``begins`` when everything is queued, before the first launch begins. With ``late``,
        where steps launch dependently, memory is written late before a step of the last launch.

        One number for each launch, or a single mean where launches are timed as one (a replayed
        graph). Nothing but the launches lies between the clock's readings. Raises
        :class:`DeviceFailure`.
        """

    def release(self) -> None:
        """Free what binding allocated."""


@runtime_checkable
class RepeatingLaunchable(Protocol):
    """A launchable of a backend that measures energy."""

    def repeat(self, order: Sequence[int], go_on: Callable[[int], bool]) -> None:
        """Launch the given sets in order, again and again, without a pause on the device.

        Every few milliseconds ``go_on`` is called with the number of launches that have ended,
        while further ones run. Returns after it returned false, once all have ended.
        """


@runtime_checkable
class BranchPredictor(Protocol):
    """A device backend whose device predicts branches: a processor."""

    def forget_branches(self) -> None:
        """Let it forget which way the branches of kernels went."""


@runtime_checkable
class EnergyMeter(Protocol):
    """A device backend that measures energy."""

    def millijoules(self) -> float | None:
        """What the device alone has used since some moment; ``None``: it does not tell."""


class DeviceBackend(Protocol):
    """One device, opened in this process. All methods raise :class:`DeviceFailure`."""

    @property
    def device(self) -> Device:
        """The device's model and limits, from the driver."""

    @property
    def identity(self) -> str:
        """A name of this device on this host whatever its index: its UUID if it has one.

        Letters, digits, dots, dashes and underscores; the host-wide lock is named after it.
        """

    def rotation(self, size: int, cache: Cache, warmup: int, repeats: int) -> Rotation:
        """How to time a shape whose buffers take ``size`` bytes, with the spec's counts."""

    def vitals(self) -> Vitals | None:
        """The device's state now; ``None`` if unknown."""

    def stage(self, arguments: Sequence[Staged], sets: int) -> BufferSets:
        """Allocate and fill the buffers of one shape."""

    def load(self, binaries: Sequence[Binary]) -> Module:
        """Load the binaries, in the order of the plan's builds."""

    def bind(self, module: Module, cell: CellPlan, buffer_sets: BufferSets) -> Launchable:
        """Check the cell's launches against the device, allocate its scratch, set its arguments."""

    def close(self) -> None:
        """Release the device."""
