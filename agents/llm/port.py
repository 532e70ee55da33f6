"""The language-model port: a request at a position in, a reply out.

Owns the values that cross the port and what every adapter promises. Knows neither prompts nor
kernels, nor how a model is reached.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import ConfigDict, Field, TypeAdapter

from tuner.errors import KernelwrightError

STRICT = ConfigDict(extra="forbid", strict=True)

MAX_COUNT = 1_000_000_000
MAX_TEXT = 4_000_000

BYTES_PER_TOKEN = 3
"""Fewer than any tokenizer needs for code, so that an estimate is never too low."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class Role(StrEnum):
    """Who takes a step of the loop; only planning and generation ask a model."""

    PLANNING = "planning"
    GENERATION = "generation"
    TUNING = "tuning"
    TESTING = "testing"


class ModelUnavailable(KernelwrightError):
    """The model side gave out: no reply can be had, now or on another try."""

    exit_code = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKey:
    """Where in a run a step stands. ``attempt`` counts re-asks and repairs from 0."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    round: Count
    draft: Count
    role: Role
    attempt: Count

    def __str__(self) -> str:
        return f"r{self.round}-d{self.draft}-{self.role}-a{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A step of one experiment with one kernel: what transcripts and mailboxes are keyed by.

    Briefs hold fresh measurements, so the text of a request never repeats; its position does.
    ``kernel`` is the digest of the kernel's source.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    experiment: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
    kernel: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    step: StepKey

    def __str__(self) -> str:
        return f"{self.experiment}-{self.kernel[:8]}-{self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of the conversation."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    role: Literal["system", "user", "assistant"]
    content: str


_TOKENS_PER_MESSAGE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a model is asked: the whole conversation, and the most tokens it may answer with."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    position: Position
    messages: tuple[Message, ...]
    max_output_tokens: Annotated[int, Field(ge=1)] = 16_384

    @property
    def input_tokens(self) -> int:
        """An upper estimate of the messages' tokens."""
        texts = (message.content.encode("utf-8", "replace") for message in self.messages)
        return sum(-(-len(text) // BYTES_PER_TOKEN) + _TOKENS_PER_MESSAGE for text in texts)

    @property
    def digest(self) -> str:
        """SHA-256 over every field, as hex."""
        plain = REQUESTS.dump_python(self, mode="json")
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens read and written, as the provider counts them; 0 where it does not tell."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    input_tokens: Count = 0
    output_tokens: Count = 0


NO_USAGE = TokenUsage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model answered. ``length`` means that the answer was cut at the limit.

    ``notes`` say what of the request was not honoured, and where no price is known.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    kind: Literal["reply"] = "reply"
    text: Annotated[str, Field(max_length=MAX_TEXT)]
    finish_reason: Literal["stop", "length", "other"] = "stop"
    model: Annotated[str, Field(max_length=200)] = ""
    usage: TokenUsage = NO_USAGE
    cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    notes: tuple[Annotated[str, Field(max_length=500)], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """No reply yet, and the caller chose not to hold the machine until there is one."""

    kind: Literal["waiting"] = "waiting"
    where: str


REQUESTS: TypeAdapter[Request] = TypeAdapter(Request)
REPLIES: TypeAdapter[Reply] = TypeAdapter(Reply)


class LanguageModel(Protocol):
    """Answers requests. Adapters obey ``tests/conformance/language_model.py``.

    Implementations: :mod:`agents.llm.replay`, :mod:`agents.llm.mailbox`,
    :mod:`agents.llm.network`.
    """

    async def ready(self) -> None:
        """Find out, before anything is spent on the run, what would let every request fail.

        Raises:
            tuner.errors.SpecError: there is no such model.
            tuner.errors.EnvironmentProblem: its key, or its folder, is not there.
        """
        ...

    async def complete(self, request: Request) -> Reply | Waiting:
        """Answer ``request``; asked again for an answered position, give the same reply.

        Raises:
            ModelUnavailable: no reply can be had.
            tuner.errors.EnvironmentProblem: the machine stands in the way (a full disk).
        """
        ...

    async def price(self, request: Request) -> float | None:
        """The most that answering ``request`` can cost in USD; ``None`` if no price is known."""
        ...
