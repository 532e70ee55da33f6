"""What one machine offers a run: devices, compilers, packages, rights and folders.

Made on this machine, or by a task on each node of a cluster. Imports no Ray.
"""

import importlib.metadata
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from cluster.settings import Settings
from kernelwright import __version__
from tuner.backends.registry import backends
from tuner.device import Device
from tuner.errors import EnvironmentProblem, KernelwrightError
from tuner.files import check_folder
from workers.backends.registry import adapter_of, device_for_target
from workers.compilers.worker import CompileWorker
from workers.confinement import unprotected
from workers.devices.discover import Found, list_devices
from workers.forking import ChildFailed

PACKAGES = ("ray", "numpy", "hyperopt", "litellm")

TARGET = "sm_90"
"""What is compiled for where there is no device."""

READY = "ready"
"""What is said of a compiler that compiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One machine. ``packages`` has ``None`` for what is not installed.

    ``checkers``, ``compilers`` and ``profilers`` have, by backend, what there is or why there is
    none. ``runs`` is the folder of run directories and whether it can be written; ``ray_token``
    whether Ray's processes here ask for a token.
    """

    host: str
    version: str
    python: str
    cpus: int
    packages: dict[str, str | None]
    devices: tuple[Found, ...]
    compilers: dict[str, str] = field(default_factory=dict)
    checkers: dict[str, str] = field(default_factory=dict)
    profilers: dict[str, str] = field(default_factory=dict)
    sandbox: tuple[str, ...]
    runs: str
    ray_token: bool


REPORT = TypeAdapter(NodeReport)


def node_report(settings: Settings) -> NodeReport:
    """The report of the machine that this process runs on."""
    found = list_devices()
    known = {one.backend: one.device for one in found if one.device}
    packages = {name: _version(name) for name in PACKAGES}
    compilers = {}
    for backend in backends():
        names = (*backend.distributions, *backend.optional_distributions)
        packages |= {name: _version(name) for name in names}
        if all(packages[name] for name in backend.distributions):
            compilers[backend.name] = _compiler(backend.name, known.get(backend.name))
    return NodeReport(
        host=platform.node(),
        version=__version__,
        python=platform.python_version(),
        cpus=len(os.sched_getaffinity(0)),
        packages=packages,
        devices=found,
        compilers={name: words for name, words in compilers.items() if words},
        checkers={name: _checkers(device) for name, device in known.items()},
        profilers={name: words for name in known if (words := _profiler(name))},
        sandbox=tuple(unprotected()),
        runs=_runs(settings),
        ray_token=settings.ray_token,
    )


def _compiler(backend: str, device: Device | None) -> str:
    """Whether a backend compiles here, empty where it cannot be tried without a device."""
    if device is None:
        if adapter_of(backend).device_for_target is None:
            return ""
        device = device_for_target(backend, TARGET)
    try:
        with CompileWorker(device) as worker:
            worker.ready()
    except (ChildFailed, KernelwrightError) as problem:
        return str(problem)
    return READY


def _checkers(device: Device) -> str:
    """The memory and race checkers for a device, or how to get one."""
    adapter = adapter_of(device.backend)
    names = [tool.name for tool in adapter.checkers(device, Path())]
    return ", ".join(names) or adapter.checkers_missing


def _profiler(backend: str) -> str:
    """The profiler of a backend, or why counters cannot be read; empty where none is known."""
    adapter = adapter_of(backend)
    if adapter.profiler is None:
        return ""
    found = adapter.profiler(Path())
    if isinstance(found, str):
        return found
    refused = None if adapter.counters_refused is None else adapter.counters_refused()
    return refused or found.tool.name


def _runs(settings: Settings) -> str:
    try:
        folder = settings.lasting(None, Path("runs", "run"), "--run-dir").parent
        check_folder(folder)
    except (EnvironmentProblem, RuntimeError) as problem:
        return str(problem)
    return f"{folder} is writable"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
