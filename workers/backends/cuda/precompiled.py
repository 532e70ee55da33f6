"""The toolkit's headers at the top of a source, parsed once by each compile process.

NVRTC writes what it made of them to a file, and reads that for every later source that begins with
the same includes. Macros are defined behind them: they differ from configuration to configuration.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

SINCE = 12, 8
"""The first NVRTC that can."""

_SMALL = ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "mma.h")
"""Headers of which the file is small: 6 to 11 MB, while cooperative groups take 250."""
_MOST = 4
"""Files that a process makes at most."""
_INCLUDE = re.compile(r"#\s*include\s*[<\"]([\w.]+)[>\"]")
_INCLUDED = re.compile(r"#\s*include\s*[<\"]([\w./]+)[>\"]")
_NAME = re.compile(r"[A-Z]\w*")
_VALUE = re.compile(r"[\w.+-]*")


class PrecompiledHeaders:
    """The files of one process, made of the toolkit's headers in ``folders``."""

    def __init__(self, nvrtc: ModuleType, folders: tuple[Path, ...]) -> None:
        self._nvrtc = nvrtc
        self._folders = folders
        self._files: dict[tuple[Sequence[str], Sequence[str]], Path | None] = {}
        self._folder: TemporaryDirectory[str] | None = None

    def applied(
        self, source: str, own: Mapping[str, str], macros: Mapping[str, str], options: Sequence[str]
    ) -> tuple[str, str] | None:
        """A source to compile in place of this one, without its macros, and a further option.

        Args:
            source: the source, whose lines keep their numbers.
            own: headers by name that are not the toolkit's.
            macros: their values by name.
            options: all others of the compiler.

        Returns:
            Nothing where the headers must be parsed: there are none, or a macro may change them.
        """
        lines = source.split("\n")
        headers, end = _leading(lines)
        if not headers or own.keys() & set(headers):
            return None
        text = _text(headers, self._folders)
        for name, value in macros.items():
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)) or _names(text, name):
                return None
        includes = "".join(f"#include <{header}>\n" for header in headers)
        if (file := self._file(includes, tuple(options))) is None:
            return None
        defined = "".join(f"#define {name} {value}\n" for name, value in macros.items())
        rest = "\n".join(lines[end:])
        return f"{includes}{defined}#line {end + 1}\n{rest}", f"--use-pch={file}"

    def _file(self, includes: str, options: tuple[str, ...]) -> Path | None:
        """The file of these headers with these options, made by the first call, if it can be."""
        key = includes, options
        if key not in self._files and len(self._files) < _MOST:
            self._files[key] = None
            with suppress(OSError):
                self._folder = self._folder or TemporaryDirectory(prefix="headers")
                file = Path(self._folder.name, f"{len(self._files)}.pch")
                if self._made(includes, (*options, f"--create-pch={file}")) and file.is_file():
                    self._files[key] = file
        return self._files.get(key)

    def _made(self, source: str, options: tuple[str, ...]) -> bool:
        program = self._nvrtc.createProgram(source, "headers.cu", (), ())
        try:
            self._nvrtc.compileProgram(program, options)
        except self._nvrtc.NVRTCError:
            return False
        finally:
            self._nvrtc.destroyProgram(program)
        return True


def _leading(lines: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The small headers of the toolkit that a source begins with, and how many lines they take."""
    headers: dict[str, None] = {}
    end = 0
    for number, line in enumerate(map(str.strip, lines)):
        include = _INCLUDE.fullmatch(line)
        if include and include[1] in _SMALL:
            headers[include[1]] = None
            end = number + 1
        elif line.endswith("\\") or (line and not line.startswith("//")):
            break
    return tuple(headers), end


@lru_cache
def _names(text: str, name: str) -> bool:
    """Whether a name occurs in a text: a literal is found 30 times as fast as a bound of words."""
    return name in text and re.search(rf"{name}\b(?<!\w{name})", text) is not None


@lru_cache(maxsize=_MOST)
def _text(headers: Sequence[str], folders: Sequence[Path]) -> str:
    """These headers, and all that they include."""
    texts: dict[str, str] = {}
    waiting = list(headers)
    while waiting:
        name = waiting.pop()
        found = [folder / name for folder in folders if (folder / name).is_file()]
        if name not in texts and found:
            texts[name] = found[0].read_text(errors="replace")
            waiting += _INCLUDED.findall(texts[name])
    return "\n".join(texts.values())
