"""Jobs on a Ray cluster, through Ray's job server: submitting, following and their exit codes.

The only module that uses Ray's job SDK. The server checks Ray's token, which the SDK sends if
``RAY_AUTH_MODE`` is ``token``.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster.ray_problems import ray_problem
from tuner.errors import EnvironmentProblem

REACHING_SECONDS = 10.0
"""How long a server may take to accept a connection."""

QUIET_SECONDS = 60.0
"""After so long without a line the connection is made anew: one that died silently looks quiet."""

LOST_SECONDS = 300.0
"""How long the server may be out of reach before following ends; the job itself goes on."""

_AGAIN_SECONDS = 1.0

_LOG_IS_GONE = 3
"""So many failures in a row to read the log of a job that has ended mean that it is lost."""

_NOT_BEGUN = (126, 127)
"""Exit codes of a shell whose command cannot be run, or is not there."""

STOPPING = {"RAY_JOB_STOP_WAIT_TIME_S": "60"}
"""Variables that give a job on which ``ray job stop`` was called time to end: 3 s by default."""

_TALKATIVE = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Loggers that tell of each upload and connection."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended: its entry point's exit code, ``None`` without one, and Ray's first line.

    ``stopped``: on request, such as ``ray job stop``. ``node``: where it ran; empty if unknown.
    """

    exit_code: int | None
    stopped: bool
    message: str
    node: str

    def check_began(self) -> None:
        """Raise ``EnvironmentProblem`` if the shell of the job found no Python to begin it with."""
        if self.exit_code in _NOT_BEGUN:
            raise EnvironmentProblem(
                f"node {self.node or 'of the job'} has no `python` on the PATH that its Ray was "
                "started with: activate the virtual environment that Kernelwright's dependencies "
                "are in before `ray start`"
            )

    def check_code(self, job: str, address: str) -> None:
        """Raise ``EnvironmentProblem`` if Ray ended the job ``job`` before its entry point did."""
        if self.exit_code is None and not self.stopped:
            raise EnvironmentProblem(
                f"job {job} ended without an exit code: {self.message or 'Ray does not say why'}; "
                f"`ray job status --address {address} {job}` prints all that Ray says; continue "
                "the run directory that it printed with: kernelwright submit --address "
                f"{address} --resume RUN"
            )


class JobServer:
    """The job server of a cluster."""

    def __init__(self, address: str) -> None:
        """Connect to ``address``, which begins with ``http://`` or ``https://``.

        Raises:
            EnvironmentProblem: nothing answers there, or it is no job server that lets us in.
        """
        self.address = address.rstrip("/")
        place = urlsplit(self.address)
        try:
            port = place.port or (443 if place.scheme == "https" else 80)
            socket.create_connection((place.hostname or "", port), REACHING_SECONDS).close()
            from ray.job_submission import JobSubmissionClient

            for name in _TALKATIVE:
                logging.getLogger(name).setLevel(logging.WARNING)
            self._client: Any = JobSubmissionClient(self.address)
        except Exception as error:  # the SDK raises RuntimeError, ConnectionError and others
            raise self._problem("cannot reach Ray's job server", error) from None

    def submit(self, job: str, entry_point: str, folder: Path) -> str:
        """Start a job with the files of ``folder`` as its working directory; return its URI.

        Raises:
            EnvironmentProblem: the server refuses the job, or an earlier one has this name.
        """
        environment = {"working_dir": str(folder), "env_vars": STOPPING}
        try:
            self._client.submit_job(
                entrypoint=entry_point, submission_id=job, runtime_env=environment
            )
            found = self._client.get_job_info(job).runtime_env or {}
        except Exception as error:
            raise self._problem(f"cannot submit job {job}", error) from None
        return str(found.get("working_dir", ""))

    async def follow(self, job: str, tell: Callable[[str], None]) -> AsyncGenerator[str, None]:
        """Yield what a job prints, from its beginning to its end, over lost connections.

        ``tell`` is called with a line when a connection is lost, and with Ray's words about the
        job's end if the log is lost with its node.

        Raises:
            EnvironmentProblem: there is no such job, or the server stays out of reach.
        """
        ended = await asyncio.to_thread(self.end, job)
        yielded, broken, reached = 0, 0, time.monotonic()
        while True:
            seen, whole = 0, False
            try:
                async with aclosing(self._client.tail_job_logs(job)) as texts:
                    async for text in _within(QUIET_SECONDS, texts):
                        reached = time.monotonic()
                        broken = 0 if ended is None else broken
                        new = text[max(0, yielded - seen) :]
                        seen += len(text)
                        if new:
                            yielded += len(new)
                            yield new
                whole = True
            except TimeoutError:
                pass
            except Exception as error:  # RuntimeError, and whatever aiohttp raises
                broken += 1
                if broken == 1:
                    tell(f"lost the connection ({ray_problem(error)}); trying again")
            try:
                ended = await asyncio.to_thread(self.end, job)
                reached = time.monotonic()
            except EnvironmentProblem:
                if time.monotonic() > reached + LOST_SECONDS:
                    raise
            if ended is not None and whole:
                # The stream closes in the same way if the node leaves with the rest.
                log = await self._log(job)
                if log is not None and len(log) >= yielded:
                    if log[yielded:]:
                        yield log[yielded:]
                    return
                broken += 1
            if ended is not None and broken >= _LOG_IS_GONE:
                tell(f"the end of its log is lost. {ended.message}")
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _log(self, job: str) -> str | None:
        """The whole log of a job that has ended; ``None`` if it cannot be read."""
        with suppress(Exception):  # RuntimeError, and whatever requests raises
            return str(await asyncio.to_thread(self._client.get_job_logs, job))
        return None

    def end(self, job: str) -> JobEnd | None:
        """How a job ended; ``None`` while it goes on.

        Raises:
            EnvironmentProblem: there is no such job, or the server cannot be reached.
        """
        try:
            found = self._client.get_job_info(job)
        except Exception as error:
            raise self._problem(f"cannot ask for job {job}", error) from None
        if not found.status.is_terminal():
            return None
        node = urlsplit(found.driver_agent_http_address or "").hostname or ""
        stopped = found.status == "STOPPED"
        message = (found.message or "").strip().partition("\n")[0]  # pages follow, such as logs
        return JobEnd(found.driver_exit_code, stopped, message, node)

    def _problem(self, what: str, error: Exception) -> EnvironmentProblem:
        return EnvironmentProblem(f"{what} at {self.address}: {ray_problem(error)}")


async def _within(seconds: float, texts: AsyncIterator[str]) -> AsyncIterator[str]:
    """The same texts; raises ``TimeoutError`` if one takes longer."""
    with suppress(StopAsyncIteration):
        while True:
            yield await asyncio.wait_for(anext(texts), seconds)


def check_reachable(address: str) -> None:
    """Fail at once where Ray would try for ten minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=REACHING_SECONDS).close()
