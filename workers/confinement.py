"""Confines a child process in which code from outside runs: kernels, headers, Python functions.

Owns what such a process may reach and how the kernel is asked to enforce it. Landlock limits files,
signals, and reading the memory and environment of other processes; a seccomp filter refuses network
sockets and system calls that reach other processes. Both need no rights, and hold for everything
that the process starts. Where the kernel lacks one, :func:`unprotected` says what is open.
"""

import ctypes
import errno
import os
import platform
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.backends.registry import traits_of
from workers.child_environment import private_environment

_ROOT = Path(__file__).resolve().parent.parent
# fmt: off
_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/etc", "/proc", "/sys",
    "/nix", "/gnu", "/run/opengl-driver", "/run/nvidia-persistenced",
)
# fmt: on
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri", "kfd", "dxg")
_MPS, _MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"  # noqa: S108
"""Where NVIDIA's service that shares a GPU between processes has its pipes."""
_NOT_READ = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "PYTHONPATH")
"""Variables whose paths are not opened for reading; ``sys.path`` has those of the last."""

_PR_SET_NO_NEW_PRIVS, _PR_GET_SECCOMP, _PR_SET_SECCOMP, _FILTER = 38, 21, 22, 2
_CAPABILITIES_VERSION = 0x20080522
_KEPT_CAPABILITIES = sum(1 << one for one in (0, 1, 2, 3, 14, 23, 24))
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, IPC_LOCK, SYS_NICE and SYS_RESOURCE."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE
_READING = _EXECUTE | _READ | _LIST
_CHANGES = ((1, (1 << 13) - 1), (2, 1 << 13), (3, _TRUNCATE))
"""Landlock's rights on files by the version that brought them."""
_TCP, _SCOPES = 0b11, 0b11
"""Bind and connect (version 4); abstract sockets and signals outside (version 6)."""

# fmt: off
_MACHINES = {
    "x86_64": (0xC000003E, 41, 53, (
        101, 310, 311, 438, 425, 165, 272, 308, 321, 298, 323, 248, 249, 250, 29, 30, 64, 68, 240,
    ), (302, 203, 144, 142, 314), (141, 251)),
    "aarch64": (0xC00000B7, 198, 199, (
        117, 270, 271, 438, 425, 40, 97, 268, 280, 241, 282, 217, 218, 219, 194, 196, 190, 186, 180,
    ), (261, 122, 119, 118, 274), (140, 30)),
}
# fmt: on
"""Seccomp's name of the architecture, the numbers of ``socket`` and ``socketpair``, and those of
what is refused: ptrace, process_vm_readv, process_vm_writev, pidfd_getfd, io_uring_setup, mount,
unshare, setns, bpf, perf_event_open, userfaultfd, add_key, request_key, keyctl, shmget, shmat,
semget, msgget, mq_open. The last eight reach what outlasts a process. Then those that change how a
process is run, whose first argument or second is the process, 0 the calling one: prlimit64,
sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr; setpriority, ioprio_set."""
_STREAMS = tuple(
    socket.SOCK_STREAM | close | block
    for close in (0, socket.SOCK_CLOEXEC)
    for block in (0, socket.SOCK_NONBLOCK)
)
"""Kinds of a pair that can be connected to nothing else."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, (16, 24)
"""Where a filter finds them, in bytes: the first two arguments."""
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_X32_BIT = 0x40000000
"""Above it are second numbers of the same calls, on x86-64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What a confined process may use besides this machine's software, its devices and itself.

    ``folder`` is its own, for temporary files. It may write to ``writable`` too, and read
    ``readable``, and see names of files anywhere in ``listed``; paths that do not exist when it
    starts are left out. ``environment`` has its variables besides the allowed ones.
    """

    folder: str
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    listed: str = str(_ROOT)
    environment: Mapping[str, str] = field(default_factory=dict)
    unix_sockets: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """All variables that it gets besides the allowed ones."""
        own = dict.fromkeys(("TMPDIR", "XDG_CACHE_HOME"), self.folder)
        return {**own, **self.environment}


def device_sandbox(
    backend: str, folder: Path, readable: Iterable[Path] = (), writable: Iterable[Path] = ()
) -> Sandbox:
    """A sandbox in which a backend's driver works; creates the folders to write to.

    A backend for GPUs alone may use all of ``/dev``, and sockets, by which its driver shares a
    GPU: its kernels run on the device, not here.
    """
    environment = private_environment(backend, folder)
    places = [folder, *writable, *map(Path, environment.values())]
    for place in places:
        with suppress(OSError):  # then it stays out of reach, as it is without a sandbox
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
    driver = ("/dev", os.environ.get(_MPS) or _MPS_FOLDER) if traits_of(backend).gpu_only else ()
    return Sandbox(
        folder=str(folder),
        readable=tuple(map(str, readable)),
        writable=(*map(str, places), *driver),
        listed="/",  # hwloc, with which PoCL finds out about the processor, opens it
        environment=environment,
        unix_sockets=traits_of(backend).gpu_only,
    )


def enter(sandbox: Sandbox) -> None:
    """Confine this process for good, as far as the kernel can; it must have one thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _drop_capabilities(libc)
    version = _landlock_version(libc)
    if version:
        _restrict_files(libc, version, sandbox)
    if machine := _MACHINES.get(platform.machine()):
        architecture, one, pair, refused, by_first, by_second = machine
        families = [socket.AF_NETLINK, *([socket.AF_UNIX] if sandbox.unix_sockets else [])]
        limited: list[tuple[int, int, Sequence[int]]] = [(one, 0, families), (pair, 1, _STREAMS)]
        if not sandbox.unix_sockets:  # a driver may place its threads
            limited += [(number, 0, (0,)) for number in by_first]
            limited += [(number, 1, (0,)) for number in by_second]
        _filter_calls(libc, architecture, refused, limited)


