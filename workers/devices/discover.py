"""Which devices this machine has, asked in a short-lived child so that no driver is loaded here.

Run as ``python -m workers.devices.discover BACKEND`` it is that child.
"""

import importlib
from dataclasses import dataclass
from typing import cast

from pydantic import TypeAdapter, ValidationError

from tuner.device import Backend, Device
from tuner.errors import EnvironmentProblem
from workers.child_environment import opencl_caches
from workers.devices.port import DeviceBackend
from workers.process import Child, ChildFailed, serve_as_child
from workers.scratch import PrivateFolder

_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One device, or why a backend has none: exactly one of ``device`` and ``problem`` is set.

    ``index`` is what :class:`workers.bench.device_bench.Bench` takes; -1 where the whole backend
    failed.
    """

    backend: Backend
    index: int
    device: Device | None = None
    problem: str | None = None


_FOUND = TypeAdapter(tuple[Found, ...])


def list_devices(backends: tuple[Backend, ...] = ("cuda", "opencl")) -> tuple[Found, ...]:
    """All devices of these backends, in order.

    A backend that is not installed or finds no driver is one entry with its problem.
    """
    return tuple(found for backend in backends for found in _ask(backend))


def open_device(backend: Backend, index: int) -> DeviceBackend:
    """Open a device in this process: for children only.

    Raises:
        EnvironmentProblem: no such device, no driver or no package.
    """
    module = importlib.import_module(f"workers.backends.{backend}.device")
    return cast("DeviceBackend", module.open_device(index))


def _ask(backend: Backend) -> tuple[Found, ...]:
    folder = PrivateFolder("discover")
    child = Child("workers.devices.discover", [backend], environment=opencl_caches(folder.path))
    try:
        text, _ = child.request(b"list", timeout=_SECONDS, limit=0, lives=2)
        return _FOUND.validate_json(text)
    except (ChildFailed, ValidationError) as failure:
        return (_problem(backend, -1, f"looking for devices failed: {failure}"),)
    finally:
        child.close()
        folder.remove()


def _look(backend: Backend) -> tuple[Found, ...]:
    module = importlib.import_module(f"workers.backends.{backend}.device")
    try:
        count = module.count_devices()
    except EnvironmentProblem as problem:
        return (_problem(backend, -1, str(problem)),)
    found = []
    for index in range(count):
        try:
            device = open_device(backend, index).device
            found.append(Found(backend=backend, index=index, device=device))
        except EnvironmentProblem as problem:
            found.append(_problem(backend, index, str(problem)))
    return tuple(found)


def _problem(backend: Backend, index: int, text: str) -> Found:
    return Found(backend=backend, index=index, problem=text)


def main() -> None:
    """Answer one request."""
    channel, (backend,) = serve_as_child()
    channel.send(b"ready")
    channel.receive(0)
    channel.send(_FOUND.dump_json(_look(cast("Backend", backend))))


if __name__ == "__main__":
    main()
