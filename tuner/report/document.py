"""A report as plain data: sections of text, tables, figures and listings.

:mod:`tuner.report.html` and :mod:`tuner.report.markdown` write it.
"""

from dataclasses import dataclass

from tuner.report.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; ``numbers`` has the columns that are aligned right."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Preformatted text: commands, source or a ``diff``; folded behind ``summary`` if given."""

    text: str
    language: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Terms and what is to be said of each."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A heading inside a section."""

    text: str


Part = str | Heading | Facts | Table | Listing | Figure
"""A string is a paragraph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of a document."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report; ``verdict`` is its first sentence, ``subtitle`` names kernel, device and date."""

    title: str
    subtitle: str
    verdict: str
    sections: tuple[Section, ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, in order."""
        kinds = (str, Heading, Facts, Table, Listing)
        return tuple(
            part
            for section in self.sections
            for part in section.parts
            if not isinstance(part, kinds)
        )
