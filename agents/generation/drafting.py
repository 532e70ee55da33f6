"""Drafting: a template from a language model, repaired if need be, within a few turns.

An answer is read, its source checked, then compiled and run. Knows neither the model nor the
compiler.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agents.brief import Brief, generation_messages
from agents.generation.admission import refusal, usable_seeds
from agents.llm.port import Reply
from agents.planning import Ask, Limits
from agents.replies import GeneratedTemplate, Suggestion, Unusable, read_template
from agents.settings import Mode
from agents.turns import accepted_answer
from agents.verdict import Admitted, Refused
from tuner.experiment.model import Template
from tuner.trial import Value

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
    """A template that follows the suggestion, or the last refusal after all turns."""
    experiment = brief.experiment
    first = generation_messages(
        brief,
        suggestion,
        budget_tokens=limits.brief_tokens,
        mode=mode,
        draft=draft,
        width=width,
    )

    def read(reply: Reply) -> GeneratedTemplate | Unusable:
        return read_template(reply, experiment.kernel.source.name, mode)

    async def judge(attempt: int, found: GeneratedTemplate) -> Refused | None:
        reason = refusal(experiment, found.template)
        if reason is not None:
            return Refused(by="The source check", detail=reason)
        verdict = await admit(attempt, found.template)
        return verdict if isinstance(verdict, Refused) else None

    accepted = await accepted_answer(first, ask, read, judge)
    if isinstance(accepted, Refused):
        return accepted
    template, seeds = accepted.answer.template, accepted.answer.seeds
    return Drafted(template=template, seeds=usable_seeds(template, seeds), attempt=accepted.attempt)
