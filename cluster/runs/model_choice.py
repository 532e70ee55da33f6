"""Chooses the language model of a run: from the spec, the command line and a transcript beside it.

Owns the choice and the place of a run's transcript. The models themselves are in
:mod:`agents.llm`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from agents.evaluator import StopRequested
from agents.llm.mailbox import Mailbox, check_mailbox
from agents.llm.network import NetworkModel, NetworkSettings, check_known
from agents.llm.port import REQUESTS, LanguageModel, ModelUnavailable, Reply, Request, Role, Waiting
from agents.llm.provider_settings import secret_values
from agents.llm.redaction import Redacting
from agents.llm.replay import Header, Replay, Transcript, read_transcript, write_transcript
from agents.rounds_summary import STEPS
from agents.settings import MAILBOX, AgentSettings, agent_settings, with_agent_settings
from agents.step_journal import recorded_exchanges
from cluster.cli.console import Activity
from tuner.engine.engine import TICK_SECONDS, Engine, JournalSink
from tuner.engine.session import StopReason
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.digest import kernel_digest
from tuner.experiment.load import problem_in
from tuner.experiment.model import Experiment
from tuner.experiment.problems import Problem, SpecProblems
from tuner.experiment.yaml_document import Path as DataPath
from tuner.files import write_whole
from tuner.journal.facts import ModelCalled, Span, WorkBegan

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """How this process reaches models: API keys by name, and whether it waits for replies.

    ``endpoints`` are hosts that the user allows as the spec's ``base_url``.
    """

    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    endpoints: tuple[str, ...] = ()
    exit_when_waiting: bool = False


GIVE_BACK_SECONDS = 10.0
"""A model that answers sooner leaves the devices with the run: taking them again and preparing the
baseline anew takes about as long."""

TRANSCRIPT = "transcript.jsonl"
UNANSWERED = "unanswered.json"


def transcript_beside(spec: Path, experiment: Experiment) -> Path:
    """The path of a spec's recorded transcript; another one in direct mode.

    Named after the spec if there is such a file, else after the backend.
    """
    agents = agent_settings(experiment)
    mode = "_direct" if agents is not None and agents.mode == "direct" else ""
    own = spec.parent / f"transcript_{spec.stem}{mode}.jsonl"
    if own.is_file():
        return own
    return spec.parent / f"transcript_{experiment.kernel.language}{mode}.jsonl"


def choose_model(
    spec: Path, experiment: Experiment, wanted: str | None, beside: Path | None = None
) -> str:
    """The model of a new run; ``none`` for a run without agents.

    Args:
        spec: the spec's file.
        experiment: the spec's contents.
        wanted: the value of ``--model``.
        beside: the transcript to replay; by default that of the spec's runs.

    Raises:
        ModelUnavailable: ``replay`` is wanted, and there is no transcript of this kernel.
        SpecError: a mailbox is wanted, and no folder is named.
    """
    beside = beside or transcript_beside(spec, experiment)
    agents = agent_settings(experiment)
    model = wanted or (agents.model if agents else "none")
    if model == "auto":
        return "replay" if beside.is_file() and _matches(beside, experiment) else "none"
    if model == "replay":
        if not beside.is_file():
            raise ModelUnavailable(f"no transcript to replay: {beside} does not exist")
        if not _matches(beside, experiment):
            raise ModelUnavailable(f"{beside} was recorded for another kernel or experiment")
    if model == MAILBOX or not model.strip():
        raise SpecProblems.of(
            [_model_problem(spec, wanted, "a mailbox needs a folder: write mailbox:DIR")]
        )
    if model.startswith(MAILBOX):
        return f"{MAILBOX}{Path(model.removeprefix(MAILBOX)).absolute()}"
    return model


def check_models(spec: Path, experiment: Experiment, model: str, wanted: str | None) -> None:
    """Check, before a run begins, that its models exist; ``model`` is from :func:`choose_model`.

    Raises:
        SpecProblems: a model is unknown.
        EnvironmentProblem: the mailbox cannot be created.
    """
    agents, problems = agent_settings(experiment) or AgentSettings(), list[Problem]()
    if model in ("none", "replay"):
        return
    if model.startswith(MAILBOX):
        try:
            check_mailbox(Path(model.removeprefix(MAILBOX)))
        except EnvironmentProblem as problem:
            raise EnvironmentProblem(str(_model_problem(spec, wanted, str(problem)))) from None
        return
    others: dict[DataPath, str | None] = {("planner",): agents.planner}
    others |= {("generator",): agents.generator}
    others |= {("fallbacks", at): name for at, name in enumerate(agents.fallbacks)}
    try:
        check_known(model)
    except SpecError as error:
        problems.append(_model_problem(spec, wanted, str(error)))
    for place, name in others.items():
        try:
            if name is not None:
                check_known(name)
        except SpecError as error:
            problems.append(problem_in(spec, ("agents", *place), str(error)))
    if problems:
        raise SpecProblems.of(problems)


def check_endpoint(
    spec: Path, experiment: Experiment, model: str, allowed: Collection[str]
) -> None:
    """Check, before a run begins, that the user allows the host of the spec's ``base_url``.

    Raises:
        SpecProblems: not, and ``model`` is reached over the network.
    """
    agents = agent_settings(experiment) or AgentSettings()
    if message := _endpoint_problem(replace(agents, model=model), allowed):
        raise SpecProblems.of([problem_in(spec, ("agents", "base_url"), message)])


def _endpoint_problem(agents: AgentSettings, allowed: Collection[str]) -> str | None:
    offline = agents.model in ("none", "replay") or agents.model.startswith(MAILBOX)
    if offline or agents.base_url is None:
        return None
    parts = urlsplit(agents.base_url)
    if {parts.hostname, parts.netloc.lower()} & {host.lower() for host in allowed}:
        return None
    return (
        f"prompts and API keys would go to {parts.netloc}: if you trust that server, add "
        f"--allow-endpoint {parts.netloc}"
    )


def _model_problem(spec: Path, wanted: str | None, message: str) -> Problem:
    """A problem of the model, placed where it is named: on the command line, or in the spec."""
    if wanted is not None:
        return Problem("--model", None, "", message)
    return problem_in(spec, ("agents", "model"), message)


def with_agents(experiment: Experiment, model: str) -> Experiment:
    """The experiment for a run with agents: without its own template."""
    settings = replace(agent_settings(experiment) or AgentSettings(), model=model)
    return with_agent_settings(replace(experiment, template=None), settings)


def copy_transcript(spec: Path, experiment: Experiment, run: Path) -> None:
    """Copy the transcript into the run directory, so that a resume replays the same one.

    Raises:
        EnvironmentProblem: it cannot be copied.
    """
    try:
        text = transcript_beside(spec, experiment).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentProblem(f"cannot copy the transcript: {error}") from None
    write_whole(run / TRANSCRIPT, text)


def keep_transcript(run: Path, experiment: Experiment, model: str, where: str) -> None:
    """Keep what a model said as the transcript of a run directory, unless it was replayed.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    if model != "replay":
        header = Header(
            experiment=experiment.name,
            kernel=kernel_digest(experiment.kernel),
            made=f"by {model.partition(':')[0]} {where}",
        )
        write_transcript(run / TRANSCRIPT, header, recorded_exchanges(run / STEPS))


