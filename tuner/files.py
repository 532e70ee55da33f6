"""Atomic writes and bounded reads of small files that several processes share; bytes as text."""

import base64
import errno
import os
import re
import secrets
import stat
import zlib
from contextlib import suppress
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from tuner.errors import EnvironmentProblem, SpecError
from tuner.printable import printable_line

_PROBLEM_LENGTH = 400


class UnreadableFile(ValueError):
    """A file that is unreadable, not regular, too large, or not UTF-8."""


def first_problem(error: ValidationError) -> str:
    """The first validation error of a file as one printable line: place and message."""
    detail = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in detail["loc"])
    problem = f"{place}: {detail['msg']}" if place else detail["msg"]
    return printable_line(problem[:_PROBLEM_LENGTH])


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically and durably, replacing an existing file.

    An existing file keeps its permissions.

    Raises:
        EnvironmentProblem: the folder is full, missing or not writable; no temporary file is left.
    """
    temporary = ""
    try:
        temporary = str(path.parent / f".{path.name[:200]}.{secrets.token_hex(8)}.part")
        # Unlike tempfile's, readable by others as umask allows: they read run directories.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            if path.is_file():
                os.fchmod(handle, stat.S_IMODE(path.stat().st_mode))
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
            with suppress(OSError):  # there is none where the file system is read-only
                Path(temporary).unlink()
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> EnvironmentProblem:
    """That a file or folder cannot be written, with the remedy for this error."""
    remedy = "check its permissions or choose another folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free space or choose another folder"
    elif error.errno in (errno.EISDIR, errno.EEXIST, errno.ENOTDIR):
        files = [place for place in (path, *path.parents) if place.is_file()]
        remedy = f"move {(files or [path])[0]} away, which is in its place"
    return EnvironmentProblem(f"{path}: cannot be written ({error.strerror}); {remedy}")


def check_text(path: Path | str) -> None:
    """Check that a path can be written into a file of text.

    Raises:
        EnvironmentProblem: it has bytes that are not UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise EnvironmentProblem(f"the name {path} is not UTF-8 text: rename it") from None


def plain_name(text: str) -> str:
    """A name for a spec, a folder or a job, without what a shell interprets.

    At most 80 ASCII letters, digits, ``_``, ``.`` and ``-``, the first a letter or a digit;
    ``unnamed`` if nothing is left.
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text).lstrip("_.-")[:80] or "unnamed"


def is_plain(name: str) -> bool:
    """Whether a name is a relative path that does not climb, without control characters."""
    path = PurePosixPath(name)
    climbs = path.is_absolute() or ".." in path.parts
    return bool(path.name) and name.isprintable() and not climbs


def inside(folder: Path, name: str) -> Path:
    """The path of a file in a folder, by a relative name from an untrusted source.

    Raises:
        SpecError: the name, or a link in the folder, leads out of it.
    """
    if not is_plain(name):
        raise SpecError(f"{name!r} is no name of a file in {folder}")
    path = folder / name
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise SpecError(f"{path.parent} leads out of {folder}: remove that link")
    return path


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
    """Check, without creating anything, whether a folder could be created or written.

    Raises:
        EnvironmentProblem: it could not.
    """
    why = ""
    try:
        ancestors = (path, *path.parents)
        nearest = next(place for place in ancestors if place.exists() or place.is_symlink())
        if not nearest.is_dir():
            why = f"{nearest} is not a folder"
        elif not os.access(nearest, os.W_OK | os.X_OK):
            why = f"{nearest} is not writable"
    except OSError as error:
        why = str(error.strerror)
    if why:
        raise EnvironmentProblem(f"{path}: cannot be created ({why})")


def read_bounded(path: Path, limit: int, *, follow: bool = False) -> str | None:
    """The UTF-8 text of a file, read as :func:`read_bytes` does.

    Raises:
        UnreadableFile: the file exists but is not such a file.
    """
    data = read_bytes(path, limit, follow=follow)
    try:
        return None if data is None else data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"is not UTF-8 text (byte {error.start})") from error


def read_bytes(path: Path, limit: int, *, follow: bool = False) -> bytes | None:
    """The contents of a regular file of at most ``limit`` bytes; ``None`` if there is no such file.

    Does not block on a pipe. Follows links only with ``follow``, since in a shared folder a link
    lets another user choose what is read.

    Raises:
        UnreadableFile: the file exists but is not such a file.
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
    return data


def given_path(folder: Path, given: str) -> Path:
    """The path of a file that the user names, relative to a folder.

    Raises:
        ValueError: the name is empty or holds a zero byte.
    """
    if not given:
        raise ValueError("names no file: write its path")
    if "\0" in given:
        raise ValueError(f"{given!r} is no path: it holds a zero byte")
    return folder / given


def given_text(path: Path, limit: int) -> str:
    """The UTF-8 text of a file that the user names, read as :func:`given_bytes` does.

    Raises:
        ValueError: there is none, or it is not such a file; names it.
    """
    data = given_bytes(path, limit)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start})") from None


def given_bytes(path: Path, limit: int) -> bytes:
    """The contents of a file that the user names, also by a link, of at most ``limit`` bytes.

    Raises:
        ValueError: there is none, or it is not a regular file of that size; names it.
    """
    try:
        data = read_bytes(path, limit, follow=True)
    except UnreadableFile as error:
        raise ValueError(f"{path} {error}") from None
    if data is None:
        raise ValueError(f"no such file: {path}")
    return data


def packed(data: bytes) -> str:
    """Bytes as text for YAML and JSON: compressed, in lines of Base64."""
    return base64.encodebytes(zlib.compress(data, 9)).decode("ascii")


def unpacked(text: str, limit: int) -> bytes:
    """The bytes that :func:`packed` made text of, at most ``limit``.

    Raises:
        ValueError: the text is damaged, or there are more bytes.
    """
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(text), limit)
    except zlib.error as error:
        raise ValueError(f"is damaged: {error}") from None
    if not inflate.eof:
        raise ValueError(f"is cut short, or larger than {limit} bytes")
    return data
