"""Small files that other processes read and write at the same time: whole or not there at all.

Owns atomic writing and bounded reading; knows nothing of what the files mean.
"""

import os
import secrets
import stat
from pathlib import Path

from pydantic import ValidationError

from tuner.errors import EnvironmentProblem

_PROBLEM_LENGTH = 400


class UnreadableFile(ValueError):
    """A file that must not be believed: unreadable, not regular, too large, or not UTF-8."""


def first_problem(error: ValidationError) -> str:
    """Where a file is of another form than expected, and how: the first place, on one line."""
    detail = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in detail["loc"])
    problem = f"{place}: {detail['msg']}" if place else detail["msg"]
    # Names in it are the file's own: they shall neither begin a line nor colour one.
    plain = (letter if letter.isprintable() else "?" for letter in problem[:_PROBLEM_LENGTH])
    return "".join(plain)


def write_whole(path: Path, text: str) -> None:
    """Put ``text`` at ``path`` in one act that survives a crash, replacing what was there.

    Raises:
        EnvironmentProblem: the folder is full, missing or not writable; nothing is left behind.
    """
    temporary = ""
    try:
        temporary = str(path.parent / f".{path.name[:200]}.{secrets.token_hex(8)}.part")
        # Not private, as what tempfile makes is: others read what a run leaves, if umask lets them.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise EnvironmentProblem(
            f"{path}: cannot be written ({error.strerror}); free space or choose another folder"
        ) from error


def make_folder(path: Path) -> None:
    """Create a folder and its parents.

    Raises:
        EnvironmentProblem: it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be created ({error.strerror})") from error


def check_folder(path: Path) -> None:
    """Find out whether a folder can be made, as far as that is seen without making anything.

    Raises:
        EnvironmentProblem: it cannot.
    """
    why = ""
    try:
        up = (path, *path.parents)
        there = next(place for place in up if place.exists() or place.is_symlink())
        if not there.is_dir():
            why = f"{there} is no folder"
        elif not os.access(there, os.W_OK | os.X_OK):
            why = f"{there} may not be written"
    except OSError as error:
        why = str(error.strerror)
    if why:
        raise EnvironmentProblem(f"{path}: cannot be created ({why})")


def read_bounded(path: Path, limit: int, *, follow: bool = False) -> str | None:
    """The text of a regular file of at most ``limit`` bytes; ``None`` if there is no such file.

    Waits for no pipe. Links are not followed unless ``follow``: whoever writes into a shared folder
    must not choose what is read.

    Raises:
        UnreadableFile: the file is there and must not be believed.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableFile(f"cannot be opened ({error.strerror})") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnreadableFile("is not a regular file")
    with os.fdopen(handle, "rb") as file:
        try:
            data = file.read(limit + 1) or b""
        except OSError as error:
            raise UnreadableFile(f"cannot be read ({error.strerror})") from error
    if len(data) > limit:
        raise UnreadableFile(f"is larger than {limit} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"is not UTF-8 text (byte {error.start})") from error
