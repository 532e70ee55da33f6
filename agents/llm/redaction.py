"""Removes secrets from text: known values, and what looks like a key.

Owns the patterns, and a wrapper that keeps secrets out of requests and replies.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agents.llm.port import LanguageModel, Reply, Request, Waiting

MARK = "[key]"

_SHORTEST = 6
"""Shorter values of variables named ``…_KEY`` are settings, not secrets."""

_FORMS = re.compile(
    r"\b(?:sk|pk|rk|key|xai|gsk|hf|ghp|gho|github_pat|glpat|xox[abp])[-_][A-Za-z0-9*._-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+"
    r"|(?<=[Bb]earer )[A-Za-z0-9*._~+/-]{8,}=*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` with ``secrets``, and everything that has the form of a key, replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MARK)
    return _FORMS.sub(MARK, text)


@dataclass(frozen=True, slots=True)
class Redacting:
    """A wrapper around a model: requests and replies hold no secrets."""

    model: LanguageModel
    secrets: tuple[str, ...] = field(repr=False)

    async def ready(self) -> None:
        """As the wrapped model."""
        await self.model.ready()

    async def complete(self, request: Request) -> Reply | Waiting:
        """The wrapped model's reply; raises what that raises."""
        reply = await self.model.complete(self._clean(request))
        if isinstance(reply, Waiting):
            return reply
        return replace(reply, text=redacted(reply.text, self.secrets))

    async def price(self, request: Request) -> float | None:
        """As the wrapped model."""
        return await self.model.price(self._clean(request))

    def _clean(self, request: Request) -> Request:
        messages = tuple(
            replace(message, content=redacted(message.content, self.secrets))
            for message in request.messages
        )
        return replace(
            request, messages=messages, complaint=redacted(request.complaint, self.secrets)
        )
