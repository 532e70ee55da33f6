"""What the models of a run were asked and what that cost, call by call, by role and by round.

A pure function of the recorded exchanges, so a resumed run's account is that of all its processes.
"""

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agents.llm.replay import Exchange

_COLUMNS = "step model finish_reason input_tokens output_tokens cost_usd notes".split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Calls, tokens read and written, and US dollars by the price list, of one role or round."""

    name: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float

    def __str__(self) -> str:
        calls = "call" if self.calls == 1 else "calls"
        return (
            f"{self.name}: {self.calls} {calls}, {self.input_tokens} tokens read, "
            f"{self.output_tokens} written, {self.cost_usd:.4f} USD"
        )


def by_role(exchanges: Iterable[Exchange]) -> tuple[Sum, ...]:
    """A sum for each role, in the order of first calls."""
    return _sums(exchanges, lambda exchange: str(exchange.step.role))


def by_round(exchanges: Iterable[Exchange]) -> tuple[Sum, ...]:
    """A sum for each round."""
    return _sums(exchanges, lambda exchange: f"round {exchange.step.round}")


def notes_of(exchanges: Iterable[Exchange]) -> tuple[str, ...]:
    """What the adapters had to say, each once: parameters left out, prices not known."""
    return tuple(dict.fromkeys(note for one in exchanges for note in one.reply.notes))


def calls_csv(exchanges: Iterable[Exchange]) -> str:
    """A row for each call."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for exchange in exchanges:
        reply = exchange.reply
        writer.writerow(
            [
                exchange.step,
                _harmless(reply.model),
                reply.finish_reason,
                reply.usage.input_tokens,
                reply.usage.output_tokens,
                reply.cost_usd,
                _harmless("; ".join(reply.notes)),
            ]
        )
    return text.getvalue()


def _harmless(text: str) -> str:
    """A provider's words as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _sums(exchanges: Iterable[Exchange], key: Callable[[Exchange], str]) -> tuple[Sum, ...]:
    groups: dict[str, list[Exchange]] = {}
    for exchange in exchanges:
        groups.setdefault(key(exchange), []).append(exchange)
    return tuple(
        Sum(
            name=name,
            calls=len(group),
            input_tokens=sum(one.reply.usage.input_tokens for one in group),
            output_tokens=sum(one.reply.usage.output_tokens for one in group),
            cost_usd=sum(one.reply.cost_usd for one in group),
        )
        for name, group in groups.items()
    )
