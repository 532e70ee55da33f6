"""The port to the workers of a run: work goes out, facts come back.

A fleet carries work to compile workers and benches: in child processes of this process, or
through Ray. It decides nothing.
"""

from typing import Protocol

from tuner.device import Device
from tuner.engine.work import Work
from tuner.journal.facts import Answer, BenchChange


class Fleet(Protocol):
    """Carries work to workers and brings back answers.

    Implementations: :mod:`cluster.fleets`, and for tests :mod:`tests.tuner.engine.simulated_fleet`.
    All obey ``tests/conformance/fleet.py``.
    """

    @property
    def device(self) -> Device:
        """The device model that this run tunes for."""
        ...

    @property
    def compile_slots(self) -> int:
        """How many candidates are compiled at once."""
        ...

    @property
    def bench_slots(self) -> int:
        """How many benches work at once: one per device of the model."""
        ...

    @property
    def benches_lost(self) -> str | None:
        """Why no bench lives now; ``None`` if one does, or none was started yet."""
        ...

    @property
    def benches_missing(self) -> str:
        """How many benches were lost or could not be used, and why the last; empty if none."""
        ...

    @property
    def benches_waiting(self) -> str:
        """A long wait of a bench: its device, and which process uses it; empty without one."""
        ...

    def bench_changes(self) -> tuple[BenchChange, ...]:
        """Which benches joined and were lost since the last call."""
        ...

    @property
    def real_time(self) -> bool:
        """Whether its clock goes on while this process computes."""
        ...

    def now(self) -> float:
        """Seconds on the fleet's clock, which never goes back."""
        ...

    def submit(self, work: Work) -> None:
        """Queue work. Answers come from :meth:`answers`, never from here.

        Raises:
            DeviceNeeded: this fleet has no device for such work.
        """
        ...

    async def answers(self, timeout: float) -> tuple[Answer, ...]:
        """Wait for at least one answer, at most ``timeout`` seconds of the fleet's clock.

        The answers to one ``MeasureWork`` come one by one, in its order. A dead worker is a
        ``WorkLost`` for each work that it held.
        """
        ...

    async def close(self) -> None:
        """Stop all work and release every device; pending work is dropped."""
        ...
