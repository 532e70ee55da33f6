"""Model names and server addresses in a spec, and the secrets that they must not contain.

Run directories keep a copy of the spec and messages quote its lines, so it is not confidential.
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
"""No fragment: clients do not send it to the server."""


def _of_network(name: str) -> str:
    if name in ("auto", "none", "replay") or name.startswith(MAILBOX):
        raise ValueError(f"'{name}' serves all roles: give it as model and remove this")
    return name


ModelId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][!-~]*$", max_length=400)]
RoleModelId = Annotated[ModelId, AfterValidator(_of_network)]
"""A model of one role: only LiteLLM ids."""


def hidden(text: str) -> str:
    """``text`` with each character of a secret in an address replaced by a star."""
    return _SECRET.sub(lambda found: "*" * len(found[0]), text)


def check_address(given: object) -> object:
    """Pass a server address without a secret; raises ``ValueError`` otherwise."""
    if isinstance(given, str) and _SECRET.search(given):
        raise ValueError(
            f"{hidden(given)} contains a user, a password or a key, which run directories would "
            "keep: remove it, and set PROVIDER_API_KEY (for openai/… OPENAI_API_KEY) in the "
            "environment"
        )
    if isinstance(given, str) and not re.match(_ADDRESS, given):
        raise ValueError("is not a server address: write https://HOST or http://HOST:PORT/PATH")
    return given


Address = Annotated[str, Field(pattern=_ADDRESS, max_length=400), BeforeValidator(check_address)]
"""Address of the user's own server, without a secret."""
