"""The settings that Kernelwright reads from its process environment, and the keys it removes.

The only module that touches ``os.environ``.
"""

import ctypes
import itertools
import json
import os
import re
import secrets
import threading
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agents.llm.provider_settings import is_setting
from tuner.errors import EnvironmentProblem, SpecError
from workers.scratch import PrivateFolder

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.IGNORECASE)
_RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_PR_SET_DUMPABLE = 4
_KEPT = threading.Lock()
"""Held while :func:`environment_kept` has the environment of this process to put back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings from the environment, read once at start.

    ``ray_address`` is the cluster to join (set by the user, and by Ray for a submitted job);
    ``in_job``: this process is the entry point of ``ray job submit``; ``home`` keeps patterns and
    compiled binaries between runs, ``None`` if ``KERNELWRIGHT_HOME`` is empty or the user has no
    home; ``job`` names the batch job of Ray or Slurm, empty outside of one; ``ray_token``: Ray's
    processes that are started here ask for a token.
    """

    ray_address: str | None
    in_job: bool
    home: Path | None = None
    job: str = ""
    ray_token: bool = False

    @property
    def cache(self) -> Path | None:
        """The folder for compiled binaries, on each node that compiles."""
        return self.home and self.home / "compiled"

    def lasting(self, wanted: Path | None, default: Path, option: str) -> Path:
        """The absolute path of a new folder for results, outside a submitted job's own folder.

        ``default`` is relative, of which a job takes the name; ``option`` names ``wanted``.

        Raises:
            SpecError: ``wanted`` is inside the job's folder.
        """
        if not self.in_job:
            return (wanted or default).absolute()
        lasting = Path.home() / "kernelwright-runs" / default.name
        if wanted is None:
            return lasting
        if not wanted.is_absolute() or wanted.resolve().is_relative_to(Path.cwd().resolve()):
            raise SpecError(
                f"{option} {wanted} is in the job's own folder, which Ray deletes when the job "
                f"ends: give an absolute path outside it, such as {lasting}"
            )
        return wanted

    @classmethod
    def read(cls, environ: MutableMapping[str, str] = os.environ) -> "Settings":
        """The settings in ``environ``."""
        return cls(
            ray_address=environ.get("RAY_ADDRESS") or None,
            in_job=_RAY_JOB in environ,
            home=_home(environ.get("KERNELWRIGHT_HOME")),
            job=_job(environ),
            ray_token=environ.get("RAY_AUTH_MODE") == "token",
        )


def _job(environ: Mapping[str, str]) -> str:
    """The batch job that this process belongs to, in words."""
    with suppress(ValueError, TypeError, KeyError):
        return f"Ray job {json.loads(environ[_RAY_JOB])['metadata']['job_submission_id']}"
    slurm = environ.get("SLURM_JOB_ID")
    return f"Slurm job {slurm}" if slurm else ""


def _home(given: str | None) -> Path | None:
    if given is None:
        with suppress(RuntimeError):
            return Path.home() / ".kernelwright"
        return None
    return Path(given).absolute() if given else None


def take_job_server(given: str | None, environ: MutableMapping[str, str] = os.environ) -> str:
    """The address of Ray's job server: as given, from Ray's variables, or on this machine.

    Removes the variables, since the job SDK prefers them to what it is given.
    """
    names = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
    found = [environ.pop(name, "") for name in names]
    return given or next(filter(None, found), "http://127.0.0.1:8265")


def show_gpus(environ: MutableMapping[str, str] = os.environ) -> None:
    """Undo that Ray hides all GPUs from a task that takes none of them."""
    if environ.get("CUDA_VISIBLE_DEVICES") == "":
        del environ["CUDA_VISIBLE_DEVICES"]


def use_one_algebra_thread(environ: MutableMapping[str, str] = os.environ) -> None:
    """Limit linear algebra to one thread, unless the user set a number.

    The search's matrices are small. Beside busy compilers and benches, OpenBLAS's threads wait for
    each other, and an ask takes seconds instead of milliseconds. Call before NumPy is imported.
    """
    if not environ.keys() & {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}:
        environ["OPENBLAS_NUM_THREADS"] = "1"


