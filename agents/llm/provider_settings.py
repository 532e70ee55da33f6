"""The variables by which LiteLLM's providers are given keys and settings, and what each becomes.

Some providers want several. Owns which are no secrets, and the parameter of a call that stands for
each. Imports nothing heavy, and reads no environment: it is told.
"""

import re
from collections.abc import Iterable, Mapping

_USUAL = re.compile(r"_API_(KEY|TOKEN|BASE|VERSION)$")
_SETTING = re.compile(r"_API_(BASE|VERSION)$|^AWS_REGION_NAME$|^VERTEXAI_(PROJECT|LOCATION)$")
_AWS = {
    "AWS_ACCESS_KEY_ID": "aws_access_key_id",
    "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
    "AWS_SESSION_TOKEN": "aws_session_token",
    "AWS_REGION_NAME": "aws_region_name",
}
_MORE: Mapping[str, Mapping[str, str]] = {
    "bedrock": {**_AWS, "AWS_BEARER_TOKEN_BEDROCK": "api_key"},
    "sagemaker": _AWS,
    "vertex_ai": {
        "VERTEXAI_PROJECT": "vertex_project",
        "VERTEXAI_LOCATION": "vertex_location",
        "GOOGLE_APPLICATION_CREDENTIALS": "vertex_credentials",
    },
}


def is_setting(name: str) -> bool:
    """Whether a variable tells a provider something that is no secret: an address, a region."""
    return _SETTING.search(name) is not None


def secret_values(keys: Mapping[str, str]) -> tuple[str, ...]:
    """The values that nobody may see."""
    return tuple(value for name, value in keys.items() if not is_setting(name))


def parameters(provider: str, named: Iterable[str]) -> dict[str, str]:
    """By variable, the parameter of a call that it becomes; the first that is set counts.

    Args:
        provider: as LiteLLM calls it.
        named: the variables that LiteLLM says the provider wants.
    """
    prefix = provider.upper()
    usual = [*named, *(f"{prefix}_API_{what}" for what in ("KEY", "BASE", "VERSION"))]
    found = {name: _usual(match[1]) for name in usual if (match := _USUAL.search(name))}
    return {**found, **_MORE.get(provider, {})}


def _usual(what: str) -> str:
    return "api_key" if what == "TOKEN" else f"api_{what.lower()}"