def open_model(
    run: Path, agents: AgentSettings, access: ModelAccess, tell: Callable[[str], None]
) -> LanguageModel:
    """Open the model of a run directory. Keys are redacted from requests and replies.

    ``tell`` shows which reply a mailbox waits for.

    Raises:
        SpecError: the transcript is missing or damaged, or the user does not allow the host of the
            spec's ``base_url``.
        EnvironmentProblem: the mailbox cannot be created, or is gone since the run began.
    """
    if agents.model == "replay":
        return Replay(read_transcript(run / TRANSCRIPT))
    if message := _endpoint_problem(agents, access.endpoints):
        raise SpecError(f"agents.base_url: {message}")
    secrets = secret_values(access.keys)
    if agents.model.startswith(MAILBOX):
        box = Path(agents.model.removeprefix(MAILBOX))
        if not box.is_dir() and any((run / STEPS).glob("*")):
            raise EnvironmentProblem(
                f"the mailbox {box} is gone: make the folder again, or a link to where it is now"
            )
        mailbox = Mailbox(box, exit_when_waiting=access.exit_when_waiting, tell=tell)
        return Redacting(mailbox, secrets)
    own = {Role.PLANNING: agents.planner, Role.GENERATION: agents.generator}
    network = NetworkModel(
        models=(agents.model, *agents.fallbacks),
        roles={role: (model, *agents.fallbacks) for role, model in own.items() if model},
        keys=access.keys,
        settings=NetworkSettings(
            temperature=agents.temperature, seed=agents.seed, base_url=agents.base_url
        ),
    )
    return Redacting(network, secrets)


