"""Completion: a model writes what a draft spec lacks, and it is tried before it is believed.

The reference function is compared with recorded results or with the baseline's own. Value ranges,
domain and tolerances are checked for sense and stay guesses. Knows neither the model nor a device.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from agents.brief import completion_messages
from agents.llm.port import (
    LanguageModel,
    ModelUnavailable,
    Request,
    Role,
    Waiting,
)
from agents.planning import overspent
from agents.reference_rules import reference_violation
from agents.replies import CompletionDraft, GeneratedCompletion, read_completion
from agents.settings import AgentSettings
from agents.step_journal import CallRecord, Steps
from agents.turns import Ask, accepted_answer, asker
from agents.verdict import Refused
from tuner.experiment.check import check
from tuner.experiment.fields import PythonFunction
from tuner.experiment.model import Argument, Experiment
from tuner.experiment.tolerances import default_tolerance

LOOSEST = 16.0
"""How many times its type's default a tolerance may be: a looser one would hide errors."""


class ReplyPending(ModelUnavailable):
    """A mailbox has no reply yet."""

    exit_code = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionTask:
    """What is to be completed. ``facts`` are of recorded values, ``guesses`` the draft's lines."""

    experiment: Experiment
    file: str
    facts: tuple[str, ...] = ()
    guesses: tuple[str, ...] = ()


Try = Callable[[int, Experiment], Awaitable[str | None]]
"""Runs the reference of an attempt's experiment; the message where it fails or differs."""


async def complete_spec(
    task: CompletionTask, ask: Ask, try_out: Try
) -> GeneratedCompletion | Refused:
    """The first completion that passes all checks, or the last refusal after all turns."""
    experiment = task.experiment
    first = completion_messages(
        experiment,
        facts=task.facts,
        guesses=task.guesses,
        inputs=[a.name for a in experiment.arguments if a.is_given],
    )

    async def judge(attempt: int, found: GeneratedCompletion) -> Refused | None:
        if problem := reference_violation(found.source):
            return Refused(by="The check of the Python file", detail=problem)
        if problems := list(_problems(experiment, found.draft)):
            return Refused(by="The check of the description", detail="\n".join(problems))
        completed = completed_experiment(experiment, found, task.file)
        if findings := _findings(experiment, completed):
            return Refused(by="The check of the spec", detail="\n".join(findings))
        if problem := await try_out(attempt, completed):
            return Refused(by="The comparison with the kernel's results", detail=problem)
        return None

    return await accepted_answer(first, ask, read_completion, judge)


def completed_experiment(
    experiment: Experiment, found: GeneratedCompletion, file: str
) -> Experiment:
    """The experiment with a completion; what the spec has given already is kept."""
    draft = found.draft
    reference = PythonFunction(file=file, text=found.source, function=draft.reference)

    def completed(argument: Argument) -> Argument:
        return replace(
            argument,
            range=argument.range or draft.ranges.get(argument.name),
            tolerance=argument.tolerance or draft.tolerances.get(argument.name),
        )

    return replace(
        experiment,
        reference=reference,
        arguments=tuple(map(completed, experiment.arguments)),
        shapes=replace(experiment.shapes, domain=draft.domain),
    )


def completion_asker(
    model: LanguageModel, experiment: Experiment, steps: Steps, agents: AgentSettings
) -> Ask:
    """Asks a model for a completion, within the budget.

    What it returns raises ``ModelUnavailable`` where the budget or the model gives no reply.
    """

    async def call(request: Request) -> CallRecord:
        if reason := overspent(agents, steps.spent, request, await model.price(request)):
            raise ModelUnavailable(f"the budget of the agents ({reason}) covers no further call")
        reply = await model.complete(request)
        if isinstance(reply, Waiting):
            raise ReplyPending(f"no reply yet to {reply.where}; run this again once it is there")
        return CallRecord(request=request.digest, reply=reply)

    return asker(steps, experiment, call, Role.COMPLETION)


def _problems(experiment: Experiment, draft: CompletionDraft) -> Iterator[str]:
    """What is wrong with ranges and tolerances."""
    arguments = {argument.name: argument for argument in experiment.arguments}
    for name, (low, high) in draft.ranges.items():
        if name not in arguments or not arguments[name].is_input:
            yield f"ranges: {name} is no input"
        elif not low <= high:
            yield f"ranges: {name}: {low} is above {high}"
    for name, bound in draft.tolerances.items():
        if name not in arguments or not arguments[name].is_output:
            yield f"tolerances: {name} is no output"
            continue
        usual = default_tolerance(arguments[name].dtype)
        if bound.rtol > LOOSEST * usual.rtol or bound.atol > LOOSEST * usual.atol:
            most = f"rtol {LOOSEST * usual.rtol:g}, atol {LOOSEST * usual.atol:g}"
            yield f"tolerances: {name} may have at most {most}"


def _findings(before: Experiment, after: Experiment) -> list[str]:
    """What the checks of any spec find that they did not find in the draft."""
    known = {(found.path, found.message) for found in check(before)}
    return [
        f"{'.'.join(map(str, found.path))}: {found.message}"
        for found in check(after)
        if (found.path, found.message) not in known
    ]


def open_guesses(text: str, lines: Sequence[int]) -> tuple[str, ...]:
    """These lines of a spec, counted from 1, as a model is shown them."""
    every = text.splitlines()
    return tuple(every[line - 1].strip() for line in lines)
