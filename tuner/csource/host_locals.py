"""What a function's code before a place sets a local variable to, as text."""

import re

from tuner.csource.host_program import closing


def definition(name: str, local: str) -> str | None:
    """What a variable was last set to, as written."""
    pattern = re.compile(rf"(?<![\w.>])(?<!->){re.escape(name)}\s*(=(?!=)|[({{])")
    for match in reversed(list(pattern.finditer(local))):
        declared = re.search(r"(?:\w|[*&>])\s+[*&]*$|[\w>)]\s*,\s*$", local[: match.start()][-80:])
        if match[1] == "=":
            return local[match.end() : _statement_end(local, match.end())].strip()
        if declared and not re.search(r"\breturn\s+$", local[: match.start()][-10:]):
            end = closing(local, match.end() - 1)
            if end is not None:
                return local[match.end() : end].strip()
    return None


def _statement_end(code: str, start: int) -> int:
    """Where an initialiser ends: at a comma or semicolon outside brackets."""
    place, depth = start, 0
    while place < len(code):
        mark = code[place]
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        if depth < 0 or (mark in ";," and depth == 0 and not _in_template(code[start:place])):
            break
        place += 1
    return place


def _in_template(text: str) -> bool:
    return text.count("<") > text.count(">") and re.search(r"\w<", text) is not None


def member(name: str, axis: str, local: str) -> str | None:
    """What a member of a variable was last set to, as written."""
    found = re.findall(rf"\b{re.escape(name)}\s*\.\s*{axis}\s*=(?!=)\s*([^;]+);", local)
    return found[-1] if found else None


def varies(name: str, local: str) -> bool:
    """Whether a variable is stepped, as a loop's counter is."""
    word = re.escape(name)
    after = rf"(?<![\w.>]){word}\s*(?:\+\+|--|(?:[-+*/|&]|<<|>>)=)"
    return re.search(rf"{after}|(?:\+\+|--)\s*{word}\b", local) is not None
