"""Builds the C library that is loaded into applications, once, with the system's compiler.

The library is kept in the user's cache folder (``$XDG_CACHE_HOME/kernelwright``, by default
``~/.cache/kernelwright``), named by the digest of its sources, its options and the compiler's
version. It needs no CUDA headers.
"""

import hashlib
import os
import platform
import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import EnvironmentProblem
from tuner.files import make_folder

SOURCES = Path(__file__).parent / "native"
COMPILER = "cc"
_OPTIONS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
_LIBRARIES = ("-ldl", "-lm")
_SECONDS = 120.0
_DIGITS = 16
"""Hex digits of the digest in the library's name."""


def interposer_library(environment: Mapping[str, str] = os.environ) -> Path:
    """The library's path; builds it if these sources have not been built with this compiler.

    Raises:
        EnvironmentProblem: this is not Linux on x86-64, there is no compiler, compiling fails, or
            the cache folder is not writable.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise EnvironmentProblem(
            f"applications can be observed on Linux with x86-64 only, not on {platform.system()} "
            f"with {platform.machine()}"
        )
    sources = sorted(SOURCES.glob("*.c"))
    digest = hashlib.sha256("\0".join((_compiler_version(), *_OPTIONS, *_LIBRARIES)).encode())
    for path in sorted((*sources, *SOURCES.glob("*.h"))):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    folder = _cache_folder(environment)
    library = folder / f"interposer-{digest.hexdigest()[:_DIGITS]}.so"
    if not library.exists():
        make_folder(folder)
        _build(sources, library)
    return library


def _cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder; a relative ``XDG_CACHE_HOME`` is ignored, as its specification says."""
    given = environment.get("XDG_CACHE_HOME", "")
    try:
        base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"  # noqa: PTH117
    except RuntimeError:
        raise EnvironmentProblem("there is no home folder: set XDG_CACHE_HOME") from None
    return base / "kernelwright"


def _compiler_version() -> str:
    return _run((COMPILER, "--version")).partition("\n")[0]


def _build(sources: list[Path], library: Path) -> None:
    """Compile to a name of its own, so that a process never loads half a library."""
    part = library.with_name(f".{library.name}.{secrets.token_hex(8)}.part")
    try:
        _run((COMPILER, *_OPTIONS, "-o", str(part), *map(str, sources), *_LIBRARIES))
        part.rename(library)
    except OSError as error:
        raise EnvironmentProblem(f"{library}: cannot be written ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)


def _run(command: tuple[str, ...]) -> str:
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
        )
    except FileNotFoundError:
        raise EnvironmentProblem(
            f"there is no C compiler '{COMPILER}' on PATH: install one (on Debian and Ubuntu: "
            "apt install gcc libc6-dev), so that the library for applications can be built"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{COMPILER} cannot be run: {error}") from error
    if ended.returncode:
        last = "\n".join(ended.stderr.strip().splitlines()[-5:])
        raise EnvironmentProblem(f"{' '.join(command[:1])} failed:\n{last}")
    return ended.stdout
