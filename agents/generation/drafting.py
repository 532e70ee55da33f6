"""Drafting: a template from a language model, repaired if need be, within a few turns.

An answer is read, its source checked, then compiled and run. Knows neither the model nor the
compiler.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from agents.brief import Brief, round_messages
from agents.generation.admission import refusal, usable_seeds
from agents.llm.port import Reply
from agents.replies import GeneratedTemplate, Suggestion, Unusable, read_template
from agents.settings import Mode
from agents.turns import Ask, accepted_answer
from agents.verdict import Admitted, Refused
from tuner.experiment.model import Template

Admit = Callable[[int, Template], Awaitable[Admitted | Refused]]
"""Compiles the corners of an attempt's template and runs one configuration."""


async def write_template(
    brief: Brief,
    suggestion: Suggestion,
    ask: Ask,
    admit: Admit,
    *,
    mode: Mode = "template",
    draft: int = 0,
    width: int = 1,
) -> GeneratedTemplate | Refused:
    """A template that follows the suggestion, or the last refusal after all turns.

    Seeds that are no configurations of it are left out.
    """
    experiment = brief.experiment
    role = "generation" if mode == "template" else "direct"
    first = round_messages(role, brief, suggestion=suggestion, draft=draft, width=width)

    def read(reply: Reply) -> GeneratedTemplate | Unusable:
        return read_template(reply, experiment.kernel.source.name, mode)

    async def judge(attempt: int, found: GeneratedTemplate) -> Refused | None:
        reason = refusal(experiment, found.template)
        if reason is not None:
            return Refused(by="The source check", detail=reason)
        verdict = await admit(attempt, found.template)
        return verdict if isinstance(verdict, Refused) else None

    found = await accepted_answer(first, ask, read, judge)
    if isinstance(found, Refused):
        return found
    return replace(found, seeds=usable_seeds(found.template, found.seeds))
