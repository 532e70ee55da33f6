"""Finds the headers that a source includes, beside it and in the spec's ``include_dirs``.

Owns which folders may be read: a spec may come from another user, and what it includes is copied
into runs and prompts. Headers are recorded by content, under the names of
:mod:`tuner.csource.includes`.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.csource.includes import Include, candidates, includes
from tuner.experiment.fields import MAX_FILE_BYTES, read_text

MAX_HEADERS = 500
_SOFTWARE = ("/usr", "/opt")
MAX_FOLDERS_ABOVE = 4
"""Folders above a source in which its includes are looked for, to write a first spec."""
_SHOWN = 100
"""Characters of an include's name that an error shows."""

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
                try:
                    if not header.is_file():
                        continue
                except OSError as error:
                    raise ValueError(
                        f"{path.name}:{_line(text, include)} includes"
                        f" {include.name[:_SHOWN]!r}, which cannot be read ({error.strerror})"
                    ) from None
                real = header.resolve()
                if not any(
                    real.is_relative_to(root) and not _hidden(real.relative_to(root))
                    for root in roots
                ):
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


def check_include_folder(folder: Path, directory: Path) -> None:
    """Check that a spec in ``directory`` may take headers from a folder.

    What it takes is copied into runs and prompts, and a spec may come from another user. So the
    folder is one of installed software, or has a folder other than the root in common with the
    spec; in neither case lies it in a hidden one.

    Raises:
        ValueError: it may not, or there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"no such folder: {folder}")
    real = folder.resolve()
    if any(real.is_relative_to(place) for place in _SOFTWARE):
        return
    common = Path(os.path.commonpath((real, directory.resolve())))
    if len(common.parts) == 1 or _hidden(real.relative_to(common)):
        raise ValueError(
            f"{real} is outside this spec's surroundings: copy the headers beside the spec"
        )


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def folders_for(source: Path, text: str) -> tuple[str, ...]:
    """The folders above a source that its includes ask for, as ``include_dirs`` beside it."""
    found: list[str] = []
    above = [("/".join([".."] * n), parent) for n, parent in enumerate(_above(source), start=1)]
    for include in includes(text):
        if _is_file(source.parent / include.name) and not include.name.startswith(".."):
            continue
        for given, folder in above:
            climbs = include.name.startswith("../") and _is_file(source.parent / include.name)
            inside = climbs and (source.parent / include.name).resolve().is_relative_to(folder)
            if inside or ("/" in include.name and _is_file(folder / include.name)):
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


def _is_file(path: Path) -> bool:
    """Whether a file lies there; one that cannot be looked up does not."""
    try:
        return path.is_file()
    except OSError:
        return False


def _line(text: str, include: Include) -> int:
    return text.count("\n", 0, include.span[0]) + 1


def _outside(path: Path, text: str, include: Include) -> str:
    folder = Path(include.name).parent
    return (
        f"{path.name}:{_line(text, include)} includes {include.name}, which lies outside the"
        f" source's folder, or hidden: add its folder, such as '{folder}', to kernel.include_dirs"
    )
