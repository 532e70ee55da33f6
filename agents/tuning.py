"""The tuning role: configurations that a model names between the rungs of a draft's search.

Advice that costs a call and trials, and never a round: a reply that cannot be used names nothing.
"""

from dataclasses import replace

from agents.brief import Brief, tuning_messages
from agents.halving import Seeds
from agents.planning import Task
from agents.replies import read_proposals
from agents.turns import Ask
from agents.verdict import Verdict
from tuner.experiment.model import Template
from tuner.results.landscape import landscape


async def proposals(
    brief: Brief, template: Template, verdict: Verdict, ask: Ask, rung: int, task: Task
) -> Seeds:
    """Values to try first on ``rung``, at most ``task.proposals``; the rung numbers the call.

    Args:
        brief: what the round began with.
        template: the draft.
        verdict: what its search found so far.
        ask: asks the role's model.
        rung: the rung that follows, from 1.
        task: limits the brief and the number of proposals.
    """
    found = landscape(template.parameters, verdict.observations)
    messages = tuning_messages(
        replace(brief, landscape=found),
        template,
        most=task.proposals,
        budget_tokens=task.limits.brief_tokens,
    )
    record = await ask(rung, messages, "")
    return read_proposals(record.reply)[: task.proposals]
