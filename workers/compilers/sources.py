"""What compilers have in common: a build's files in a folder, and the rejection of a build."""

from collections.abc import Mapping
from pathlib import Path

from tuner.csource.includes import with_recorded_names
from tuner.files import inside
from tuner.integrity.include_rules import include_violation
from tuner.plan import Build
from tuner.trial import Code, Rejected, Stage

_DETAIL_CHARACTERS = 8000


def checked_texts(build: Build) -> tuple[str, dict[str, str]] | Rejected:
    """The source and its headers by name, which include each other by these names."""
    given = dict(build.headers)
    source = with_recorded_names(build.file, build.source, given)
    headers = {name: with_recorded_names(name, text, given) for name, text in build.headers}
    for name, text in ((build.file, source), *headers.items()):
        if problem := include_violation(name, text):
            return compile_error(problem)
    return source, headers


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files by their names in a folder."""
    for name, text in files.items():
        place = inside(folder, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def compile_error(detail: str) -> Rejected:
    """The rejection of a build that does not compile; a long reason is cut short."""
    if len(detail) > _DETAIL_CHARACTERS:
        detail = f"{detail[:_DETAIL_CHARACTERS]}\n… ({len(detail)} characters in all)"
    return Rejected(stage=Stage.COMPILE, code=Code.COMPILE_ERROR, detail=detail)
