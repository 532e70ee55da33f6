"""Which devices this machine has, asked in a short-lived child so that no driver is loaded here."""

import importlib
from dataclasses import dataclass
from typing import cast

from tuner.device import Backend, Device
from workers.devices.port import DeviceBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One device, or why a backend has none: exactly one of ``device`` and ``problem`` is set.

    ``index`` is what :class:`workers.bench.bench.Bench` takes; -1 where the whole backend failed.
    """

    backend: Backend
    index: int
    device: Device | None = None
    problem: str | None = None


def list_devices(backends: tuple[Backend, ...] = ("cuda", "opencl")) -> tuple[Found, ...]:
    """All devices of these backends, in order.

    A backend that is not installed or finds no driver is one entry with its problem.
    """
    raise NotImplementedError


def open_device(backend: Backend, index: int) -> DeviceBackend:
    """Open a device in this process: for children only.

    Raises:
        EnvironmentProblem: no such device, no driver or no package.
    """
    module = importlib.import_module(f"workers.devices.{backend}")
    return cast("DeviceBackend", module.open_device(index))
