"""Fenced blocks of a model's reply, as Markdown defines them.

Handles CRLF, longer fences around shorter ones, tildes, and blocks that are never closed.
"""

import re
from dataclasses import dataclass

_OPENING = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block; not ``closed`` if the text ends inside it.

    ``language`` is the info string's first word in lower case, or empty; ``line`` that of the
    opening fence, from 1.
    """

    language: str
    text: str
    line: int
    closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The blocks of a reply, and the text outside them."""

    blocks: tuple[Block, ...]
    outside: str


def fenced(text: str) -> Fenced:
    """The blocks of a text. A fence is closed by one of its kind that is at least as long."""
    blocks: list[Block] = []
    outside: list[str] = []
    opened: tuple[str, str, int] | None = None
    inside: list[str] = []
    text = text.removeprefix("\ufeff")
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if opened is None:
            match = _OPENING.fullmatch(line)
            if match is None:
                outside.append(line)
            else:
                opened = match["fence"], match["info"], number
                inside = []
        elif _closes(line, opened[0]):
            blocks.append(_block(opened, inside, closed=True))
            opened = None
        else:
            inside.append(line)
    if opened is not None:
        blocks.append(_block(opened, inside, closed=False))
    return Fenced(blocks=tuple(blocks), outside="\n".join(outside))


def _closes(line: str, fence: str) -> bool:
    bare = line.strip(" \t")
    return len(bare) >= len(fence) and not bare.strip(fence[0])


def _block(opened: tuple[str, str, int], inside: list[str], *, closed: bool) -> Block:
    _, info, line = opened
    words = info.strip().strip("{}").lstrip(".").split()
    language = words[0].lower().rstrip("}") if words else ""
    text = "".join(f"{row}\n" for row in inside)
    return Block(language=language, text=text, line=line, closed=closed)
