"""A run that this process drives on a Ray of its own, and what becomes of it if that Ray dies."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from cluster.cli.console import Update
from cluster.commands.results import is_over
from cluster.fleets.head_calls import ended_process
from cluster.jobs.ray_driver import Driver
from tuner.engine.session import StopReason
from tuner.errors import RunInterrupted

POLL_SECONDS = 0.5
"""Interval at which Ray's processes are looked at: Ray ends this one a minute after its head."""


class OwnRun:
    """A run on the Ray that this process started; the same interface as a local one.

    Args:
        path: the run directory.
        driver: carries it out.
    """

    def __init__(self, path: Path, driver: Driver) -> None:
        self._path = path
        self._driver = driver

    def stop(self, reason: StopReason) -> None:
        """Ask for an end."""
        self._driver.stop(reason)

    async def progress(self) -> AsyncIterator[Update]:
        """Go on until the run is over or was told to stop, yielding how far it is.

        Raises:
            KernelwrightError: what the driver raises.
            RunInterrupted: Ray died before the run was over; everything finished is kept.
        """
        watch = asyncio.create_task(self._leave_with_ray())
        problem: Exception | None = None
        try:
            async for progress in self._driver.progress():
                yield progress
        except Exception as error:  # whatever Ray's calls raise once it is gone
            if not ended_process():
                raise
            problem = error
        finally:
            watch.cancel()
        if (ended := ended_process()) and not is_over(self._path):
            raise RunInterrupted(
                f"the Ray on this machine died: its process {ended} ended"
            ) from problem

    async def _leave_with_ray(self) -> None:
        """End the run once Ray has died."""
        while not ended_process():
            await asyncio.sleep(POLL_SECONDS)
        self.stop("interrupted")
