"""Where patterns are kept: one JSON file each, in a folder of the user.

A file there may be damaged, foreign or hostile. A file that does not validate is skipped with a
note and never stops a run.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agents.patterns.pattern import PATTERNS, Pattern
from tuner.errors import EnvironmentProblem, SpecError
from tuner.files import UnreadableFile, first_problem, make_folder, read_bounded, write_whole

LIMIT_BYTES = 64 * 1024
MOST_FILES = 2_000

_LISTS: TypeAdapter[tuple[Pattern, ...]] = TypeAdapter(
    tuple[Pattern, ...], config=ConfigDict(defer_build=True)
)


@dataclass(frozen=True, slots=True)
class PatternStore:
    """The patterns in a folder, which may be missing."""

    folder: Path

    def read(self) -> tuple[tuple[Pattern, ...], tuple[str, ...]]:
        """All patterns by name, and a note for each skipped file."""
        found, notes = [], []
        paths = sorted(self.folder.glob("*.json"))
        for path in paths[:MOST_FILES]:
            try:
                pattern = _parsed(path)
            except UnreadableFile as error:
                notes.append(f"{path}: {error}; skipped")
                continue
            if pattern.name != path.stem:
                notes.append(f"{path}: holds pattern {pattern.name}; skipped")
                continue
            found.append(pattern)
        if len(paths) > MOST_FILES:
            notes.append(f"{self.folder}: only the first {MOST_FILES} patterns are read")
        return tuple(found), tuple(notes)

    def add(self, pattern: Pattern) -> Path:
        """Store a pattern, with the winners on other devices that its file already has.

        Raises:
            EnvironmentProblem: The folder cannot be written.
        """
        make_folder(self.folder)
        path = self._path(pattern.name)
        try:
            before = _parsed(path)
        except UnreadableFile:
            before = None
        if before is not None and before.name == pattern.name:
            pattern = pattern.with_winners_of(before)
        write_whole(path, PATTERNS.dump_json(pattern, indent=1).decode() + "\n")
        return path

    def find(self, name: str) -> Pattern:
        """The pattern whose name begins with ``name``.

        Raises:
            SpecError: There is none, or several.
        """
        found = [pattern for pattern in self.read()[0] if pattern.name.startswith(name)]
        if len(found) != 1:
            count = "no pattern's name begins" if not found else f"{len(found)} patterns begin"
            raise SpecError(f"{count} with {name!r}; see `kernelwright patterns list`")
        return found[0]

    def delete(self, pattern: Pattern) -> None:
        """Delete a pattern's file.

        Raises:
            EnvironmentProblem: It cannot be deleted.
        """
        path = self._path(pattern.name)
        try:
            path.unlink()
        except OSError as error:
            raise EnvironmentProblem(f"{path}: cannot be deleted ({error.strerror})") from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def dump_patterns(patterns: tuple[Pattern, ...]) -> str:
    """Patterns as one JSON list."""
    return _LISTS.dump_json(patterns, indent=1).decode() + "\n"


def read_patterns(path: Path) -> tuple[Pattern, ...]:
    """The patterns in a file that :func:`dump_patterns` wrote; none if there is no file.

    Raises:
        SpecError: It is damaged.
    """
    try:
        text = read_bounded(path, LIMIT_BYTES * MOST_FILES)
        return _LISTS.validate_json(text) if text is not None else ()
    except UnreadableFile as error:
        raise SpecError(f"{path}: {error}") from error
    except ValidationError as error:
        raise SpecError(f"{path}: not a list of patterns ({first_problem(error)})") from error


def _parsed(path: Path) -> Pattern:
    text = read_bounded(path, LIMIT_BYTES)
    if text is None:
        raise UnreadableFile("is missing")
    try:
        return PATTERNS.validate_json(text)
    except ValidationError as error:
        raise UnreadableFile(f"is not a pattern ({first_problem(error)})") from error
