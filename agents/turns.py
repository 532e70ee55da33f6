"""Turns with a model: ask, read, judge, and after a failure ask again with the complaint quoted.

Shared by the roles whose answers are tried out. Knows neither what is asked nor how it is judged.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from agents.brief import complaint, repair_messages
from agents.llm.port import Message, Reply
from agents.planning import Ask
from agents.replies import READER, Unusable
from agents.verdict import Refused

T = TypeVar("T")

REPAIRS = 3
"""Repair turns after the first request."""

RE_ASKS = 1
"""How many unreadable replies in a row are asked for again."""


async def accepted_answer(
    first: tuple[Message, ...],
    ask: Ask,
    read: Callable[[Reply], T | Unusable],
    judge: Callable[[int, T], Awaitable[Refused | None]],
) -> T | Refused:
    """The first answer that ``judge`` does not refuse, or the last refusal after all turns.

    A repair turn holds the first request, the last answer and the complaint, and nothing else.
    """
    messages: Sequence[Message] = first
    reason = ""
    unreadable = 0
    attempt = 0
    while True:
        asked = await ask(attempt, tuple(messages), reason)
        found = read(asked.reply)
        if isinstance(found, Unusable):
            unreadable += 1
            refused: Refused | None = Refused(by=READER, detail=found.detail)
        else:
            unreadable = 0
            refused = await judge(attempt, found)
            if refused is None:
                return found
        assert refused is not None
        if attempt == REPAIRS or unreadable > RE_ASKS:
            return refused
        attempt += 1
        messages = repair_messages(first, asked.reply.text, refused.detail, by=refused.by)
        reason = complaint(refused.by, refused.detail)
