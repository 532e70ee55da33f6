"""The fork server: imports what child processes need once, and forks them, each in milliseconds.

Run as ``python -P -m workers.fork_server REQUESTS PARENT`` by :mod:`workers.forking`. It stays
single-threaded and initialises no driver, since neither survives a fork. It dies with its parent,
and its children die with it.

A request on the socket ``REQUESTS`` is a JSON text with three descriptors: the child's channel, its
log and a status socket; one without descriptors only asks for imports. The child reports its
process id on the status socket once it is set up; the server then reports how it ended. The parent
closes the socket when it needs the process id no more. Only then is the child reaped, so that the
id names no other process before.
"""

import ctypes
import gc
import itertools
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from workers.channel import Channel
from workers.confinement import Sandbox, enter
from workers.process_tree import TREE_VARIABLE

MAX_REQUEST = 1 << 20
"""Bytes of a request; more than a socket's buffer takes."""
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class _Forked:
    """A child; ``status`` is its socket, ``None`` once the parent has closed it."""

    pid: int
    status: int | None
    ended: bool = False


class _ForkServer:
    """Forks on request, and reports and reaps what it forked."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: list[_Forked] = []
        self._imported: set[str] = set()
        self._tag_address = _tag_address()
        self._wakeups, written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # not as the spawning thread had it
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(written)
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)
        self._poll.register(self._wakeups, select.POLLIN)

    def serve(self) -> Callable[[], None]:
        """Serve until the parent is gone. In a forked child, return what it has to run."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._wakeups:
                    os.read(self._wakeups, 4096)
                elif descriptor != self._requests.fileno():
                    self._forget(descriptor)
                else:
                    text, descriptors, _, _ = socket.recv_fds(self._requests, MAX_REQUEST, 3)
                    if not text:
                        return sys.exit
                    request = json.loads(text)
                    if not descriptors:
                        self._import(request["preload"])
                    elif run := self._fork(request, *descriptors):
                        return run
            self._report_and_reap()

    def _fork(
        self, request: dict[str, Any], channel: int, log: int, status: int
    ) -> Callable[[], None] | None:
        self._import([*request["preload"], request["module"]])
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            _send(status, {"error": f"cannot fork: {error.strerror}"})
            pid = -1
        if pid == 0:
            self._become_child(request, server, channel, log)
            _send(status, {"pid": os.getpid()})
            _close_all_but(0, 1, 2, channel)
            return partial(_run, request, channel)
        os.close(channel)
        os.close(log)
        if pid < 0:
            os.close(status)
        else:
            self._children.append(_Forked(pid, status))
            self._poll.register(status, 0)
        return None

    def _import(self, names: list[str]) -> None:
        new = [name for name in names if name not in self._imported]
        for name in new:
            with suppress(Exception):  # raised again in the child, whose log shows it
                import_module(name)
        if new:
            self._imported.update(new)
            gc.collect()
            gc.freeze()

    def _become_child(self, request: dict[str, Any], server: int, channel: int, log: int) -> None:
        """Undo what is the server's, and take over what the request gives."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        tie_to_parent(server)
        self._requests.close()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.set_inheritable(channel, False)
        environment: dict[str, str] = request["environment"]
        os.environ.update(environment)
        tag = _tag_entry(environment[TREE_VARIABLE])
        ctypes.memmove(self._tag_address, tag, len(tag))
        if numpy_random := sys.modules.get("numpy.random"):
            numpy_random.seed()  # the module ``random`` does this itself

    def _forget(self, status: int) -> None:
        """The parent has closed a status socket."""
        self._poll.unregister(status)
        os.close(status)
        for one in self._children:
            if one.status == status:
                one.status = None

    def _report_and_reap(self) -> None:
        for one in list(self._children):
            if not one.ended:
                flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
                ending = os.waitid(os.P_PID, one.pid, flags)
                if ending is None:
                    continue
                one.ended = True
                exited = ending.si_code == os.CLD_EXITED
                if one.status is not None:
                    status = ending.si_status if exited else -ending.si_status
                    _send(one.status, {"status": status})
            if one.status is None:
                os.waitpid(one.pid, 0)
                self._children.remove(one)


def tie_to_parent(parent: int) -> None:
    """Have this process killed when its parent ends; exit at once if that is gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _run(request: dict[str, Any], channel: int) -> None:
    run: Callable[[Channel, list[str]], None] = import_module(request["module"]).main
    if request["sandbox"] is not None:
        enter(Sandbox(**request["sandbox"]))
    run(Channel(socket.socket(fileno=channel)), request["arguments"])


def _send(status: int, message: dict[str, object]) -> None:
    with suppress(OSError):  # the parent has closed it meanwhile
        os.write(status, json.dumps(message).encode())


def _close_all_but(*kept: int) -> None:
    opened = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    for descriptor in set(opened).difference(kept):
        with suppress(OSError):  # the folder's own is closed already
            os.close(descriptor)


def _tag_entry(tag: str) -> bytes:
    return f"{TREE_VARIABLE}={tag}".encode()


def _tag_address() -> int:
    """Where the kernel keeps this process's tag, which ``/proc/PID/environ`` shows.

    ``os.environ`` changes copies. A child overwrites the original, so that descendants that never
    exec can be found by the tag as well.
    """
    entries = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    addresses: Iterator[int] = (entries[index] for index in itertools.count())
    for address in itertools.takewhile(bool, addresses):
        if ctypes.string_at(address).startswith(_tag_entry("")):
            return address
    raise LookupError(f"started without {TREE_VARIABLE}")


def main() -> None:
    """Serve, and in each forked child run its module."""
    requests, parent = int(sys.argv[1]), int(sys.argv[2])
    tie_to_parent(parent)
    _ForkServer(socket.socket(fileno=requests)).serve()()


if __name__ == "__main__":
    main()
