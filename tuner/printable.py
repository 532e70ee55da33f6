"""Text that is safe and right to show: hidden characters as escapes, nouns behind their number.

A compiler's log, a kernel's name or a reply could otherwise move the cursor, hide text or reverse
its direction.
"""

import re

_HIDDEN = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e"
    "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\U000e0000-\\U000e0fff"
)
"""Controls but tab and newline, separators, zero-width and direction marks, surrogates, tags."""
_IN_TEXT, _IN_LINE = re.compile(f"[{_HIDDEN}]"), re.compile(f"[\\t\\n{_HIDDEN}]")


def printable(text: str) -> str:
    """Text of several lines, with everything hidden in it escaped."""
    return _IN_TEXT.sub(_escaped, text)


def printable_line(text: str) -> str:
    """As :func:`printable`, on one line."""
    return _IN_LINE.sub(_escaped, text)


def visible(text: str) -> str:
    """Text of several lines, without anything hidden in it: for readers that escapes mislead."""
    return _IN_TEXT.sub("", text)


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: "1 loop", "3 loops"; ``plural`` where that is not noun and s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
