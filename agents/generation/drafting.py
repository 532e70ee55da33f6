"""Drafting: a template from a language model, repaired if need be, within a few turns.

Owns the turns: ask, read, check the source, compile and run, and after a failure ask again with the
complaint quoted. Knows neither the model nor the compiler.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agents.brief import Brief, complaint, generation_messages, repair_messages
from agents.generation.admission import refusal, usable_seeds
from agents.llm.port import Message
from agents.planning import Ask, Limits
from agents.replies import READER, GeneratedTemplate, Suggestion, Unusable, read_template
from agents.settings import Mode
from agents.verdict import Admitted, Refused
from tuner.experiment.model import Experiment, Template
from tuner.trial import Value

REPAIRS = 3
"""Repair turns after the first request."""

RE_ASKS = 1
"""How many unreadable replies in a row are asked for again."""

Admit = Callable[[int, Template], Awaitable[Admitted | Refused]]
"""Compiles the corners of an attempt's template and runs one configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """An admitted template, values to try first, and the number of the attempt."""

    template: Template
    seeds: tuple[dict[str, Value], ...]
    attempt: int


async def write_template(
    brief: Brief,
    suggestion: Suggestion,
    ask: Ask,
    admit: Admit,
    limits: Limits,
    *,
    mode: Mode = "template",
    draft: int = 0,
    width: int = 1,
) -> Drafted | Refused:
    """A template that follows the suggestion, or the last refusal after all turns.

    A repair turn holds the first request, the last answer and the complaint, and nothing else.
    """
    experiment = brief.experiment
    first = generation_messages(
        brief,
        suggestion,
        budget_tokens=limits.brief_tokens,
        mode=mode,
        draft=draft,
        width=width,
    )
    messages: Sequence[Message] = first
    reason = ""
    unreadable = 0
    attempt = 0
    while True:
        asked = await ask(attempt, tuple(messages), reason)
        found = read_template(asked.reply, experiment.kernel.source.name, mode)
        if isinstance(found, Unusable):
            unreadable += 1
            refused = Refused(by=READER, detail=found.detail)
        else:
            unreadable = 0
            verdict = await _judged(experiment, found, attempt, admit)
            if isinstance(verdict, Admitted):
                seeds = usable_seeds(found.template, found.seeds)
                return Drafted(template=found.template, seeds=seeds, attempt=attempt)
            refused = verdict
        if attempt == REPAIRS or unreadable > RE_ASKS:
            return refused
        attempt += 1
        messages = repair_messages(first, asked.reply.text, refused.detail, by=refused.by)
        reason = complaint(refused.by, refused.detail)


async def _judged(
    experiment: Experiment, found: GeneratedTemplate, attempt: int, admit: Admit
) -> Admitted | Refused:
    reason = refusal(experiment, found.template)
    if reason is not None:
        return Refused(by="The source check", detail=reason)
    return await admit(attempt, found.template)
