"""The environment variables of LiteLLM's providers, and the call parameters that they become.

Owns which of them are no secrets. Imports nothing heavy and reads no environment.
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
    """Whether a variable is a setting and no secret, such as an address or a region."""
    return _SETTING.search(name) is not None


def secret_values(keys: Mapping[str, str]) -> tuple[str, ...]:
    """The values that are secrets."""
    return tuple(value for name, value in keys.items() if not is_setting(name))


def parameters(provider: str, named: Iterable[str]) -> dict[str, str]:
    """The call parameter that each variable becomes; the first that is set is used.

    Args:
        provider: LiteLLM's name of it.
        named: The variables that LiteLLM names for the provider.
    """
    prefix = provider.upper()
    usual = [*named, *(f"{prefix}_API_{what}" for what in ("KEY", "BASE", "VERSION"))]
    found = {
        name: "api_key" if match[1] == "TOKEN" else f"api_{match[1].lower()}"
        for name in usual
        if (match := _USUAL.search(name))
    }
    return {**found, **_MORE.get(provider, {})}
