"""The tuning role: configurations that a model names between the rungs of a draft's search.

Advice that costs a call and trials, and never a round: a reply that cannot be used names nothing.
"""

from dataclasses import replace

from agents.brief import Brief, round_messages
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
    """Values to try first on ``rung``, as many as the settings allow; the rung numbers the call.

    Args:
        brief: what the round began with.
        template: the draft.
        verdict: what its search found so far.
        ask: asks the role's model.
        rung: the rung that follows, from 1.
        task: limits the number of proposals.
    """
    found = landscape(template.parameters, verdict.observations)
    known, most = replace(brief, landscape=found), task.agents.proposals
    messages = round_messages("tuning", known, template=template, most=most)
    record = await ask(rung, messages, "")
    return read_proposals(record.reply)[:most]
