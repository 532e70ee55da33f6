"""The port of a backend: everything in ``workers`` that calls its compiler, driver and tools.

An adapter is a module with an ``ADAPTER``, named in :mod:`workers.backends.registry`. Importing it
loads no driver: functions import the vendor's packages when they are called. Devices and compilers
are opened in child processes only, which are given the module's name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.device import Device
from tuner.plan import Build
from workers.checkers.job import Job
from workers.checkers.tool import Profiler, Tool
from workers.compilers.port import Compiler
from workers.devices.occupants import Occupant
from workers.devices.port import DeviceBackend
from workers.loader.port import Runtime
from workers.replay.port import ReplayDevice

Size = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingKernels:
    """Kernels that show what a device can do at most.

    The build's entries are ``copy(to, from, count)``, which copies ``count`` times 16 bytes,
    ``nothing()``, and a ``product_<dtype>(c, a, b, n)`` of square matrices for each dtype in
    ``products``, which maps it to grid and block.
    """

    build: Build
    products: Mapping[str, tuple[Size, Size]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendAdapter:
    """One backend's functions; ``EnvironmentProblem`` where the machine lacks something."""

    count_devices: Callable[[], int]
    """How many devices this machine has."""
    open_device: Callable[[int], DeviceBackend]
    """Open one by index; obeys ``tests/conformance/device_backend.py``."""
    open_compiler: Callable[[Device], Compiler]
    """Open a compiler for a device model; obeys ``tests/conformance/compiler.py``."""
    empty_kernel: str
    """Source of a kernel ``nothing``, compiled once so that the first candidate does not wait."""
    device_for_target: Callable[[str], Device] | None
    """The device model of an architecture, without a device; raises ``SpecError``."""
    checkers: Callable[[Device, Path], tuple[Tool, ...]]
    """The checkers that this machine has; each logs to the path with its name added."""
    checkers_missing: str
    """How to get them."""
    open_under_checker: Callable[[int], Callable[[Job], None]]
    """Open a device by index in the process that a checker watches; returns what launches a
    candidate on it once."""
    profiler: Callable[[Path], Profiler | str] | None
    """A profiler that logs to the path, or why there is none; ``None`` where none is known."""
    counters_refused: Callable[[], str | None] | None
    """Why this user may not read hardware counters, as far as the driver says it."""
    ceilings: Callable[[Device, int], CeilingKernels]
    """Ceiling kernels for a device, and launches of products with so many rows."""
    open_runtime: Callable[[], Runtime] | None
    """Launch exported kernels in an application's process; ``None``: only C programs can."""
    occupants: Callable[[str], tuple[Occupant, ...]] | None
    """Other users' processes on the device of this identity, as far as they can be seen; makes no
    context on it. ``None`` where none can be listed."""
    open_replay: Callable[[int], ReplayDevice] | None
    """Open a device by index to replay captured launches; ``None``: launches cannot be captured."""
