"""Turns with a model: ask, read, judge, and after a failure ask again with the complaint quoted.

Shared by the roles that may be asked again. Knows neither what is asked nor how it is judged.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from agents.brief import complaint, repair_messages
from agents.llm.port import Message, Position, Reply, Request, Role, StepKey
from agents.replies import READER, Unusable
from agents.step_journal import CALLS, CallRecord, Steps
from agents.verdict import Refused
from tuner.experiment.digest import kernel_digest
from tuner.experiment.model import Experiment

T = TypeVar("T")

REPAIRS = 3
"""Repair turns after the first request."""

RE_ASKS = 1
"""How many unreadable replies in a row are asked for again."""


Ask = Callable[[int, tuple[Message, ...], str], Awaitable[CallRecord]]
"""Asks the role's model: attempt, messages, and the complaint about the last reply, if any."""


def asker(
    steps: Steps,
    experiment: Experiment,
    call: Callable[[Request], Awaitable[CallRecord]],
    role: Role,
    *,
    round_number: int = 0,
    draft: int = 0,
) -> Ask:
    """Asks a role's model by ``call``, each attempt once: what it answered is a step."""

    async def ask(attempt: int, messages: tuple[Message, ...], complaint: str) -> CallRecord:
        step = StepKey(round=round_number, draft=draft, role=role, attempt=attempt)
        request = Request(
            position=Position(
                experiment=experiment.name, kernel=kernel_digest(experiment.kernel), step=step
            ),
            messages=messages,
            complaint=complaint,
        )
        return await steps.take(str(step), CALLS, lambda: call(request))

    return ask


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
