"""A provider's response as a reply: bounded, valid Unicode, priced, without keys.

A response is untrusted: text, encoding and numbers may be anything.
"""

import math
from collections.abc import Iterable
from typing import Any, Literal

from agents.llm.port import MAX_COUNT, MAX_TEXT, Reply, TokenUsage
from agents.llm.redaction import redacted


def reply_of(
    litellm: Any, model: str, response: Any, notes: tuple[str, ...], secrets: Iterable[str]
) -> Reply:
    """The reply in a response of LiteLLM.

    Raises:
        ValueError: It has none.
    """
    if not response.choices:
        raise ValueError("the provider answered without a choice")
    choice = response.choices[0]
    text = _plain(redacted(choice.message.content or "", secrets))
    reason: Literal["stop", "length", "other"] = (
        choice.finish_reason if choice.finish_reason in ("stop", "length") else "other"
    )
    usage = getattr(response, "usage", None)
    cost = _cost(litellm, model, response)
    if cost is None:
        notes = (*notes, f"no price is known for {model}: its calls count 0 USD")
    return Reply(
        text=text[:MAX_TEXT],
        finish_reason="length" if len(text) > MAX_TEXT else reason,
        model=_plain(redacted(str(response.model or model), secrets))[:200],
        usage=TokenUsage(
            input_tokens=_count(getattr(usage, "prompt_tokens", 0)),
            output_tokens=_count(getattr(usage, "completion_tokens", 0)),
        ),
        cost_usd=cost or 0.0,
        notes=notes,
    )


def _cost(litellm: Any, model: str, response: Any) -> float | None:
    """The call's price by LiteLLM's list; ``None`` for a model that is missing there."""
    try:
        cost = float(litellm.completion_cost(response, model=model))
    except Exception:
        return None
    return cost if math.isfinite(cost) and cost >= 0 else None


def _count(value: object) -> int:
    return min(max(value, 0), MAX_COUNT) if isinstance(value, int) else 0


def _plain(text: str) -> str:
    """The text as valid Unicode: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
