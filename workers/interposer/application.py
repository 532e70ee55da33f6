"""Runs an application with the interposer library in it, and passes its exit status on."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from tuner.errors import EnvironmentProblem, SpecError
from workers.interposer.library import interposer_library

VARIABLE = "KERNELWRIGHT_INTERPOSER"
"""The environment variable that names the folder with the settings, where processes record."""

SETTINGS = "settings"
_PROFILER = "CUDA_INJECTION64_PATH"

Mode = Literal["profile", "capture", "inject", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterposerSettings:
    """What the library does in the application.

    ``kernel`` is part of a name, or a pattern with ``*`` and ``?``; ``bytes`` the most bytes of
    device memory recorded for one pointer; ``shapes`` the most launches that are recorded;
    ``rules`` the file of substitutions.
    """

    mode: Mode
    kernel: str = ""
    bytes: int = 0
    shapes: int = 0
    rules: Path | None = None

    def text(self) -> str:
        """The settings as the library reads them: a key and a value on each line."""
        values = asdict(self) | {"rules": self.rules or ""}
        return "".join(f"{key} {value}\n" for key, value in values.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An application that has ended; ``exit_code`` is negative for a signal."""

    argv: tuple[str, ...]
    directory: str
    pid: int
    exit_code: int

    @property
    def status(self) -> int:
        """The exit status as a shell gives it: 128 + the signal's number for a signal."""
        return self.exit_code if self.exit_code >= 0 else 128 - self.exit_code


def run_application(
    argv: Sequence[str],
    settings: InterposerSettings | None,
    folder: Path,
    *,
    stdout: int | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Ended:
    """Run ``argv`` to its end with the library loaded; every process of it records into ``folder``.

    Other libraries in ``LD_PRELOAD`` come first. While the application runs, an interrupt ends the
    application only, and a request to terminate is passed to it.

    Args:
        argv: the command and its arguments.
        settings: what the library does; ``None`` runs the application without it.
        folder: an existing folder, readable by its owner only.
        stdout: a descriptor for the application's output, instead of this process's.
        environment: the application's, to which the library is added.

    Raises:
        SpecError: the command line cannot be run, or a pattern has a line break.
        EnvironmentProblem: the library cannot be built, or another profiler is in place.
    """
    if not argv:
        raise SpecError("name the application after --: kernelwright profile -- ./app --its-option")
    child = dict(environment)
    if settings is not None:
        child |= _loading(settings, folder, environment)
    try:
        process = subprocess.Popen(argv, env=child, stdout=stdout)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SpecError(f"{argv[0]}: cannot be run ({why})") from error
    with _signals_to(process):
        code = process.wait()
    return Ended(argv=tuple(argv), directory=str(Path.cwd()), pid=process.pid, exit_code=code)


def _loading(
    settings: InterposerSettings, folder: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Write the settings; the variables with which the library is loaded and finds them."""
    if "\n" in settings.kernel:
        raise SpecError("--kernel: the name has a line break")
    if environment.get(_PROFILER):
        raise EnvironmentProblem(
            f"another profiler observes CUDA ({_PROFILER} is set): unset it, or run without it"
        )
    library = interposer_library(environment)
    handle = os.open(folder / SETTINGS, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(settings.text())
    preload = [*filter(None, [environment.get("LD_PRELOAD")]), str(library)]
    return {"LD_PRELOAD": os.pathsep.join(preload), VARIABLE: str(folder.resolve())}


@contextmanager
def _signals_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave SIGINT to the application, which the terminal sends it too; pass SIGTERM on to it."""

    def ignore(_number: int, _frame: FrameType | None) -> None:
        pass

    def forward(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, ignore),
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
