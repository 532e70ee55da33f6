"""Finds the headers that a source includes, beside it and in the spec's ``include_dirs``.

Owns which folders may be read. Headers are recorded by content, under the names of
:mod:`tuner.csource.includes`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.csource.includes import Include, candidates, includes
from tuner.experiment.fields import MAX_FILE_BYTES, read_text

MAX_HEADERS = 500
MAX_FOLDERS_ABOVE = 4
"""Folders above a source in which its includes are looked for, to write a first spec."""
MAX_HEADER_BYTES = 4 * MAX_FILE_BYTES


def find_headers(source: Path, text: str, folders: Sequence[Path]) -> dict[str, str]:
    """The headers that a source includes, directly or not, by the name that each is recorded under.

    What is in neither the source's folder nor ``folders`` is left to the compiler.

    Raises:
        ValueError: A header cannot be read, lies outside these folders, or there are more than
            :data:`MAX_HEADERS` or :data:`MAX_HEADER_BYTES`.
    """
    roots = [folder.resolve() for folder in (source.parent, *folders)]
    found: dict[str, str] = {}
    waiting = [(source.name, source, text)]
    while waiting:
        file, path, text = waiting.pop()
        for include in includes(text):
            for name, header in _places(file, path, include, folders):
                if name in found:
                    break
                if not header.is_file():
                    continue
                if not any(header.resolve().is_relative_to(root) for root in roots):
                    raise ValueError(_outside(path, text, include))
                found[name] = read_text(header)
                waiting.append((name, header, found[name]))
                break
        if len(found) > MAX_HEADERS or sum(map(len, found.values())) > MAX_HEADER_BYTES:
            raise ValueError(
                f"{source.name} includes more than {MAX_HEADERS} headers or"
                f" {MAX_HEADER_BYTES >> 20} MiB; name narrower folders in include_dirs"
            )
    return found


def folders_for(source: Path, text: str) -> tuple[str, ...]:
    """The folders above a source that its includes ask for, as ``include_dirs`` beside it."""
    found: list[str] = []
    above = [("/".join([".."] * n), parent) for n, parent in enumerate(_above(source), start=1)]
    for include in includes(text):
        if (source.parent / include.name).is_file() and not include.name.startswith(".."):
            continue
        for given, folder in above:
            climbs = include.name.startswith("../") and (source.parent / include.name).is_file()
            inside = climbs and (source.parent / include.name).resolve().is_relative_to(folder)
            if inside or ("/" in include.name and (folder / include.name).is_file()):
                found.append(given)
                break
    return tuple(dict.fromkeys(found))


def _above(source: Path) -> Sequence[Path]:
    return source.parent.resolve().parents[:MAX_FOLDERS_ABOVE]


def _places(
    file: str, path: Path, include: Include, folders: Sequence[Path]
) -> Iterator[tuple[str, Path]]:
    """Where an include's file may lie, with the name that it would be recorded under."""
    if Path(include.name).is_absolute():
        return
    names = candidates(file, include)
    if include.quoted:
        yield names[0], path.parent / include.name
    for folder in folders:
        yield names[-1], folder / include.name


def _outside(path: Path, text: str, include: Include) -> str:
    line = text.count("\n", 0, include.span[0]) + 1
    folder = Path(include.name).parent
    return (
        f"{path.name}:{line} includes {include.name}, which lies outside the source's folder: add"
        f" its folder, such as '{folder}', to kernel.include_dirs"
    )
