"""A recorded transcript as a language model: replies by position, without key or network.

Owns the transcript's format: JSON lines, a header that says how it was made, then one exchange per
line. Replayed replies pass the same checks as live ones.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from agents.llm.port import ModelUnavailable, Reply, Request, StepKey
from tuner.errors import SpecError
from tuner.files import UnreadableFile, first_problem, read_bounded, write_whole

LIMIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """First line of a transcript: its experiment and kernel, and how it was ``made``."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    format: Literal["kernelwright-transcript"] = "kernelwright-transcript"
    version: Literal[1] = 1
    experiment: str
    kernel: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    made: Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A recorded reply and its step; ``request`` is the digest of the request."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    step: StepKey
    request: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    reply: Reply


_HEADERS: TypeAdapter[Header] = TypeAdapter(Header)
_EXCHANGES: TypeAdapter[Exchange] = TypeAdapter(Exchange)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A header and the exchanges in order."""

    header: Header
    exchanges: tuple[Exchange, ...]

    def matches(self, experiment: str, kernel: str) -> bool:
        """Whether it was recorded for this experiment and kernel digest."""
        return (self.header.experiment, self.header.kernel) == (experiment, kernel)


def read_transcript(path: Path) -> Transcript:
    """Read and check a transcript.

    Raises:
        SpecError: It is missing, damaged or of another format; the message names the line.
    """
    try:
        text = read_bounded(path, LIMIT_BYTES)
    except UnreadableFile as error:
        raise SpecError(f"{path}: the transcript {error}") from error
    if text is None:
        raise SpecError(f"{path}: there is no such transcript")
    lines = text.split("\n")
    try:
        header = _HEADERS.validate_json(lines[0])
    except ValidationError as error:
        problem = first_problem(error)
        raise SpecError(f"{path}:1: not the header of a transcript: {problem}") from error
    exchanges: dict[StepKey, Exchange] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            exchange = _EXCHANGES.validate_json(line)
        except ValidationError as error:
            raise SpecError(f"{path}:{number}: not an exchange: {first_problem(error)}") from error
        if exchange.step in exchanges:
            raise SpecError(f"{path}:{number}: {exchange.step} is recorded twice")
        exchanges[exchange.step] = exchange
    return Transcript(header=header, exchanges=tuple(exchanges.values()))


def write_transcript(path: Path, header: Header, exchanges: Sequence[Exchange]) -> None:
    """Write a transcript atomically.

    Raises:
        EnvironmentProblem: It cannot be written.
    """
    rows = [
        _HEADERS.dump_python(header, mode="json"),
        *(_EXCHANGES.dump_python(exchange, mode="json") for exchange in exchanges),
    ]
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


class Replay:
    """Answers from a transcript. A recorded repair is used only if the failure occurs again."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._replies = {exchange.step: exchange.reply for exchange in transcript.exchanges}

    async def complete(self, request: Request) -> Reply:
        """The reply recorded at the request's position.

        Raises:
            ModelUnavailable: The transcript is of another kernel or has no reply there.
        """
        position = request.position
        header = self._transcript.header
        if not self._transcript.matches(position.experiment, position.kernel):
            raise ModelUnavailable(
                f"the transcript was recorded for {header.experiment} with kernel "
                f"{header.kernel[:8]}, not for {position.experiment} with {position.kernel[:8]}"
            )
        reply = self._replies.get(position.step)
        if reply is None:
            raise ModelUnavailable(f"the transcript has no reply for {position.step}")
        return reply

    async def ready(self) -> None:
        """Nothing to check: the transcript was read."""

    async def price(self, request: Request) -> float:  # noqa: ARG002 - the same for all
        """Zero: it was paid when it was recorded."""
        return 0.0
