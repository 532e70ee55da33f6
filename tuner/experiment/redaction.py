"""How a spec names language models and where they are, and the secrets that it must not hold.

A spec is copied into each run's folder and its lines are shown in messages: what is in it is known.
Knows no model.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

MAILBOX = "mailbox:"

_SECRET = re.compile(
    r"(?<=//)[^\s'\"]+(?=@)"
    r"|(?<=//)[^\s'\"#]+#[^\s'\"]+"
    r"|[^\s/'\":]+:(?!//)[^\s@'\"]+(?=@)"
    r"|\bsk-[\w-]{6,}"
    r"|(?<=[?&#;])[\w.%-]*(?:key|token|secret|pass|pwd|auth|cred|sig)[\w.%-]*=[^\s&#'\"]+",
    re.IGNORECASE,
)
_ADDRESS = r"^https?://[!-\"$-~]+$"
"""No fragment: a server never sees one."""


def _of_network(name: str) -> str:
    if name in ("auto", "none", "replay") or name.startswith(MAILBOX):
        raise ValueError(f"'{name}' serves all roles: write it as model, and leave this out")
    return name


ModelId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][!-~]*$", max_length=400)]
RoleModelId = Annotated[ModelId, AfterValidator(_of_network)]
"""A model that may be one of several: LiteLLM's ids alone."""


def hidden(text: str) -> str:
    """``text`` with a star for each letter of a secret in an address."""
    return _SECRET.sub(lambda found: "*" * len(found[0]), text)


def check_address(given: object) -> object:
    """Refuse an address that holds a secret, or is none; raises ``ValueError`` saying why."""
    if isinstance(given, str) and _SECRET.search(given):
        raise ValueError(
            f"{hidden(given)} holds a user, a password or a key, and runs keep their specs: leave "
            "it out, and set the key as PROVIDER_API_KEY (for openai/… OPENAI_API_KEY) in the "
            "environment"
        )
    if isinstance(given, str) and not re.match(_ADDRESS, given):
        raise ValueError("is no address of a server: https://HOST or http://HOST:PORT/PATH")
    return given


Address = Annotated[str, Field(pattern=_ADDRESS, max_length=400), BeforeValidator(check_address)]
"""Where a server of one's own is, without a secret."""
