"""Answering a mailbox: whoever has a network does what the run that asks cannot.

Owns that each request is answered once, however many relays share the folder: one holds a request's
lock while a model works on it, and the operating system frees the lock with the process. Owns what
a relay may spend, since anyone who can write into the folder can ask.
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
        EnvironmentProblem: the folder is no mailbox, or cannot be written.
    """

    directory: Path
    model: LanguageModel
    max_cost_usd: float
    spent_usd: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if not (self.directory / "requests").is_dir():
            raise EnvironmentProblem(
                f"{self.directory}: is not a mailbox (it has no requests folder)"
            )
        make_folder(self.directory / "claims")

    async def answer_one(self) -> tuple[Request, Reply] | None:
        """Answer the first request that no other relay works on; ``None`` if there is none.

        Raises:
            ModelUnavailable: the model gave no reply, or the money left does not cover the call.
            EnvironmentProblem: the folder cannot be written.
        """
        for request in pending(self.directory):
            with _claimed(self.directory / "claims" / f"{request_name(request)}.lock") as mine:
                if mine and request in pending(self.directory):
                    return request, await self._answered(request)
        return None

    async def _answered(self, request: Request) -> Reply:
        price = await self.model.price(request) or 0.0
        if self.spent_usd + price > self.max_cost_usd:
            raise ModelUnavailable(
                f"{request.position}: the money left ({self.max_cost_usd - self.spent_usd:.4f} "
                f"USD) does not cover a call of up to {price:.4f} USD"
            )
        reply = await self.model.complete(request)
        if isinstance(reply, Waiting):
            raise ModelUnavailable(f"{request.position}: the model waits for {reply.where}")
        self.spent_usd += reply.cost_usd
        answer(self.directory, request, reply)
        return reply


@contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Whether this process holds the lock. The file stays: to delete it would part its holders."""
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
