"""The adapters by backend. A new one is added to :data:`_MODULES`, or registered."""

from importlib import import_module

from workers.backends.port import BackendAdapter

_MODULES = {
    "cuda": "workers.backends.cuda.adapter",
    "opencl": "workers.backends.opencl.adapter",
}


def register(name: str, module: str) -> None:
    """Add the adapter of a backend, or replace it; child processes import it by this name."""
    _MODULES[name] = module


def module_of(name: str) -> str:
    """The module of a backend's adapter."""
    return _MODULES[name]


def load(module: str) -> BackendAdapter:
    """The adapter in a module."""
    adapter: BackendAdapter = import_module(module).ADAPTER
    return adapter


def adapter_of(name: str) -> BackendAdapter:
    """The adapter of a backend."""
    return load(module_of(name))
