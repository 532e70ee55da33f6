"""A language model reached over the network, whatever its provider, through LiteLLM.

Owns retries, deadlines, fallbacks and the circuit breaker, and that no key leaves this module: keys
come in as a mapping, never from the environment, and are cut out of every message. LiteLLM is
imported on the first call, since that takes seconds.
"""

import asyncio
import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.llm.port import ModelUnavailable, Reply, Request, Usage

_TRANSIENT = (
    "APIConnectionError",
    "BadGatewayError",
    "InternalServerError",
    "RateLimitError",
    "ServiceUnavailableError",
    "Timeout",
)
_MESSAGE_LENGTH = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """How calls are made. Seconds for one try; ``first_pause`` doubles with each retry.

    After ``breaker`` requests in a row that no model answered, none is sent any more.
    ``temperature`` and ``seed`` are dropped where the provider has no such thing.
    """

    timeout: float = 600.0
    retries: int = 4
    first_pause: float = 2.0
    longest_pause: float = 60.0
    breaker: int = 3
    temperature: float | None = None
    seed: int | None = None
    base_url: str | None = None


@dataclass(slots=True)
class NetworkModel:
    """Answers through the first of ``models`` (LiteLLM ids) that works.

    ``keys`` holds API keys by their usual environment names, such as ``OPENAI_API_KEY``.
    """

    models: Sequence[str]
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    settings: NetworkSettings = field(default_factory=NetworkSettings)
    _failures: int = field(default=0, init=False)

    async def complete(self, request: Request) -> Reply:
        """The reply of the first model that gives one.

        Raises:
            ModelUnavailable: none does; the message has each model's reason and no key.
        """
        if self._failures >= self.settings.breaker:
            raise ModelUnavailable(
                f"{self._failures} requests in a row got no reply; none is sent any more"
            )
        reasons = []
        for model in self.models:
            answer = await self._try(model, request)
            if isinstance(answer, Reply):
                self._failures = 0
                return answer
            reasons.append(f"{model}: {answer}")
        self._failures += 1
        raise ModelUnavailable("; ".join(reasons) or "no model is named")

    async def _try(self, model: str, request: Request) -> Reply | str:
        """A reply, or why there is none after all retries."""
        litellm = await asyncio.to_thread(_litellm)
        reason = ""
        for retry in range(self.settings.retries + 1):
            try:
                return await asyncio.wait_for(
                    self._call(litellm, model, request), self.settings.timeout
                )
            except TimeoutError:
                reason = f"no reply within {self.settings.timeout:g} s"
                pause = self._pause(retry)
            except Exception as error:
                reason = self._clean(error)
                if type(error).__name__ not in _TRANSIENT:
                    return reason
                pause = max(self._pause(retry), _asked_pause(error))
            if retry < self.settings.retries:
                await asyncio.sleep(min(pause, self.settings.longest_pause))
        return reason

    async def _call(self, litellm: Any, model: str, request: Request) -> Reply:
        response = await litellm.acompletion(
            model=model,
            messages=[
                {"role": message.role, "content": message.content} for message in request.messages
            ],
            max_tokens=request.max_output_tokens,
            temperature=self.settings.temperature,
            seed=self.settings.seed,
            base_url=self.settings.base_url,
            api_key=self._key(litellm, model),
            timeout=self.settings.timeout,
            num_retries=0,
            max_retries=0,
            drop_params=True,
        )
        return _reply(litellm, model, response)

    def _key(self, litellm: Any, model: str) -> str | None:
        provider = str(litellm.get_llm_provider(model)[1])
        return self.keys.get(f"{provider.upper()}_API_KEY")

    def _pause(self, retry: int) -> float:
        """Exponential, with jitter so that several runs do not knock at once."""
        longest = min(self.settings.first_pause * 2.0**retry, self.settings.longest_pause)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it

    def _clean(self, error: Exception) -> str:
        """An error's first words on one line, without any key."""
        text = str(error)
        for key in sorted(self.keys.values(), key=len, reverse=True):
            if key:
                text = text.replace(key, "[key]")
        text = re.sub(r"(?i)\b(?:sk|key|bearer)[-_ ][\w*.-]{8,}", "[key]", text)
        return f"{type(error).__name__}: {' '.join(text.split())}"[:_MESSAGE_LENGTH]


def _litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks the network
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    return litellm


def _reply(litellm: Any, model: str, response: Any) -> Reply:
    if not response.choices:
        raise ValueError("the provider answered without a choice")
    choice = response.choices[0]
    reason: Literal["stop", "length", "other"] = (
        choice.finish_reason if choice.finish_reason in ("stop", "length") else "other"
    )
    usage = getattr(response, "usage", None)
    return Reply(
        text=choice.message.content or "",
        finish_reason=reason,
        model=str(response.model or model)[:200],
        usage=Usage(
            input_tokens=int(getattr(usage, "prompt_tokens", 0) or 0),
            output_tokens=int(getattr(usage, "completion_tokens", 0) or 0),
        ),
        cost_usd=_cost(litellm, model, response),
    )


def _cost(litellm: Any, model: str, response: Any) -> float:
    """The call's price by LiteLLM's list; 0 for a model that is not on it."""
    try:
        return max(0.0, float(litellm.completion_cost(response, model=model)))
    except Exception:
        return 0.0


def _asked_pause(error: Exception) -> float:
    """What the provider asked to wait, in seconds."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("retry-after", 0)))
    except ValueError:
        return 0.0
