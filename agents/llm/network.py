"""Language models reached over the network, through LiteLLM.

Owns retries, deadlines, fallbacks, the circuit breaker and prices. Keys are passed in as a mapping,
never read from the environment, and are removed from every message. LiteLLM is imported on the
first call, since that takes seconds.
"""

import asyncio
import math
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import Any

from agents.llm.port import ModelUnavailable, Reply, Request, Role
from agents.llm.provider_reply import reply_of
from agents.llm.provider_settings import parameters, secret_values
from agents.llm.redaction import redacted
from tuner.errors import EnvironmentProblem, SpecError

_TRANSIENT = (
    "APIConnectionError",
    "BadGatewayError",
    "InternalServerError",
    "RateLimitError",
    "ServiceUnavailableError",
    "Timeout",
)
_DISPENSABLE = ("temperature", "seed")
_MESSAGE_LENGTH = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """How calls are made. Times in seconds; ``timeout`` is for one attempt.

    ``first_pause`` doubles with each retry. A provider that asks for more than ``longest_pause`` is
    not tried again; after ``breaker`` requests in a row without a reply no more are sent.
    ``temperature`` and ``seed`` are left out where the provider does not accept them; the reply
    says so.
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
    """Answers through the first of ``models`` (LiteLLM ids) that replies.

    ``roles`` names other models for a role. ``keys`` holds API keys by their usual environment
    names, such as ``OPENAI_API_KEY``, and settings such as ``AZURE_API_VERSION``.
    """

    models: Sequence[str]
    roles: Mapping[Role, Sequence[str]] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    settings: NetworkSettings = field(default_factory=NetworkSettings)
    _failures: int = field(default=0, init=False)
    _rejected: dict[str, set[str]] = field(default_factory=dict, init=False)

    async def complete(self, request: Request) -> Reply:
        """The reply of the first model that gives one.

        Raises:
            ModelUnavailable: None does; the message has each model's reason and no key.
        """
        if self._failures >= self.settings.breaker:
            raise ModelUnavailable(
                f"{self._failures} requests in a row got no reply; no more are sent"
            )
        reasons = []
        for model in self._chosen(request):
            answer = await self._try(model, request)
            if isinstance(answer, Reply):
                self._failures = 0
                return answer
            reasons.append(f"{model}: {answer}")
        self._failures += 1
        raise ModelUnavailable("; ".join(reasons) or "no model is named")

    async def ready(self) -> None:
        """Check every model's provider and key; sends nothing.

        Raises:
            SpecError: LiteLLM knows no provider of that name.
            EnvironmentProblem: The provider needs a key or an address, and there is none.
        """
        litellm = await asyncio.to_thread(_litellm)
        models = dict.fromkeys([*self.models, *chain.from_iterable(self.roles.values())])
        for model in models:
            check_known(model)
        for model in models:
            if lacking := self._lacking(litellm, model):
                raise EnvironmentProblem(f"{model} needs a key: set {' and '.join(lacking)}")

    async def price(self, request: Request) -> float | None:
        """The highest price of the role's models by LiteLLM's list; ``None`` if one has none."""
        litellm = await asyncio.to_thread(_litellm)
        prices = []
        for model in self._chosen(request):
            try:
                parts = litellm.cost_per_token(
                    model=model,
                    prompt_tokens=request.input_tokens,
                    completion_tokens=request.max_output_tokens,
                )
            except Exception:
                return None
            prices.append(float(sum(parts)))
        return max(prices, default=0.0)

    def _chosen(self, request: Request) -> Sequence[str]:
        return self.roles.get(request.position.step.role) or self.models

    async def _try(self, model: str, request: Request) -> Reply | str:
        """A reply, or why there is none after all retries."""
        litellm = await asyncio.to_thread(_litellm)
        from agents.llm.transport import refusals

        reason, retry, refused = "", 0, list[str]()
        refusals.set(refused)
        while True:
            try:
                return await asyncio.wait_for(
                    self._call(litellm, model, request), self.settings.timeout
                )
            except TimeoutError:
                reason, asked = f"no reply within {self.settings.timeout:g} s", 0.0
            except Exception as error:
                reason = self._clean(error)
                if self._drops(model, error):
                    continue
                if refused:  # another might be paid for and be no better
                    return refused[0]
                if type(error).__name__ not in _TRANSIENT:
                    return reason
                asked = _asked_pause(error)
            if asked > self.settings.longest_pause:
                return f"{reason} (the provider asks to wait {asked:.0f} s)"
            if retry >= self.settings.retries:
                return reason
            await asyncio.sleep(max(self._pause(retry), asked))
            retry += 1

    async def _call(self, litellm: Any, model: str, request: Request) -> Reply:
        wanted = {name: getattr(self.settings, name) for name in _DISPENSABLE}
        known = set(litellm.get_supported_openai_params(model) or _DISPENSABLE)
        known -= self._rejected.get(model, set())
        given = {name: value for name, value in wanted.items() if value is not None}
        response = await litellm.acompletion(
            model=model,
            messages=[
                {"role": message.role, "content": message.content} for message in request.messages
            ],
            max_tokens=request.max_output_tokens,
            timeout=self.settings.timeout,
            num_retries=0,
            max_retries=0,
            drop_params=True,
            **self._given(litellm, model),
            **{name: value for name, value in given.items() if name in known},
        )
        dropped = [f"{model} does not take {name}" for name in given if name not in known]
        return reply_of(litellm, model, response, tuple(dropped), secret_values(self.keys))

    def _drops(self, model: str, error: Exception) -> bool:
        """Whether the provider refused an optional parameter; it is left out from now on."""
        if type(error).__name__ not in ("BadRequestError", "UnsupportedParamsError"):
            return False
        before = self._rejected.setdefault(model, set())
        named = {
            name
            for name in _DISPENSABLE
            if name in str(error) and getattr(self.settings, name) is not None
        }
        new = named - before
        before |= named
        return bool(new)

    def _given(self, litellm: Any, model: str) -> dict[str, str]:
        """The provider's keys and address, as parameters of the call."""
        provider = str(litellm.get_llm_provider(model)[1])
        given: dict[str, str] = {}
        if self.settings.base_url is not None:
            given["api_base"] = self.settings.base_url
        for name, parameter in parameters(provider, _wanted(litellm, model)).items():
            if name in self.keys:
                given.setdefault(parameter, self.keys[name])
        return given

    def _lacking(self, litellm: Any, model: str) -> list[str]:
        """The variables that must be set before the model can be asked."""
        wanted = _wanted(litellm, model)
        keys = [name for name in wanted if name.endswith("_API_KEY")]
        bases = [name for name in wanted if name.endswith("_API_BASE")]
        needed = [keys]
        if keys and self.settings.base_url is None:
            needed.append(bases)
        return [
            " or ".join(names) for names in needed if names and not self.keys.keys() & set(names)
        ]

    def _pause(self, retry: int) -> float:
        """Exponential backoff with jitter, so that several runs do not retry at once."""
        longest = min(self.settings.first_pause * 2.0**retry, self.settings.longest_pause)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it

    def _clean(self, error: Exception) -> str:
        """The beginning of an error's message on one line, without keys."""
        text = redacted(str(error), secret_values(self.keys))
        return f"{type(error).__name__}: {' '.join(text.split())}"[:_MESSAGE_LENGTH]


def check_known(model: str) -> None:
    """Check that LiteLLM knows a model's provider; takes seconds the first time, sends nothing.

    Raises:
        SpecError: LiteLLM knows no provider of that name, or the id names a server, which would get
            the provider's key.
    """
    if "://" in model:
        raise SpecError(f"the model '{model}' names a server: write that as agents.base_url")
    litellm = _litellm()
    try:
        litellm.get_llm_provider(model)
    except Exception:
        raise SpecError(
            f"LiteLLM does not know the model '{model}': write PROVIDER/MODEL, such as "
            "openai/gpt-4o-mini"
        ) from None


def _litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks the network
    import litellm

    from agents.llm.transport import bounded_session

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.aclient_session = bounded_session()
    return litellm


def _wanted(litellm: Any, model: str) -> list[str]:
    """The variables that LiteLLM misses for a model."""
    return sorted(litellm.validate_environment(model)["missing_keys"])


def _asked_pause(error: Exception) -> float:
    """Seconds that the provider asks to wait: ``Retry-After`` as a number or a date."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    asked = str(headers.get("retry-after", ""))
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(asked).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0
