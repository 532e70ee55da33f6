"""The two ports to workers: a compile slot, and a bench; and how a worker's death is told.

Implemented by threads with child processes (:mod:`cluster.fleets.local`) and by Ray actors
(:mod:`cluster.fleets.actors`); used by :mod:`cluster.fleets.pool`.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from tuner.engine.work import BenchSetup, ConfirmWork, ExamineWork, MeasureWork
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    TrialFinished,
    WinnersExamined,
)
from tuner.plan import Binary, Build
from tuner.trial import Rejected


class WorkerLost(Exception):
    """A worker died, or its machinery failed, before it answered; the next call uses a new one."""


class NoRoom(WorkerLost):
    """A node has no room for what a worker takes or answers: no fault of the work that is lost."""


NO_ROOM_SECONDS = 5.0
"""How long a worker rests after that."""


class CompileSlot(Protocol):
    """One compile worker."""

    @property
    def name(self) -> str:
        """Names the worker in the journal."""
        ...

    async def ready(self) -> None:
        """Return once it can take work; after a death this may never return."""
        ...

    async def compile(self, builds: tuple[Build, ...]) -> tuple[Binary, ...] | Rejected:
        """Compile every build; raises :class:`WorkerLost`."""
        ...

    async def close(self) -> None:
        """Release its processes."""
        ...


class BenchSlot(Protocol):
    """One device, with everything that may touch it."""

    @property
    def name(self) -> str:
        """Names the worker in the journal, as spans do once its device is known."""
        ...

    @property
    def node(self) -> str:
        """The host that it is on; empty while that is not known."""
        ...

    @property
    def waits_for(self) -> str:
        """Which process has had the device for long while this waits for it; empty if none."""
        ...

    async def ready(self) -> str:
        """Return once it can take work, with a name of its present process.

        A bench that was restarted has another name, and has forgotten what it prepared. After a
        death this may never return.
        """
        ...

    async def prepare(self, setup: BenchSetup) -> BaselinePrepared:
        """Prepare for every later call; raises :class:`WorkerLost`."""
        ...

    def measure(self, work: MeasureWork) -> AsyncIterator[TrialFinished]:
        """Yield one outcome for each candidate, in order; raises :class:`WorkerLost`."""
        ...

    async def confirm(self, work: ConfirmWork) -> ConfirmationSampled:
        """Time finalists and baseline in a fresh process; raises :class:`WorkerLost`."""
        ...

    async def examine(self, work: ExamineWork) -> WinnersExamined:
        """Run winners under the checkers; raises :class:`WorkerLost`."""
        ...

    async def close(self) -> None:
        """Release the device."""
        ...
