"""Which language model a run asks, from the spec, the command line and what lies beside the spec.

Owns the choice and the place of a run's transcript. What a model answers is :mod:`agents.llm`'s.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from agents.evaluator import StopRequested
from agents.llm.mailbox import Mailbox, check_mailbox
from agents.llm.network import NetworkModel, NetworkSettings, check_known
from agents.llm.port import REQUESTS, LanguageModel, ModelUnavailable, Reply, Request, Role, Waiting
from agents.llm.provider_settings import secret_values
from agents.llm.redaction import Redacting
from agents.llm.replay import Replay, Transcript, read_transcript
from agents.settings import MAILBOX, AgentSettings, agent_settings, with_agent_settings
from cluster.console import Doing
from cluster.driver import TICK_SECONDS
from cluster.search_run import StopReason
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.digest import kernel_digest
from tuner.experiment.load import problem_in
from tuner.experiment.model import Experiment
from tuner.experiment.problems import Problem, SpecProblems
from tuner.experiment.yaml_document import Path as DataPath
from tuner.files import write_whole

TRANSCRIPT = "transcript.jsonl"
UNANSWERED = "unanswered.json"


def transcript_beside(spec: Path, experiment: Experiment) -> Path:
    """Where a recorded transcript of a spec is looked for: one of its own for whole kernels."""
    agents = agent_settings(experiment)
    direct = agents is not None and agents.mode == "direct"
    return (
        spec.parent / f"transcript_{experiment.kernel.language}{'_direct' if direct else ''}.jsonl"
    )


def chosen(spec: Path, experiment: Experiment, wanted: str | None) -> str:
    """The model that a new run asks; ``none`` for a run without agents.

    Args:
        spec: the spec's file.
        experiment: what it says.
        wanted: what the command line says.

    Raises:
        ModelUnavailable: ``replay`` is wanted, and no transcript of this kernel is there.
        SpecError: a mailbox is wanted, and its folder not named.
    """
    agents = agent_settings(experiment)
    model = wanted or (agents.model if agents else "none")
    beside = transcript_beside(spec, experiment)
    if model == "auto":
        return "replay" if beside.is_file() and _fits(beside, experiment) else "none"
    if model == "replay":
        if not beside.is_file():
            raise ModelUnavailable(f"there is no transcript to replay: {beside} does not exist")
        if not _fits(beside, experiment):
            raise ModelUnavailable(f"{beside} was recorded for another kernel or experiment")
    if model == MAILBOX or not model.strip():
        raise SpecProblems.of([_of_model(spec, wanted, "a mailbox needs a folder: mailbox:DIR")])
    if model.startswith(MAILBOX):
        return f"{MAILBOX}{Path(model.removeprefix(MAILBOX)).absolute()}"
    return model


def check_models(spec: Path, experiment: Experiment, model: str, wanted: str | None) -> None:
    """Look up whom a run would ask, before it is begun; ``model`` is what :func:`chosen` says.

    Raises:
        SpecProblems: nobody knows some of the models.
        EnvironmentProblem: the mailbox cannot be made.
    """
    agents, problems = agent_settings(experiment) or AgentSettings(), list[Problem]()
    if model in ("none", "replay"):
        return
    if model.startswith(MAILBOX):
        try:
            check_mailbox(Path(model.removeprefix(MAILBOX)))
        except EnvironmentProblem as problem:
            raise EnvironmentProblem(str(_of_model(spec, wanted, str(problem)))) from None
        return
    others: dict[DataPath, str | None] = {("planner",): agents.planner}
    others |= {("generator",): agents.generator}
    others |= {("fallbacks", at): name for at, name in enumerate(agents.fallbacks)}
    try:
        check_known(model)
    except SpecError as error:
        problems.append(_of_model(spec, wanted, str(error)))
    for place, name in others.items():
        try:
            if name is not None:
                check_known(name)
        except SpecError as error:
            problems.append(problem_in(spec, ("agents", *place), str(error)))
    if problems:
        raise SpecProblems.of(problems)


def _of_model(spec: Path, wanted: str | None, message: str) -> Problem:
    """What is wrong with the model, where it is named: on the command line, or in the spec."""
    if wanted is not None:
        return Problem("--model", None, "", message)
    return problem_in(spec, ("agents", "model"), message)


def with_agents(experiment: Experiment, model: str) -> Experiment:
    """The experiment as agents work on it: its own template is left aside."""
    settings = replace(agent_settings(experiment) or AgentSettings(), model=model)
    return with_agent_settings(replace(experiment, template=None), settings)


def bring_transcript(spec: Path, experiment: Experiment, run: Path) -> None:
    """Copy the transcript that a run replays into it, so that a resume finds the same.

    Raises:
        EnvironmentProblem: it cannot be copied.
    """
    try:
        text = transcript_beside(spec, experiment).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(f"cannot copy the transcript: {error}") from None
    write_whole(run / TRANSCRIPT, text)


def open_model(
    run: Path,
    agents: AgentSettings,
    *,
    keys: Mapping[str, str],
    exit_when_waiting: bool,
    tell: Callable[[str], None],
) -> LanguageModel:
    """The model of a run directory. What it is asked and answers holds none of the keys.

    A mailbox is to ``tell`` what it waits for.

    Raises:
        SpecError: its transcript is missing or damaged.
        EnvironmentProblem: its mailbox cannot be made.
    """
    if agents.model == "replay":
        return Replay(read_transcript(run / TRANSCRIPT))
    secrets = secret_values(keys)
    if agents.model.startswith(MAILBOX):
        box = Path(agents.model.removeprefix(MAILBOX))
        mailbox = Mailbox(box, exit_when_waiting=exit_when_waiting, tell=tell)
        return Redacting(mailbox, secrets)
    own = {Role.PLANNING: agents.planner, Role.GENERATION: agents.generator}
    network = NetworkModel(
        models=(agents.model, *agents.fallbacks),
        roles={role: (model, *agents.fallbacks) for role, model in own.items() if model},
        keys=keys,
        settings=NetworkSettings(
            temperature=agents.temperature, seed=agents.seed, base_url=agents.base_url
        ),
    )
    return Redacting(network, secrets)


class StoppableModel:
    """Shows what a model is asked, and asks no more once an end was asked for.

    A request that gets no reply is kept beside the steps, so that a transcript which ends early can
    be answered further.
    """

    def __init__(
        self,
        model: LanguageModel,
        steps: Path,
        tell: Callable[[Doing], None],
        asked: Callable[[], StopReason | None],
    ) -> None:
        self._model = model
        self._steps = steps
        self._tell = tell
        self._asked = asked

    async def ready(self) -> None:
        """As the model says."""
        await self._model.ready()

    async def complete(self, request: Request) -> Reply | Waiting:
        """Pass the request on.

        Raises:
            StopRequested: an end was asked for before there was a reply.
        """
        step = request.position.step
        kept = self._steps / UNANSWERED
        why = f", since {request.complaint}" if request.complaint else ""
        again = f" (attempt {step.attempt + 1}{why})" if step.attempt else ""
        suffix = f"-d{step.draft}" if step.draft else ""
        self._tell(Doing(round=step.round, suffix=suffix, words=f"{step.role}{again}"))
        call = asyncio.ensure_future(self._model.complete(request))
        try:
            while self._asked() is None:
                if (await asyncio.wait([call], timeout=TICK_SECONDS))[0]:
                    kept.unlink(missing_ok=True)
                    return call.result()
            raise StopRequested
        except ModelUnavailable:
            write_whole(kept, REQUESTS.dump_json(request, indent=1).decode())
            raise
        finally:
            call.cancel()

    async def price(self, request: Request) -> float | None:
        """The model's."""
        return await self._model.price(request)


def _fits(path: Path, experiment: Experiment) -> bool:
    transcript: Transcript = read_transcript(path)
    return transcript.matches(experiment.name, kernel_digest(experiment.kernel))
