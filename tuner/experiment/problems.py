"""What is wrong with a spec and where: problems, each with its place, raised all at once."""

from dataclasses import dataclass
from typing import Self

from tuner.errors import SpecError
from tuner.experiment.redaction import hidden

_WIDTH = 100


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a text: line and column, both from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the file, the place in it if known, that line's text, what."""

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
        shown = hidden(self.text)[start : start + _WIDTH].expandtabs(1).rstrip()
        return (
            f"{self.file}:{self.mark.line}:{self.mark.column}: {message}\n"
            f"{number} | {shown}\n"
            f"{' ' * len(number)} | {' ' * (column - start)}^"
        )


class SpecProblems(SpecError):
    """A spec with all of its ``problems``, in the order of the file."""

    problems: tuple[Problem, ...]

    @classmethod
    def of(cls, problems: list[Problem]) -> Self:
        """The error that shows every problem once."""
        ordered = sorted(set(problems), key=lambda p: (p.file, p.mark or Mark(0, 0), p.message))
        error = cls("\n".join(map(str, ordered)))
        error.problems = tuple(ordered)
        return error
