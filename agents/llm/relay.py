"""Answers a mailbox on behalf of a run that has no network.

Several relays may share the folder: each locks a request while its model works on it, and the
operating system releases the lock with the process. Owns the relay's budget, since anyone who can
write into the folder can ask.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agents.llm.mailbox import answer, pending, request_name
from agents.llm.port import LanguageModel, ModelUnavailable, Reply, Request, Waiting
from tuner.errors import EnvironmentProblem
from tuner.files import make_folder


@dataclass(slots=True)
class Relay:
    """Answers the mailbox in ``directory`` through ``model`` until ``max_cost_usd`` are spent.

    Raises:
        EnvironmentProblem: The folder is no mailbox, or cannot be written.
    """

    directory: Path
    model: LanguageModel
    max_cost_usd: float
    spent_usd: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if not (self.directory / "requests").is_dir():
            raise EnvironmentProblem(
                f"{self.directory}: is not a mailbox: it has no folder requests"
            )
        make_folder(self.directory / "claims")

    async def answer_one(self) -> tuple[Request, Reply] | None:
        """Answer the first request that no other relay works on; ``None`` if there is none.

        Raises:
            ModelUnavailable: The model gave no reply, or the remaining money does not cover the
                call.
            EnvironmentProblem: The folder cannot be written.
        """
        for request in pending(self.directory):
            with _claimed(self.directory / "claims" / f"{request_name(request)}.lock") as mine:
                if mine and request in pending(self.directory):
                    return request, await self._answered(request)
        return None

    async def _answered(self, request: Request) -> Reply:
        price = await self.model.price(request) or 0.0
        if self.spent_usd + price > self.max_cost_usd:
            left = self.max_cost_usd - self.spent_usd
            raise ModelUnavailable(
                f"{request.position}: the remaining money ({left:.4f} USD) does not cover a call "
                f"of up to {price:.4f} USD"
            )
        reply = await self.model.complete(request)
        if isinstance(reply, Waiting):
            raise ModelUnavailable(f"{request.position}: the model waits for {reply.where}")
        self.spent_usd += reply.cost_usd
        answer(self.directory, request, reply)
        return reply


@contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Whether this process got the lock. The file stays: a new one would be a second lock."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be locked ({error.strerror})") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
