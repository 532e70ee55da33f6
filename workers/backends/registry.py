"""The adapters by backend. A new one is added to :data:`MODULES`, or registered."""

from importlib import import_module
from typing import TYPE_CHECKING

from tuner.backends.registry import backends, traits_of
from tuner.errors import SpecError

if TYPE_CHECKING:  # the command line imports this module, and must answer at once
    from tuner.device import Device
    from workers.backends.port import BackendAdapter

MODULES = {
    "cuda": "workers.backends.cuda.adapter",
    "opencl": "workers.backends.opencl.adapter",
}


def register(name: str, module: str) -> None:
    """Add the adapter of a backend, or replace it; child processes import it by this name."""
    MODULES[name] = module


def module_of(name: str) -> str:
    """The module of a backend's adapter."""
    return MODULES[name]


def preloaded_modules(name: str) -> tuple[str, ...]:
    """What to import before the child processes of a backend are forked."""
    return (module_of(name), *traits_of(name).preloaded_packages)


def load(module: str) -> "BackendAdapter":
    """The adapter in a module."""
    adapter: BackendAdapter = import_module(module).ADAPTER
    return adapter


def adapter_of(name: str) -> "BackendAdapter":
    """The adapter of a backend."""
    return load(module_of(name))


def device_for_target(backend: str, target: str) -> "Device":
    """The device model of an architecture, such as ``sm_90``, without any such device.

    Raises:
        SpecError: the architecture is unknown, or the backend compiles for none.
    """
    make = adapter_of(backend).device_for_target
    if make is None:
        titles = [one.title for one in backends() if one.example_target]
        raise SpecError(f"--target {target} is for {' or '.join(titles)}; this kernel is {backend}")
    return make(target)