def take_keys(environ: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Remove keys and tokens from the environment; return them and the providers' settings.

    Call before Ray or any child starts: Ray's workers inherit the environment and log parts of it.
    Ray's own variables stay, since its token protects it. Of this process itself the kernel shows
    neither keys nor memory to other processes of the user from then on.
    """
    names = [name for name in environ if _SECRET.search(name) and not name.startswith("RAY_")]
    if environ is os.environ and names:
        _erase(names)
    settings = {name: value for name, value in environ.items() if is_setting(name)}
    return settings | {name: environ.pop(name) for name in names}


def child_environment(
    before: Mapping[str, str] = os.environ, ray_address: str | None = None
) -> dict[str, str]:
    """The environment of a command in a child process: a copy, with this process's Ray if given.

    ``before`` is a copy that was made before :func:`environment_for_ray` took the keys away.
    """
    found = dict(before)
    if ray_address is not None:
        found |= {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
        found["RAY_ADDRESS"] = ray_address
    return found


@contextmanager
def environment_kept(environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """At the end, put the environment back as it was: a program may tune again with its keys.

    Raises:
        EnvironmentProblem: another thread is inside, and has taken the keys away.
    """
    if not _KEPT.acquire(blocking=False):
        raise EnvironmentProblem(
            "another tune() of this program has not ended: call it again when that has returned, "
            "or in another process"
        )
    try:
        before = dict(environ)
        try:
            yield
        finally:
            for name in environ.keys() - before.keys():
                del environ[name]
            environ.update(before)
    finally:
        _KEPT.release()


def _erase(names: Collection[str]) -> None:
    """Overwrite variables where ``/proc/PID/environ`` shows them; forbid tracing and core dumps."""
    libc = ctypes.CDLL(None)
    entries = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")
    addresses: Iterator[int] = (entries[index] for index in itertools.count())
    for address in itertools.takewhile(bool, addresses):
        name, _, value = ctypes.string_at(address).partition(b"=")
        if os.fsdecode(name) in names:
            ctypes.memset(address + len(name) + 1, 0, len(value))
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


_private_folders: list[PrivateFolder] = []
"""What :func:`environment_for_ray` has made and not removed yet."""

_RAYLET_DIED = "^Raylet is terminated"
"""How a page of Ray's log begins that Ray prints on stdout when a raylet dies."""


@contextmanager
def environment_for_ray(
    settings: Settings, environ: MutableMapping[str, str] = os.environ
) -> Iterator[Path]:
    """Prepare the environment for Ray: no keys, and a token if this process starts a Ray.

    Ray listens on every interface; without a token, anyone who reaches a port can run code. The
    token is this process's own, in a file that only this user can read; a user's own setting is
    kept. The keys go into another such file, which :func:`read_keys` reads on this node: Ray logs
    every other way to the driver. Yields the path of the keys; both files are deleted at the end,
    or by the next process that makes such a folder if this one is killed.
    """
    taken = take_keys(environ)
    environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", _RAYLET_DIED)
    folder = PrivateFolder("keys")
    _private_folders.append(folder)
    try:
        keys = _private_file(folder.path / "keys.json", json.dumps(taken))
        if not settings.ray_address and "RAY_AUTH_MODE" not in environ:
            environ["RAY_AUTH_MODE"] = "token"
            if "RAY_AUTH_TOKEN" not in environ and "RAY_AUTH_TOKEN_PATH" not in environ:
                token = _private_file(folder.path / "ray_token", _new_token())
                environ["RAY_AUTH_TOKEN_PATH"] = str(token)
        yield keys
    finally:
        _private_folders.remove(folder)
        folder.remove()


def remove_private_files() -> None:
    """Delete the files of :func:`environment_for_ray`, before a signal kills this process."""
    for folder in _private_folders:
        folder.remove()


@cache
def _new_token() -> str:
    """The same for each Ray that this process starts: Ray reads it only once."""
    return secrets.token_hex(32)


def _private_file(path: Path, text: str) -> Path:
    """Create a file that only this user can read, with the mode set before the text is written."""
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def read_keys(path: Path) -> dict[str, str]:
    """The keys that :func:`environment_for_ray` wrote for the driver.

    Raises:
        EnvironmentProblem: the file is gone, because the entry point has ended.
    """
    try:
        found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(
            f"the file with the language models' keys cannot be read ({type(error).__name__}); "
            "resume the run with the keys in the environment"
        ) from None
    return found
