"""How an application builds a source: from ``compile_commands.json`` or given folders.

Owns the reading of a compiler's command line: include folders, macros and the options that a spec
may have. No compiler is run.
"""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.backends.registry import traits_of
from tuner.errors import SpecError
from tuner.experiment.fields import read_text
from tuner.files import read_bounded

MAX_COMMANDS_BYTES = 64 << 20
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RuntimeError)
"""Errors of malformed commands; ``RuntimeError`` of deep nesting and of links in a circle."""

_SHOWN = 100
"""Characters of a path that an error shows."""

_INCLUDES = ("-I", "-isystem", "-iquote", "--include-path", "--system-include")
_DEFINES = ("-D", "--define-macro")
_SHORT = ("-I", "-D", "-isystem", "-iquote")
"""May be followed by their value without a space or ``=``."""

_SPELLINGS = {
    "-use_fast_math": "--use_fast_math",
    "-std": "--std",
    "-maxrregcount": "--maxrregcount",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBuild:
    """A CUDA source with its text; paths are as the spec writes them.

    ``options`` are those that a spec may have, ``defines`` macros that it cannot pass.
    """

    path: str
    text: str
    include_dirs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()


def source_build(
    source: Path, folder: Path, *, commands: Path | None = None, include: Sequence[Path] = ()
) -> SourceBuild:
    """How a source is built, for a spec in ``folder``.

    Args:
        source: the file that defines the kernel.
        folder: where the spec will lie; paths are relative to it.
        commands: a ``compile_commands.json`` that has the source.
        include: further folders with headers.

    Raises:
        SpecError: a file cannot be read, or the commands do not have the source.
    """
    try:
        text = read_text(source)
    except ValueError as error:
        raise SpecError(str(error)) from None
    words, directory = _command(commands, source) if commands else ([], Path())
    found = list(_values(words, _INCLUDES))
    folders = [*(directory / one for one in found), *include]
    paths = [os.path.relpath(one, folder) for one in folders if _is_folder(one)]
    options = [_option(word) for word in words]
    return SourceBuild(
        path=os.path.relpath(source, folder),
        text=text,
        include_dirs=tuple(dict.fromkeys(paths)),
        options=tuple(dict.fromkeys(option for option in options if option)),
        defines=tuple(dict.fromkeys(_values(words, _DEFINES))),
    )


def _command(commands: Path, source: Path) -> tuple[list[str], Path]:
    """The words of the command that compiles a source, and its directory."""
    try:
        text = read_bounded(commands, MAX_COMMANDS_BYTES, follow=True)
        entries = json.loads(text or "")
        for entry in entries:
            directory = Path(entry["directory"])
            if (directory / entry["file"]).resolve() == source.resolve():
                words = entry.get("arguments") or shlex.split(entry["command"])
                return [str(word) for word in words], directory
    except _MALFORMED as error:
        raise SpecError(f"{commands}: not the compile_commands.json of a build: {error}") from None
    raise SpecError(f"{commands} does not compile {source}; give its folders with -I")


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except OSError as error:
        given = repr(str(place)[:_SHOWN])
        raise SpecError(f"include folder {given} cannot be read ({error.strerror})") from None


def _values(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """What follows these flags, joined or as the next word, in order."""
    found = []
    for index, word in enumerate(words):
        flag, _, value = word.partition("=")
        if flag in flags and flag.startswith("--") and value:
            found.append(value)
        elif word in flags and index + 1 < len(words):
            found.append(words[index + 1])
        else:
            short = next((f for f in flags if f in _SHORT and word.startswith(f) and word != f), "")
            if short:
                found.append(word.removeprefix(short))
    return found


def _option(word: str) -> str | None:
    """A compiler option as a spec has it, if it may."""
    name, equals, value = word.partition("=")
    name = _SPELLINGS.get(name, name)
    allowed = traits_of("cuda").options
    if name not in allowed or (allowed[name] and value not in allowed[name]):
        return None
    return f"{name}{equals}{value}"
