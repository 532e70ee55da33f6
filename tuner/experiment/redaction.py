"""Hides secrets in the lines of a spec that messages quote."""

import re

_SECRET = re.compile(
    r"(?<=//)[^\s'\"]+(?=@)"
    r"|(?<=//)[^\s'\"#]+#[^\s'\"]+"
    r"|[^\s/'\":]+:(?!//)[^\s@'\"]+(?=@)"
    r"|\bsk-[\w-]{6,}"
    r"|(?<=[?&#;])[\w.%-]*(?:key|token|secret|pass|pwd|auth|cred|sig)[\w.%-]*=[^\s&#'\"]+",
    re.IGNORECASE,
)


def hidden(text: str) -> str:
    """``text`` with each character of a secret in an address replaced by a star."""
    return _SECRET.sub(lambda found: "*" * len(found[0]), text)


def has_secret(text: str) -> bool:
    """Whether ``text`` contains a secret in an address, or a key."""
    return _SECRET.search(text) is not None
