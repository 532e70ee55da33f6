"""A draft spec with what a model completed written into its text; everything else is kept.

Edits the lines that a completion changes and marks what was verified. Comments, order and layout
of all other lines stay as they are.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.experiment.contents import Tolerance
from tuner.experiment.yaml_document import Document, Path, parse

_COMMENTED_REFERENCE = re.compile(r"\s*#\s*reference:")
_COMMENT_GOES_ON = re.compile(r"\s*#\s{5,}\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedFields:
    """What is written into a spec.

    ``reference`` is ``FILE.py:FUNCTION``; ``ranges`` and ``tolerances`` are by argument.
    ``verified`` says what the reference was compared with, empty if with nothing.
    """

    reference: str
    domain: Sequence[str]
    ranges: Mapping[str, tuple[float, float]]
    tolerances: Mapping[str, Tolerance]
    verified: str


def completed_text(text: str, fields: CompletedFields) -> str:
    """The text of the spec with the completed fields.

    Keys that an argument has already are kept. Raises ``SpecProblems`` if the text is not YAML.
    """
    lines = text.splitlines()
    document = parse(text, "draft")
    data = document.data
    assert isinstance(data, dict)
    arguments = data.get("arguments")
    assert isinstance(arguments, list)
    for index in reversed(range(len(arguments))):
        argument = arguments[index]
        assert isinstance(argument, dict)
        added = _added(argument, fields)
        if added:
            _insert(lines, document, ("arguments", index), added, list(argument))
    edited = "\n".join(lines)
    edited = _with_domain(edited, fields)
    return _with_reference(edited, fields)


def _added(argument: Mapping[str, object], fields: CompletedFields) -> dict[str, str]:
    """The keys that an argument gets, with their YAML."""
    name = str(argument.get("name"))
    added = {}
    if name in fields.ranges and "range" not in argument:
        low, high = fields.ranges[name]
        added["range"] = f"[{low!r}, {high!r}]"
    if name in fields.tolerances and "tolerance" not in argument:
        bound = fields.tolerances[name]
        added["tolerance"] = f"{{rtol: {bound.rtol!r}, atol: {bound.atol!r}}}"
    return added


def _insert(
    lines: list[str], document: Document, path: Path, added: Mapping[str, str], keys: list[str]
) -> None:
    """Add keys to a mapping, in flow style before its bracket, in block style as lines."""
    mark = document.values[path]
    why = f"{' and '.join(added)} by a model, not verified (low)"
    if lines[mark.line - 1][mark.column - 1] == "{":
        row, column = _closing(lines, mark.line - 1, mark.column - 1)
        more = "".join(f", {key}: {value}" for key, value in added.items())
        line = lines[row][:column] + more + lines[row][column:]
        guessed = "# guess:" in line[column:]
        lines[row] = f"{line}; {why}" if guessed else f"{line}    # guess: {why}"
        return
    first, *rest = keys
    after = document.keys[(*path, rest[0])].line - 1 if rest else mark.line
    indent = " " * (document.keys[(*path, first)].column - 1)
    lines[after:after] = [
        f"{indent}{key}: {value}    # guess: {why}" for key, value in added.items()
    ]


def _closing(lines: Sequence[str], row: int, column: int) -> tuple[int, int]:
    """Where the bracket at a place is closed; the text is known to be YAML."""
    depth, quote = 0, ""
    while True:
        while column < len(lines[row]):
            letter = lines[row][column]
            if quote:
                if letter == "\\" and quote == '"':
                    column += 1
                elif letter == quote:
                    quote = ""
            elif letter in "\"'":
                quote = letter
            elif letter == "#" and lines[row][column - 1 : column].isspace():
                break
            else:
                depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(letter, 0)
                if not depth:
                    return row, column
            column += 1
        row, column = row + 1, 0


def _with_domain(text: str, fields: CompletedFields) -> str:
    """The text with the domain replaced, or added to the shapes."""
    limits = ", ".join(f'"{limit}"' for limit in fields.domain)
    document, lines = parse(text, "draft"), text.splitlines()
    key = document.keys.get(("shapes", "domain"))
    if key is not None:
        first, end = key.line - 1, _end(document, ("shapes", "domain"))
        indent = " " * (key.column - 1)
    else:
        first = end = document.keys[("shapes",)].line
        indent = " " * (document.keys[("shapes", "tune")].column - 1)
        if document.keys[("shapes", "tune")].line == first:
            return text  # written on one line: the user's own
    lines[first:end] = [f"{indent}domain: [{limits}]    # guess: by a model, not verified (low)"]
    return "\n".join(lines)


def _end(document: Document, path: Path) -> int:
    """The last line of the value of a key, from 1."""
    mark = document.values[path]
    if document.line(mark)[mark.column - 1 :].startswith("["):
        return _closing(document.lines, mark.line - 1, mark.column - 1)[0] + 1
    inside = (one.line for other, one in document.values.items() if other[: len(path)] == path)
    return max(inside)


def _with_reference(text: str, fields: CompletedFields) -> str:
    """The text with the reference, in place of a comment that asks for one."""
    mark = f"verified: equal to {fields.verified}" if fields.verified else ""
    line = f"reference: {fields.reference}    # {mark or 'guess: by a model, not verified (low)'}"
    document, lines = parse(text, "draft"), text.splitlines()
    if key := document.keys.get(("reference",)):
        lines[key.line - 1 : _end(document, ("reference",))] = [line]
        return "\n".join(lines) + "\n"
    place = next((i for i, old in enumerate(lines) if _COMMENTED_REFERENCE.match(old)), None)
    if place is None:
        return "\n".join([*lines, line]) + "\n"
    end = place + 1
    while end < len(lines) and _COMMENT_GOES_ON.match(lines[end]):
        end += 1
    lines[place:end] = [line]
    return "\n".join(lines) + "\n"
