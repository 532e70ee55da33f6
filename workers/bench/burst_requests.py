"""A burst as the supervisor asks for it, and what comes back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tuner.telemetry import Vitals
from workers.bench.protocol import RunBurst
from workers.comparison import Expected
from workers.devices.port import Inspection, LateWrite


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstRequest:
    """Launches in one go, each within ``deadline`` seconds, and the set to inspect afterwards.

    Outputs that are ``expected`` are compared in the child, others are returned. ``idle`` sets are
    restored besides those that are launched on or inspected, and must not change; so are
    ``decoy_sets``, for nothing. With ``late`` the last launch finds its memory written late. Of
    several requests with ``changed_only`` that are made together, each is answered only with
    outputs that differ from the one before: the result has all.
    """

    launchable: int
    order: Sequence[int]
    poison: int | None
    deadline: float
    inspect: int | None = None
    expected: Mapping[str, Expected] = field(default_factory=dict)
    read_telemetry: bool = False
    idle: tuple[int, ...] = ()
    decoy_sets: tuple[int, ...] = ()
    late: LateWrite | None = None
    changed_only: bool = False

    @property
    def restored(self) -> tuple[int, ...]:
        """The sets to restore: launched on, inspected, idle, and decoys."""
        inspected = () if self.inspect is None else (self.inspect,)
        return tuple(sorted({*self.order, *inspected, *self.idle, *self.decoy_sets}))

    @property
    def inspects(self) -> bool:
        """Whether any set is inspected afterwards."""
        return self.inspect is not None or bool(self.idle)

    @property
    def message(self) -> RunBurst:
        """What the child is sent."""
        return RunBurst(
            launchable=self.launchable,
            order=tuple(self.order),
            restored=self.restored,
            poison=self.poison,
            inspect=self.inspect,
            idle=self.idle,
            expected=dict(self.expected),
            read_telemetry=self.read_telemetry,
            late=self.late,
            changed_only=self.changed_only,
        )


class BurstResult(NamedTuple):
    """Nanoseconds of each launch, or one mean; the inspection and the device's state, if any.

    ``wall_ns`` is how long all launches took on the host's clock.
    """

    times: tuple[float, ...]
    wall_ns: float
    inspection: Inspection | None
    vitals: Vitals | None