class StoppableModel:
    """A model whose calls are shown, journalled, and cancelled when the run is asked to stop.

    A request without a reply is kept beside the steps, so that a short transcript can be extended.
    While a call lasts, the engine's devices may be given back.

    Args:
        model: is asked.
        steps: the folder of the run's steps.
        tell: shows what is asked.
        asked: whether an end was asked for.
        engine: numbers the calls, and has the devices.
        journal: the run's own.
        gives_back: whether devices are given back now, if the model takes its time.
    """

    def __init__(
        self,
        model: LanguageModel,
        steps: Path,
        tell: Callable[[Activity], None],
        asked: Callable[[], StopReason | None],
        engine: Engine,
        journal: JournalSink,
        gives_back: Callable[[], bool] = lambda: False,
    ) -> None:
        self._model = model
        self._steps = steps
        self._tell = tell
        self._asked = asked
        self._engine = engine
        self._journal = journal
        self._gives_back = gives_back

    async def ready(self) -> None:
        """Raise if the model cannot be asked."""
        await self._model.ready()

    async def complete(self, request: Request) -> Reply | Waiting:
        """Pass the request on.

        Raises:
            StopRequested: the run was asked to stop before there was a reply.
        """
        step = request.position.step
        kept = self._steps / UNANSWERED
        why = f", since {request.complaint}" if request.complaint else ""
        again = f" (attempt {step.attempt + 1}{why})" if step.attempt else ""
        suffix = f"-d{step.draft}" if step.draft else ""
        self._tell(Activity(round=step.round, suffix=suffix, words=f"{step.role}{again}"))
        work, began = self._engine.work_id(), time.time()
        self._engine.append(self._journal, WorkBegan(work=work, task="model"))
        call = asyncio.ensure_future(self._model.complete(request))
        try:
            while self._asked() is None:
                if (await asyncio.wait([call], timeout=TICK_SECONDS))[0]:
                    kept.unlink(missing_ok=True)
                    reply = call.result()
                    self._called(work, str(step), began, reply)
                    return reply
                if time.time() - began >= GIVE_BACK_SECONDS and self._gives_back():
                    await self._engine.give_back(self._journal, "given back while a model is asked")
            raise StopRequested
        except ModelUnavailable:
            self._called(work, str(step), began, None)
            write_whole(kept, REQUESTS.dump_json(request, indent=1).decode())
            raise
        finally:
            call.cancel()

    def _called(self, work: int, step: str, began: float, answer: Reply | Waiting | None) -> None:
        """Journal a call of the model: its step, result, tokens and cost, and none of its text."""
        reply = answer if isinstance(answer, Reply) else Reply(text="")
        fact = ModelCalled(
            work=work,
            step=step,
            model=reply.model,
            result="unavailable" if answer is None else answer.kind,
            input_tokens=reply.usage.input_tokens,
            output_tokens=reply.usage.output_tokens,
            cost_usd=reply.cost_usd,
            span=Span(worker=reply.model or "model", began=began, ended=time.time()),
        )
        self._engine.append(self._journal, fact)
        _log.info("%s: %s%s", step, fact.result, f" by {fact.model}" if fact.model else "")

    async def price(self, request: Request) -> float | None:
        """The highest price of a request in USD; ``None`` if unknown."""
        return await self._model.price(request)


def _matches(path: Path, experiment: Experiment) -> bool:
    transcript: Transcript = read_transcript(path)
    return transcript.matches(experiment.name, kernel_digest(experiment.kernel))
