"""Reading C-like kernel source as text: where code is, and where a kernel's parts lie.

Owns no rewriting. Works on text because there is no parser for every dialect here; whatever is not
recognised for certain is reported as not found.
"""

import re
from dataclasses import dataclass

_HIDDEN = re.compile(
    r"//(?:\\\r?\n|[^\n])*"  # a line comment goes on after a backslash
    r"|/\*.*?(?:\*/|\Z)"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)
_OPENING = {"(": ")", "{": "}", "[": "]"}


def blank(text: str, hidden: re.Pattern[str] = _HIDDEN) -> str:
    """The text with comments and literals turned to spaces; every other place stays the same."""
    return hidden.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def code_only(text: str) -> str:
    """:func:`blank`, and without preprocessor directives."""
    return blank(blank(text), _DIRECTIVE)


def closing(code: str, opening: int) -> int | None:
    """Where the bracket that opens at ``opening`` is closed, or ``None``."""
    expected: list[str] = []
    for place in range(opening, len(code)):
        character = code[place]
        if character in _OPENING:
            expected.append(_OPENING[character])
        elif character in ")}]":
            if character != expected.pop():
                return None
            if not expected:
                return place
    return None


def cut_short(text: str) -> bool:
    """Whether the source surely ends too early: an open comment, conditional or block."""
    lines: list[str] = []
    skipping: list[bool] = []
    for line in blank(text).split("\n"):
        directive = re.match(r"[ \t]*#[ \t]*(if|el|endif)", line)
        if directive is None:
            if not any(skipping):
                lines.append(line)
        elif directive[1] == "if":
            skipping.append(False)
        elif skipping:  # of the branches of a conditional, the first stands for all
            skipping.pop()
            if directive[1] == "el":
                skipping.append(True)
    code = blank("\n".join(lines), _DIRECTIVE)
    comments = (match[0] for match in _HIDDEN.finditer(text) if match[0].startswith("/*"))
    in_comment = any(len(comment) < 4 or not comment.endswith("*/") for comment in comments)
    return bool(skipping) or code.count("{") > code.count("}") or in_comment


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelText:
    """The parts of one kernel's definition, as ``(start, end)`` places in the source.

    ``head`` is all before the name (qualifiers, attributes, return type), ``parameters`` between
    the round brackets, ``body`` between the braces.
    """

    source: str
    code: str
    name: str
    head: tuple[int, int]
    parameters: tuple[int, int]
    body: tuple[int, int]

    def text(self, span: tuple[int, int]) -> str:
        """The source between two places."""
        return self.source[span[0] : span[1]]

    @property
    def is_template(self) -> bool:
        """Whether it is a C++ template."""
        return re.search(r"\btemplate\b", self.code[self.head[0] : self.head[1]]) is not None

    @property
    def parameter_names(self) -> tuple[str, ...] | None:
        """The parameters' names in order, or ``None`` where one has none to be recognised."""
        listed = self.code[self.parameters[0] : self.parameters[1]]
        if not listed.strip():
            return ()
        names = []
        for declaration in _split(listed):
            match = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)?$", declaration)
            if match is None or len(re.findall(r"\w+", declaration)) < 2:
                return None
            names.append(match[1])
        return tuple(names)


def find_kernel(source: str, entry: str) -> KernelText | None:
    """The definition of the kernel that ``entry`` (a name or a C++ name expression) means."""
    code = code_only(source)
    name = entry.partition("<")[0].rpartition("::")[2].strip()
    if not name.isidentifier():
        return None
    for match in re.finditer(rf"\b{name}\s*\(", code):
        end = closing(code, match.end() - 1)
        if end is None:
            continue
        brace = re.compile(r"\s*\{").match(code, end + 1)
        start = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
        if brace is None or not re.search(
            r"\b(?:__kernel|kernel|__global__)\b", code[start : match.start()]
        ):
            continue
        stop = closing(code, brace.end() - 1)
        if stop is not None:
            start += len(code[start:]) - len(code[start:].lstrip())
            return KernelText(
                source=source,
                code=code,
                name=name,
                head=(start, match.start()),
                parameters=(match.end(), end),
                body=(brace.end(), stop),
            )
    return None


def _split(listed: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, character in enumerate(listed):
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(listed[start:place])
            start = place + 1
    return [*parts, listed[start:]]
