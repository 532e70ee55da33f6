"""The backends by name. A new one is added to :data:`TRAITS`, or registered."""

from tuner.backends.cuda import CUDA
from tuner.backends.opencl import OPENCL
from tuner.backends.traits import BackendTraits

TRAITS = {traits.name: traits for traits in (CUDA, OPENCL)}
"""By name."""


def register(traits: BackendTraits) -> None:
    """Add a backend, or replace the one of that name."""
    TRAITS[traits.name] = traits


def backends() -> tuple[BackendTraits, ...]:
    """All backends, in the order in which devices are looked for."""
    return tuple(TRAITS.values())


def traits_of(name: str) -> BackendTraits:
    """The traits of a backend; raises ``ValueError`` that names the known ones."""
    try:
        return TRAITS[name]
    except KeyError:
        known = ", ".join(one.name for one in backends())
        raise ValueError(f"unknown backend {name!r}; there are: {known}") from None
