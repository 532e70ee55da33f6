"""One process's hold on a run: its directory, how it gets devices, and whether it is to end."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cluster.fleets.claim import Claim
from cluster.runs.logs import logged
from cluster.runs.run_layout import STOP_FILE, STOP_NOW
from tuner.device import Backend
from tuner.engine.engine import Engine, Observer, unobserved
from tuner.engine.fleet import Fleet
from tuner.engine.session import StopReason
from tuner.run_directory import RunDirectory

FleetOpener = Callable[[Backend], Awaitable[Fleet]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunProcess:
    """What a process continues a run with.

    Args:
        path: the run directory, made by :meth:`tuner.run_directory.RunDirectory.create`.
        open_fleet: brings up workers for a backend, in the event loop that iterates.
        job: the batch job that this process belongs to, for other processes to read.
        claim: on the devices that ``open_fleet`` takes; says what it waits for.
        observe: is told every fact that this process journals.
    """

    path: Path
    open_fleet: FleetOpener
    job: str = ""
    claim: Claim = field(default_factory=Claim)
    observe: Observer = unobserved

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[RunDirectory, Engine]]:
        """Hold the run directory, with an engine whose fleet opens when it is asked for.

        Raises:
            KernelwrightError: the directory is damaged, or held by another process.
        """
        with (
            closing(RunDirectory.open(self.path, job=self.job)) as directory,
            logged(self.path, directory.took_over),
        ):
            language = directory.experiment.kernel.language
            engine = Engine(partial(self.open_fleet, language), observe=self.observe)
            try:
                yield directory, engine
            finally:
                await engine.close()


class StopRequests:
    """Stop requests for a run: from :meth:`add`, or from the stop file in its directory."""

    def __init__(self, run: Path) -> None:
        self._file = run / STOP_FILE
        self._reason: StopReason | None = None

    def begin(self) -> None:
        """Forget what was asked of an earlier process."""
        self._file.unlink(missing_ok=True)

    def add(self, reason: StopReason) -> None:
        """Ask for an end."""
        _log.info("asked to end: %s", reason)
        self._reason = reason

    def __call__(self) -> StopReason | None:
        """What was asked for so far."""
        if self._reason != "interrupted":
            with suppress(FileNotFoundError):
                now = STOP_NOW in self._file.read_text(encoding="utf-8", errors="replace")
                if now or self._reason is None:
                    self.add("interrupted" if now else "stopped")
        return self._reason
