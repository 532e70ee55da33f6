"""Hides secrets in the lines of a spec that messages quote, in time linear in their length.

No secret extends over white space or a quote: each is looked for in one word.
"""

import re
from collections.abc import Iterator

_WORD = re.compile(r"[^\s'\"]+")
_BETWEEN_WORDS = " '\""

_USER = re.compile(r"(?<=//)[^\s'\"]|(?<![^\s/'\":])[^\s/'\":]++:(?!//)[^\s'\"]")
"""Where, before the last ``@`` of a word, a user begins: after ``//``, or before a password."""

_HOST = re.compile(r"(?<=//)[^\s'\"#]")

_KEY = re.compile(
    r"(?<=[?&#;])(?>[\w.%-]*?(?:key|token|secret|pass|pwd|auth|cred|sig))[\w.%-]*+=[^\s&#'\"]++"
    r"|\bsk-[\w-]{6,}+",
    re.IGNORECASE,
)


def hidden(text: str) -> str:
    """``text`` with each character of a secret in an address replaced by a star."""
    characters = list(text)
    for start, end in _secrets(text):
        characters[start:end] = "*" * (end - start)
    return "".join(characters)


def hidden_part(text: str, start: int, end: int) -> str:
    """``hidden(text)[start:end]``, at the cost of the words there instead of all.

    Words at the edges are read as a whole, so that what is left of a secret there is hidden.
    """
    first = max(text.rfind(character, 0, start) for character in _BETWEEN_WORDS) + 1
    ends = (text.find(character, end) for character in _BETWEEN_WORDS)
    last = min((place for place in ends if place >= 0), default=len(text))
    return hidden(text[first:last])[start - first : end - first]


def has_secret(text: str) -> bool:
    """Whether ``text`` contains a secret in an address, or a key."""
    return any(_secrets(text))


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    """Where secrets start and end; they may overlap."""
    for word in _WORD.finditer(text):
        start, end = word.span()
        at = text.rfind("@", start, end)
        if at >= 0 and (user := _USER.search(text, start, at)):
            yield user.start(), at
        fragment = text.rfind("#", start, end - 1)
        if fragment >= 0 and (host := _HOST.search(text, start, fragment)):
            yield host.start(), end
    for key in _KEY.finditer(text):
        yield key.span()
