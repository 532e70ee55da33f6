"""The fleet of a device that is not here: it compiles for the architecture, and measures nothing.

With it a run goes as far as it can (replies, gates, compiling) and parks at the first step that
needs the device.
"""

import os
from pathlib import Path

from cluster.fleets.local import ThreadCompiler
from cluster.fleets.pool import PooledFleet
from tuner.device import Backend
from tuner.engine.work import CompileWork, Work
from tuner.errors import DeviceNeeded
from workers.backends.registry import device_for_target


class TargetFleet(PooledFleet):
    """Port :class:`tuner.engine.fleet.Fleet` without a bench."""

    @property
    def bench_slots(self) -> int:
        """As on a machine that has the device: what is sent to it ends the run's part here."""
        return 1

    def submit(self, work: Work) -> None:
        """Queue a compile work.

        Raises:
            DeviceNeeded: the work is not one.
        """
        if not isinstance(work, CompileWork):
            raise DeviceNeeded(
                f"this needs the device itself ({self.device.name}): resume the run on a machine "
                "that has one"
            )
        super().submit(work)


async def open_target_fleet(
    backend: Backend, *, target: str, cache: Path | None = None
) -> TargetFleet:
    """A fleet that compiles on this machine.

    Args:
        backend: of the kernel.
        target: the architecture to compile for, such as ``sm_90``.
        cache: where compiled binaries are kept from run to run, if they are.

    Raises:
        SpecError: the architecture is unknown, or the backend compiles for none.
    """
    device = device_for_target(backend, target)
    slots = len(os.sched_getaffinity(0))
    return TargetFleet(
        device, [ThreadCompiler(device, number, cache) for number in range(slots)], []
    )
