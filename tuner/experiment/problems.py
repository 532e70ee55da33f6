"""Problems of a spec with their places, raised together."""

from dataclasses import dataclass
from typing import Self

from tuner.errors import SpecError
from tuner.experiment.redaction import hidden, hidden_part

_WIDTH = 100


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """Line and column in a text, both from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A message about a place in a file, with the ``text`` of that line."""

    file: str
    mark: Mark | None
    text: str
    message: str

    def __str__(self) -> str:
        message = hidden(self.message)
        if self.mark is None:
            return f"{self.file}: {message}"
        number = f"{self.mark.line:5d}"
        column = self.mark.column - 1
        start = max(0, column - _WIDTH * 3 // 4)
        shown = hidden_part(self.text, start, start + _WIDTH).expandtabs(1).rstrip()
        return (
            f"{self.file}:{self.mark.line}:{self.mark.column}: {message}\n"
            f"{number} | {shown}\n"
            f"{' ' * len(number)} | {' ' * (column - start)}^"
        )


class SpecProblems(SpecError):
    """All ``problems`` of a spec, in the order of the file."""

    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, problems: list[Problem]) -> Self:
        """Build the error from problems in any order; duplicates are dropped."""
        ordered = sorted(set(problems), key=lambda p: (p.file, p.mark or Mark(0, 0), p.message))
        error = cls("\n".join(map(str, ordered)))
        error.problems = tuple(ordered)
        return error
