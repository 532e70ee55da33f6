"""The port to language models: a request in, a reply out.

Knows neither prompts nor kernels, nor how a model is reached.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import ConfigDict, Field, TypeAdapter

from tuner.errors import KernelwrightError

STRICT = ConfigDict(extra="forbid", strict=True, defer_build=True)

MAX_COUNT = 1_000_000_000
MAX_TEXT = 4_000_000

BYTES_PER_TOKEN = 3
"""Fewer than any tokenizer needs for code, so that an estimate is never too low."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class Role(StrEnum):
    """The roles that ask a model."""

    PLANNING = "planning"
    GENERATION = "generation"
    TUNING = "tuning"
    COMPLETION = "completion"


class ModelUnavailable(KernelwrightError):
    """No reply can be had, now or on another try."""

    exit_code = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKey:
    """A model call of a run. ``attempt`` counts repeated requests and repairs from 0."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    round: Count
    draft: Count
    role: Role
    attempt: Count

    def __str__(self) -> str:
        return f"r{self.round}-d{self.draft}-{self.role}-a{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The key of transcripts and mailboxes: a step of an experiment with one kernel.

    Briefs hold fresh measurements, so the text of a request never repeats; its position does.
    ``kernel`` is :func:`tuner.experiment.digest.kernel_digest`.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    experiment: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
    kernel: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    step: StepKey

    def __str__(self) -> str:
        return f"{self.experiment}-{self.kernel[:8]}-{self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    role: Literal["system", "user", "assistant"]
    content: str


_TOKENS_PER_MESSAGE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a model is asked: the whole conversation.

    ``complaint`` says in one line, for people, why the last reply was refused.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)
    position: Position
    messages: tuple[Message, ...]
    max_output_tokens: Annotated[int, Field(ge=1)] = 16_384
    complaint: Annotated[str, Field(max_length=1_000)] = ""

    @property
    def input_tokens(self) -> int:
        """An upper bound on the messages' tokens."""
        texts = (message.content.encode("utf-8", "replace") for message in self.messages)
        return sum(-(-len(text) // BYTES_PER_TOKEN) + _TOKENS_PER_MESSAGE for text in texts)

    @property
    def digest(self) -> str:
        """SHA-256 over every field but ``complaint``, as hex."""
        plain = REQUESTS.dump_python(self, mode="json", exclude={"complaint"})
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens read and written, as the provider counts them; 0 where it does not."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    input_tokens: Count = 0
    output_tokens: Count = 0


NO_USAGE = TokenUsage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's answer. With ``length`` it was cut at the limit.

    ``notes`` name parameters of the request that were ignored, and models without a known price.
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
    """There is no reply yet, and the caller chose not to wait. ``where`` names the request."""

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
        """Check, before anything is spent, what would make every request fail.

        Raises:
            tuner.errors.SpecError: There is no such model.
            tuner.errors.EnvironmentProblem: Its key or its folder is missing.
        """
        ...

    async def complete(self, request: Request) -> Reply | Waiting:
        """Answer ``request``. The same position always gets the same reply.

        Raises:
            ModelUnavailable: No reply can be had.
            tuner.errors.EnvironmentProblem: The machine prevents it, such as a full disk.
        """
        ...

    async def price(self, request: Request) -> float | None:
        """The most that ``request`` can cost in USD; ``None`` if no price is known."""
        ...
