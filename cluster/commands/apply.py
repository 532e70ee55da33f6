"""``apply``: put a run's tuned kernels into an application's source, as a diff or in place."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from cluster.cli.console import say
from cluster.commands.results import history_of, result_view
from tuner.errors import EnvironmentProblem, SpecError
from tuner.export.application import Application, FileChange, apply_run
from tuner.export.regions import has_regions, without_regions
from tuner.files import UnreadableFile, read_bounded, write_whole
from tuner.run_directory import RunView

MAX_BYTES = 4 << 20
"""Longest file of an application that is read."""

ORIGINAL = ".orig"
"""What the name of the copy of the original ends in."""


def apply(run_dir: Path, file: Path, *, write: bool, root: Path | None) -> None:
    """Print the diff, or write the files; notes go to stderr.

    Raises:
        NothingValid: nothing was confirmed, or the original serves every shape.
        SpecError: the file is not what the run measured, or cannot be changed.
        EnvironmentProblem: a file cannot be written; nothing is changed then.
    """
    place = _Place.of(file, root)
    text = place.read(place.path)
    if text is None:
        raise SpecError(f"no such file: {file}")
    view = result_view(run_dir)
    history = history_of(view)
    run = RunView.open(run_dir).info.run
    application = apply_run(history, run, place.path, text, place.read)
    if write:
        _write(place, text, application)
    else:
        typer.echo(application.diff().encode(), nl=False)  # bytes: carriage returns stay
    for note in application.notes:
        say(note)


@dataclass(frozen=True, slots=True)
class _Place:
    """The folder of an application, and a source's path in it."""

    root: Path
    path: str

    @classmethod
    def of(cls, file: Path, root: Path | None) -> "_Place":
        """Where a file lies, links followed.

        Raises:
            SpecError: there is no such file, or it lies outside ``root``.
        """
        try:
            real = file.resolve(strict=True)
            folder = _root(real) if root is None else root.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise SpecError(f"{file}: cannot be found ({_reason(error)})") from None
        if not real.is_relative_to(folder):
            named = f"{file} (which leads to {real})" if real != file.absolute() else str(file)
            raise SpecError(f"{named} lies outside {folder}: name another --root")
        return cls(folder, real.relative_to(folder).as_posix())

    def read(self, path: str) -> str | None:
        """The text of a file of the application, line ends as they are."""
        try:
            text = read_bounded(self.root / path, MAX_BYTES)
        except UnreadableFile as error:
            raise SpecError(f"{self.root / path} {error}") from None
        if text is not None and "\0" in text:
            raise SpecError(f"{self.root / path} is not a text file: it contains a zero byte")
        return text


def _root(file: Path) -> Path:
    """The repository that a file is in; else the current folder, or the file's own."""
    for folder in file.parents:
        if (folder / ".git").exists():
            return folder
    here = Path.cwd()
    return here if file.is_relative_to(here) else file.parent


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or "too many links"


def _write(place: _Place, text: str, application: Application) -> None:
    """Write the changed files and a copy of the original: all of them, or none."""
    changes = [*_original(place, text), *application.changes]
    changes = [change for change in changes if change.before != change.after]
    for change in changes:
        _check_writable(place.root / change.path)
        if place.read(change.path) != change.before:
            raise EnvironmentProblem(
                f"{place.root / change.path} was changed in the meantime: apply again"
            )
    _write_all(place.root, changes)
    for change in changes:
        typer.echo(place.root / change.path)
    if not changes:
        typer.echo(f"{place.root / place.path} is up to date")


def _original(place: _Place, text: str) -> list[FileChange]:
    """The copy of the source without what `apply` added.

    Raises:
        SpecError: another file has its name.
    """
    if not place.path.endswith((".cu", ".cuh")) and not has_regions(text):
        return []
    path = place.path + ORIGINAL
    before, original = place.read(path), without_regions(text, place.path)
    if before not in (None, original) and not has_regions(text):
        raise SpecError(f"{place.root / path} exists and is another text: move it away")
    return [FileChange(path, before, original)]


def _check_writable(path: Path) -> None:
    """Refuse a file or folder that its owner has made read-only, also to root."""
    target = path if path.exists() else path.parent
    mode = target.stat().st_mode
    if not os.access(target, os.W_OK) or not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise EnvironmentProblem(f"{target} is read-only: make it writable, then apply again")


def _write_all(root: Path, changes: Sequence[FileChange]) -> None:
    """Replace each file as a whole; if one fails, put the others back."""
    done: list[FileChange] = []
    try:
        for change in changes:
            write_whole(root / change.path, change.after)
            done.append(change)
    except EnvironmentProblem:
        for change in reversed(done):
            if change.before is None:
                (root / change.path).unlink(missing_ok=True)
            else:
                write_whole(root / change.path, change.before)
        raise
