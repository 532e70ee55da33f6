"""What the models of a run were asked and what it cost: by role, by round and call by call.

Pure functions of the recorded calls, so a resumed run counts the calls of all its processes.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable

from agents.llm.replay import Exchange
from agents.step_journal import CallTotals

_COLUMNS = "step model finish_reason input_tokens output_tokens cost_usd notes".split()


def by_role(exchanges: Iterable[Exchange]) -> dict[str, CallTotals]:
    """Totals per role, in the order of first calls."""
    return _totals(exchanges, lambda exchange: str(exchange.step.role))


def by_round(exchanges: Iterable[Exchange]) -> dict[str, CallTotals]:
    """Totals per round, as ``round 1`` and so on."""
    return _totals(exchanges, lambda exchange: f"round {exchange.step.round}")


def notes_of(exchanges: Iterable[Exchange]) -> tuple[str, ...]:
    """The replies' notes, each once: parameters left out, prices not known."""
    return tuple(dict.fromkeys(note for one in exchanges for note in one.reply.notes))


def calls_csv(exchanges: Iterable[Exchange]) -> str:
    """A CSV table with one row per call."""
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
    """A provider's text as a cell that no spreadsheet runs as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _totals(exchanges: Iterable[Exchange], key: Callable[[Exchange], str]) -> dict[str, CallTotals]:
    totals: dict[str, CallTotals] = defaultdict(CallTotals)
    for exchange in exchanges:
        totals[key(exchange)] = totals[key(exchange)].after(exchange.reply)
    return dict(totals)
