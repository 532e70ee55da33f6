"""Which devices this machine has, found in a short-lived child so that no driver is loaded here.

That child runs :func:`main` of this module; its arguments are the backend and the adapter.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from tuner.backends.registry import backends as known_backends
from tuner.device import Device
from tuner.errors import EnvironmentProblem
from workers.backends.port import BackendAdapter
from workers.backends.registry import load, module_of, preloaded_modules
from workers.channel import Channel
from workers.child_environment import private_environment
from workers.forking import ChildFailed
from workers.process import Child
from workers.scratch import PrivateFolder

_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One device, or why a backend has none: exactly one of ``device`` and ``problem`` is set.

    ``index`` is what :class:`workers.bench.device_bench.DeviceBench` takes; -1 if the whole backend
    failed.
    """

    backend: str
    index: int
    device: Device | None = None
    problem: str | None = None


_FOUND = TypeAdapter(tuple[Found, ...])
_KNOWN: dict[str, tuple[Found, ...]] = {}
_LOOKING = threading.Lock()
"""Held while devices are looked for, so that a second thread finds them remembered."""


def list_devices(backends: Sequence[str] | None = None) -> tuple[Found, ...]:
    """All devices of these backends (all by default), in order.

    A backend that is not installed or finds no driver is one entry with its problem. Devices that
    were found are remembered for as long as this process lives.
    """
    names = [traits.name for traits in known_backends()] if backends is None else backends
    with _LOOKING:
        return tuple(found for backend in names for found in _KNOWN.get(backend) or find(backend))


def find(backend: str) -> tuple[Found, ...]:
    """All devices of one backend, asked anew."""
    found = _ask(backend)
    if all(one.device is not None for one in found):
        _KNOWN[backend] = found
    return found


def _ask(backend: str) -> tuple[Found, ...]:
    folder = PrivateFolder("discover")
    child = Child(
        "workers.devices.discover",
        [backend, module_of(backend)],
        environment=private_environment(backend, folder.path),
        preload=preloaded_modules(backend),
    )
    try:
        text, _ = child.request(b"list", timeout=_SECONDS, limit=0, attempts=2)
        return _FOUND.validate_json(text)
    except (ChildFailed, ValidationError) as failure:
        return (_problem(backend, -1, f"looking for devices failed: {failure}"),)
    finally:
        child.close()
        folder.remove()


def _look(backend: str, adapter: BackendAdapter) -> tuple[Found, ...]:
    try:
        count = adapter.count_devices()
    except EnvironmentProblem as problem:
        return (_problem(backend, -1, str(problem)),)
    found = []
    for index in range(count):
        try:
            device = adapter.open_device(index).device
            found.append(Found(backend=backend, index=index, device=device))
        except EnvironmentProblem as problem:
            found.append(_problem(backend, index, str(problem)))
    return tuple(found)


def _problem(backend: str, index: int, text: str) -> Found:
    return Found(backend=backend, index=index, problem=text)


def main(channel: Channel, arguments: Sequence[str]) -> None:
    """Answer one request."""
    backend, module = arguments
    channel.send(b"ready")
    channel.receive(0)
    channel.send(_FOUND.dump_json(_look(backend, load(module))))
