"""The settings of the agents: the section ``agents`` of a spec.

A spec is copied into each run's folder and its lines are shown in messages, so an address in it
must hold no secret. Imports no model.
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from tuner.errors import SpecError
from tuner.experiment.contents import STRICT, Count, Seconds
from tuner.experiment.fields import OneOrMany
from tuner.experiment.model import Experiment
from tuner.experiment.redaction import has_secret, hidden
from tuner.files import first_problem

MAILBOX = "mailbox:"

Mode = Literal["template", "direct"]
"""Whether drafts are templates with parameters, or whole kernels."""

_ADDRESS = r"^https?://[!-\"$-~]+$"
"""No fragment: a server never sees one."""


def _litellm_id(name: str) -> str:
    if name in ("auto", "none", "replay") or name.startswith(MAILBOX):
        raise ValueError(f"'{name}' serves all roles: write it as model, and leave this out")
    return name


def _address(given: object) -> object:
    if isinstance(given, str) and has_secret(given):
        raise ValueError(
            f"{hidden(given)} holds a user, a password or a key, and runs keep their specs: leave "
            "it out, and set the key as PROVIDER_API_KEY (for openai/… OPENAI_API_KEY) in the "
            "environment"
        )
    if isinstance(given, str) and not re.match(_ADDRESS, given):
        raise ValueError("is no address of a server: https://HOST or http://HOST:PORT/PATH")
    return given


ModelId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][!-~]*$", max_length=400)]
RoleModelId = Annotated[ModelId, AfterValidator(_litellm_id)]
Address = Annotated[str, Field(pattern=_ADDRESS, max_length=400), BeforeValidator(_address)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Who writes templates, and what that may cost over the whole run."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: ModelId = "auto"
    """Who writes templates: `auto`, `replay`, `none`, `mailbox:DIR` or a LiteLLM model id."""
    fallbacks: Annotated[tuple[RoleModelId, ...], OneOrMany(0, 8)] = ()
    """Model ids to ask in order where `model` gives no reply."""
    planner: RoleModelId | None = None
    """Model id for the planning role."""
    generator: RoleModelId | None = None
    """Model id for the generation role."""
    base_url: Address | None = None
    """Address of your own server. It must hold no key; `run` needs `--allow-endpoint HOST`."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature passed to the model."""
    seed: Annotated[int, Field(ge=0, le=2**31)] | None = None
    """Sampling seed passed to the model."""
    rounds: Annotated[int, Field(ge=1, le=100)] = 5
    """Rounds at most."""
    patience: Annotated[int, Field(ge=1, le=100)] = 2
    """Rounds in a row without a gain that end the run."""
    max_cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    """Money for all calls of the run."""
    max_calls: Annotated[int, Field(ge=0)] = 40
    """Calls of the run."""
    max_tokens: Count | None = None
    """Tokens read and written by all calls of the run."""
    seconds: Seconds | None = None
    """Time of all agent steps, in seconds."""
    width: Annotated[int, Field(ge=1, le=8)] = 1
    """Drafts per round. Successive halving drops the slower half after each rung."""
    proposals: Annotated[int, Field(ge=0, le=10)] = 0
    """Configurations that a model may name for a draft between two rungs; 0 asks for none. Needs
    `width` of 2 or more."""
    mode: Mode = "template"
    """`template` asks for templates; `direct` for whole kernels without parameters (the
    ablation)."""
    overlap: bool = False
    """Search the best template further while a model is asked. Those trials are not counted in the
    search's budget."""


SECTIONS = {"agents": AgentSettings}
"""The sections of a spec that the domain does not know."""

_SETTINGS: TypeAdapter[AgentSettings] = TypeAdapter(AgentSettings)


def agent_settings(experiment: Experiment) -> AgentSettings | None:
    """The settings of an experiment's agents; ``None`` if it has no section ``agents``.

    Raises:
        SpecError: They are not valid.
    """
    if experiment.agents is None:
        return None
    try:
        return _SETTINGS.validate_json(json.dumps(experiment.agents))
    except ValidationError as error:
        raise SpecError(f"agents: {first_problem(error)}") from error


def with_agent_settings(experiment: Experiment, settings: AgentSettings) -> Experiment:
    """The experiment with these settings of its agents."""
    plain = _SETTINGS.dump_python(settings, mode="json", exclude_defaults=True)
    return replace(experiment, agents=plain)
