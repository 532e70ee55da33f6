"""A folder as a language model: each request is one file, each reply another.

Owns the layout and both sides: the run that asks, and what answers (another program, another host,
a person). Nothing in the folder is trusted. A reply is accepted once it is complete, has the right
form and names the request's digest; it is then copied to ``accepted/`` and stays the answer. Other
files are ignored.

    DIR/requests/NAME.json   the request
    DIR/replies/NAME.json    the answer, written under another name and renamed
    DIR/accepted/NAME.json   the answer, accepted
    DIR/problems/NAME.txt    why a reply was not accepted
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from agents.llm.port import (
    REPLIES,
    REQUESTS,
    ModelUnavailable,
    Reply,
    Request,
    Waiting,
)
from tuner.errors import EnvironmentProblem
from tuner.files import (
    UnreadableFile,
    check_folder,
    first_problem,
    make_folder,
    read_bounded,
    write_whole,
)

LIMIT_BYTES = 16 * 1024 * 1024
_FOLDERS = ("requests", "replies", "accepted", "problems")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplyFile(Reply):
    """A reply as its file holds it. Only ``request`` and ``text`` are required."""

    format: Literal["kernelwright-reply"] = "kernelwright-reply"
    version: Literal[1] = 1
    request: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    def reply(self) -> Reply:
        return Reply(**{one.name: getattr(self, one.name) for one in fields(Reply)})


_REPLY_FILES: TypeAdapter[_ReplyFile] = TypeAdapter(_ReplyFile)


def check_mailbox(directory: Path) -> None:
    """Check that a mailbox can be created, without creating it.

    Raises:
        EnvironmentProblem: It cannot.
    """
    for name in _FOLDERS:
        check_folder(directory / name)


class Mailbox:
    """A model that is asked through a folder.

    Args:
        directory: The mailbox; created if missing.
        exit_when_waiting: Return :class:`Waiting` at once if there is no reply yet.
        poll_seconds: Time between two looks for a reply.
        timeout_seconds: Longest wait for one reply.
        tell: Called with what the model waits for, whenever that changes.
    """

    def __init__(
        self,
        directory: Path,
        *,
        exit_when_waiting: bool = False,
        poll_seconds: float = 1.0,
        timeout_seconds: float = 24 * 3600.0,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._directory = directory
        self._exit_when_waiting = exit_when_waiting
        self._poll_seconds = poll_seconds
        self._timeout_seconds = timeout_seconds
        self._tell = tell
        for name in _FOLDERS:
            make_folder(directory / name)

    async def ready(self) -> None:
        """Nothing to check: the folder exists."""

    async def complete(self, request: Request) -> Reply | Waiting:
        """Post the request, unless it is there already, and wait for the reply.

        Raises:
            ModelUnavailable: No valid reply came in time.
            EnvironmentProblem: The folder cannot be written.
        """
        name = request_name(request)
        asked = self._directory / "requests" / f"{name}.json"
        if not asked.exists():
            write_whole(asked, _request_file(request, name))
        end, told = time.monotonic() + self._timeout_seconds, ""
        while True:
            reply = self._take(request, name)
            if reply is not None:
                return reply
            why = f" ({said})" if (said := self._said(name).strip()) else ""
            where = f"{asked}{why}"
            if self._exit_when_waiting:
                return Waiting(where=where)
            if where != told:
                told = where
                self._tell(f"waiting for a reply to {where}")
            if time.monotonic() >= end:
                raise ModelUnavailable(
                    f"{asked}: no valid reply within {self._timeout_seconds:g} s{why}"
                )
            await asyncio.sleep(self._poll_seconds)

    async def price(self, request: Request) -> float:  # noqa: ARG002 - the same for all
        """Zero: the reply says what it cost."""
        return 0.0

    def _take(self, request: Request, name: str) -> Reply | None:
        accepted = self._directory / "accepted" / f"{name}.json"
        offered = self._directory / "replies" / f"{name}.json"
        problem = self._problem(name)
        for path in (accepted, offered):
            try:
                text = read_bounded(path, LIMIT_BYTES)
                found = None if text is None else _read_reply(text, request)
            except UnreadableFile as error:
                why = f"{path}: the reply {error}; replace it\n"
                if self._said(name) != why:
                    write_whole(problem, why)
                continue
            if found is None:
                continue
            if path is offered:
                # Write what was checked instead of moving the file, which may have changed.
                write_whole(accepted, text or "")
                offered.unlink(missing_ok=True)
                with suppress(OSError):
                    problem.unlink()
            return found.reply()
        return None

    def _problem(self, name: str) -> Path:
        return self._directory / "problems" / f"{name}.txt"

    def _said(self, name: str) -> str:
        """Why the reply that is there was not accepted; empty if there is none."""
        try:
            return read_bounded(self._problem(name), LIMIT_BYTES) or ""
        except UnreadableFile:
            return ""


def pending(directory: Path) -> Iterator[Request]:
    """The requests in a mailbox that have no reply yet, by name; other files are ignored."""
    for path in sorted((directory / "requests").glob("*.json")):
        if any((directory / folder / path.name).exists() for folder in ("replies", "accepted")):
            continue
        try:
            found: Any = json.loads(read_bounded(path, LIMIT_BYTES) or "")
            request = REQUESTS.validate_json(json.dumps(found["request"]))
        except (UnreadableFile, ValueError, TypeError, KeyError, RecursionError):
            continue
        if path.stem == request_name(request):
            yield request


def answer(directory: Path, request: Request, reply: Reply) -> None:
    """Write a reply into the mailbox atomically.

    Raises:
        EnvironmentProblem: There is no mailbox, or it cannot be written.
    """
    folder = directory / "replies"
    if not folder.is_dir():
        raise EnvironmentProblem(f"{directory}: is not a mailbox: it has no folder replies")
    plain = REPLIES.dump_python(reply, mode="json")
    del plain["kind"]
    found = {"format": "kernelwright-reply", "version": 1, "request": request.digest, **plain}
    write_whole(
        folder / f"{request_name(request)}.json", json.dumps(found, ensure_ascii=False, indent=1)
    )


def _read_reply(text: str, request: Request) -> _ReplyFile:
    try:
        found = _REPLY_FILES.validate_json(text)
    except ValidationError as error:
        problem = first_problem(error)
        raise UnreadableFile(f"is incomplete or has another form ({problem})") from error
    if found.request != request.digest:
        raise UnreadableFile(
            f"answers request {found.request[:8]}, not this one ({request.digest[:8]})"
        )
    return found


def request_name(request: Request) -> str:
    """The name of a request's files, without suffix."""
    return f"{request.position}-{request.digest[:8]}"


def _request_file(request: Request, name: str) -> str:
    return json.dumps(
        {
            "format": "kernelwright-request",
            "version": 1,
            "digest": request.digest,
            "reply_to": f"replies/{name}.json",
            "reply_form": {
                "format": "kernelwright-reply",
                "version": 1,
                "request": request.digest,
                "text": "(the whole answer)",
                "finish_reason": "stop",
            },
            "request": REQUESTS.dump_python(
                request, mode="json", exclude=None if request.complaint else {"complaint"}
            ),
        },
        ensure_ascii=False,
        indent=1,
    )
