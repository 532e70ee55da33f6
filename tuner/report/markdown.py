"""A report as Markdown, for an issue or a pull request: all but the figures.

Foreign text is escaped or fenced, so that it reads as a quotation.
"""

import re
from collections.abc import Iterator

from tuner.report.document import Document, Facts, Heading, Listing, Part, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")


def markdown(document: Document) -> str:
    """The whole report, ending with a newline."""
    blocks = [
        f"# {escaped(document.title)}",
        escaped(document.subtitle),
        f"**{escaped(document.verdict)}**",
    ]
    for section in document.sections:
        blocks += [f"## {escaped(section.title)}", *_parts(section.parts)]
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Text on one line in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _parts(parts: tuple[Part, ...]) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield escaped(part)
            case Heading(text=text):
                yield f"### {escaped(text)}"
            case Facts(pairs=pairs):
                yield "\n".join(f"- {escaped(term)}: {escaped(text)}" for term, text in pairs)
            case Table():
                yield _table(part.head, part.rows, part.numbers)
            case Listing(text=text, language=language, summary=summary):
                if summary:
                    yield f"{escaped(summary)}:"
                yield fenced(text, language)
            case _:
                pass


def _table(
    head: tuple[str, ...], rows: tuple[tuple[str, ...], ...], numbers: frozenset[int]
) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return f"| {' | '.join(map(escaped, cells))} |"

    rule = " | ".join("---:" if column in numbers else "---" for column in range(len(head)))
    return "\n".join([line(head), f"| {rule} |", *map(line, rows)])


def fenced(text: str, language: str) -> str:
    """Text as a fenced block that it cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