def unprotected() -> tuple[str, ...]:
    """What confined processes can reach on this machine, since its kernel cannot refuse it."""
    libc = ctypes.CDLL(None, use_errno=True)
    version, found = _landlock_version(libc), []
    if version < 1:
        found.append("files and other processes of this user (needs Linux 5.13 with Landlock)")
    elif version < _CHANGES[-1][0]:
        found.append("truncating files of this user (needs Linux 6.2)")
    if version < 6:
        found.append("signals to other processes of this user (needs Linux 6.12)")
    if platform.machine() not in _MACHINES or libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) < 0:
        found.append("the network (needs seccomp on x86-64 or AArch64)")
    return tuple(found)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up root's capabilities but those on its files, memory and priority.

    CAP_PERFMON, for one, reads every process's environment, whatever Landlock says.
    """
    head = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
    held = ctypes.create_string_buffer(24)
    libc.capget(head, held)
    kept = [mask & _KEPT_CAPABILITIES for mask in struct.unpack("=3I", held.raw[:12])]
    libc.capset(head, struct.pack("=6I", *kept, 0, 0, 0))


def _landlock_version(libc: ctypes.CDLL) -> int:
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def _restrict_files(libc: ctypes.CDLL, version: int, sandbox: Sandbox) -> None:
    handled = sum(rights for since, rights in _CHANGES if version >= since)
    scope = (_TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    wanted = struct.pack("=3Q", handled, *scope)
    size = 8 * (1 + (version >= 4) + (version >= 6))
    ruleset = libc.syscall(_CREATE_RULESET, wanted, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    writable = (sandbox.folder, *sandbox.writable, f"/proc/{os.getpid()}", *_devices())
    readable = (*_SYSTEM, *_installed(), *sandbox.readable)
    for paths, rights in ((writable, handled), (readable, _READING), ((sandbox.listed,), _LIST)):
        for path in paths:
            _allow(libc, ruleset, path, rights)
    if libc.syscall(_RESTRICT_SELF, ruleset, 0):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Add a rule; a path that does not exist, or that Landlock does not know, has none."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        rights &= _OF_FILES
    libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, place), 0)
    os.close(place)


def _devices() -> Iterator[str]:
    for pattern in _DEVICES:
        yield from map(str, Path("/dev").glob(pattern))


def _installed() -> Iterator[str]:
    """Where Python, its packages, this project and the libraries named in the environment are.

    Of a checkout only the packages: beside them lie its user's runs.
    """
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix)
    imported = {name.partition(".")[0] for name in sys.modules}
    yield from (str(place) for place in _ROOT.iterdir() if place.stem in imported)
    searched = {Path(entry) for entry in sys.path if entry}
    if _ROOT.name != "site-packages":
        searched.discard(_ROOT)
    home = Path(os.environ.get("HOME", "/"))
    named = {Path(path) for path in _named_paths(os.environ)}
    yield from (str(path) for path in searched | named if path not in (home, *home.parents))


def _named_paths(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if name not in _NOT_READ:
            yield from (part for part in value.split(os.pathsep) if part.startswith("/"))


def _filter_calls(
    libc: ctypes.CDLL,
    architecture: int,
    refused: Sequence[int],
    limited: Sequence[tuple[int, int, Sequence[int]]],
) -> None:
    """Refuse calls, and those that are ``limited`` but for some values of one of their arguments.

    Args:
        libc: the C library.
        architecture: as seccomp names it.
        refused: numbers of calls.
        limited: number, argument from 0, and its values that are allowed.
    """
    refuse = 4 + len(refused) + sum(3 + len(values) for _, _, values in limited) + 1
    allow = refuse - 1
    program: list[tuple[int, int, int | None, int | None]] = [
        (_LOAD, _ARCHITECTURE, None, None),
        (_EQUAL, architecture, None, refuse),
        (_LOAD, _NUMBER, None, None),
        (_AT_LEAST, _X32_BIT, refuse, None),
        *((_EQUAL, number, refuse, None) for number in refused),
    ]
    for number, argument, values in limited:
        program += [
            (_EQUAL, number, None, len(program) + 3 + len(values)),
            (_LOAD, _ARGUMENTS[argument], None, None),
            *((_EQUAL, value, allow, None) for value in values),
            (_RETURN, _ERROR | errno.EPERM, None, None),
        ]
    program += [(_RETURN, _ALLOW, None, None), (_RETURN, _ERROR | errno.EPERM, None, None)]
    lines = b"".join(
        struct.pack("=HBBI", code, *((to or at + 1) - at - 1 for to in (yes, no)), value)
        for at, (code, value, yes, no) in enumerate(program)
    )
    held = ctypes.create_string_buffer(lines)
    head = struct.pack("@HP", len(program), ctypes.addressof(held))
    libc.prctl(_PR_SET_SECCOMP, _FILTER, head, 0, 0)
