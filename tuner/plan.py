"""Builds and launches of one configuration, with every expression evaluated.

A :class:`Plan` is all that compilers and benches see of a candidate: builds (source, integer
defines, options) and, per shape, the launches. :mod:`tuner.space.lower` makes it.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

from tuner.device import Backend
from tuner.trial import Infeasible, Value

Dim3 = tuple[int, int, int]
Shape = dict[str, Value]
"""Values of the symbols: sizes, and names of element types for type symbols."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """All inputs of a compilation; its digest is the key of every compile cache.

    ``defines`` are integer literals (``-DNAME=value``), ``options`` come from the whitelist,
    ``headers`` has the include name and text of each allowed file, ``entries`` the kernel names or
    C++ name expressions that the result must contain, ``variables`` the names of the module's
    variables that it must. With ``image`` (machine code, packed as :func:`tuner.files.packed` does)
    nothing is compiled, and ``symbols`` has the name in the image of each entry and variable whose
    name there is known. ``compiler`` is not the backend's own if it is named, and ``macros`` are
    those of the application's build.
    """

    language: Backend
    file: str
    source: str
    entries: tuple[str, ...]
    defines: tuple[tuple[str, int], ...] = ()
    options: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()
    image: str = ""
    symbols: tuple[tuple[str, str], ...] = ()
    compiler: str = ""
    macros: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 over every field, as hex."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStep:
    """One kernel launch: ``grid`` counts blocks and ``block`` threads, on every backend.

    ``arguments`` names the arguments in the entry's order, ``argument_bytes`` gives the size at
    which each is passed, pointers included; empty where that is unknown. A ``dependent`` one may
    begin before the step ahead of it has ended; ``cluster`` counts blocks.
    """

    kind: Literal["kernel"] = "kernel"
    entry: str
    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    cooperative: bool = False
    dependent: bool = False
    cluster: Dim3 = (1, 1, 1)
    arguments: tuple[str, ...]
    argument_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemsetStep:
    """Fill one buffer with a byte; timed as part of the run."""

    kind: Literal["memset"] = "memset"
    argument: str
    byte: int


Step = KernelStep | MemsetStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """A scratch buffer that a template appends: undefined contents, never compared."""

    name: str
    dtype: str
    elements: int
    align: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """How to run the candidate on one shape: index of its build, launches, scratch buffers.

    ``variables`` has the bytes that are copied to each variable of the module before a launch.
    """

    kind: Literal["cell"] = "cell"
    build: int
    steps: tuple[Step, ...]
    scratch: tuple[Scratch, ...] = ()
    variables: tuple[tuple[str, int], ...] = ()

    @property
    def dependent_steps(self) -> tuple[int, ...]:
        """Indices of the steps that may begin before what is ahead of them has ended."""
        numbered = enumerate(self.steps)
        return tuple(n for n, step in numbered if isinstance(step, KernelStep) and step.dependent)

    @property
    def serialised(self) -> "CellPlan":
        """The same steps, each after the end of the one before."""
        steps = (
            replace(s, dependent=False) if isinstance(s, KernelStep) else s for s in self.steps
        )
        return replace(self, steps=tuple(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The distinct builds of one configuration, and one entry of ``cells`` per shape."""

    builds: tuple[Build, ...]
    cells: tuple[CellPlan | Infeasible, ...]

    @property
    def dependent(self) -> bool:
        """Whether it is launched dependently on some shape."""
        return any(isinstance(cell, CellPlan) and cell.dependent_steps for cell in self.cells)

    @property
    def serialised(self) -> "Plan":
        """The same plan, each launch after the end of the one before."""
        cells = (c.serialised if isinstance(c, CellPlan) else c for c in self.cells)
        return replace(self, cells=tuple(cells))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Resources of a compiled kernel, ``u(θ;h)``, as the compiler reports; ``None`` if unknown.

    Registers are 32-bit per thread; the rest is in bytes, spills and stack per thread.
    ``noncoherent`` has the indices of pointer parameters that it certainly reads through the
    non-coherent cache (``__ldg``, ``const __restrict__``); ``written`` those that it certainly
    writes, known only if ``noncoherent`` is not empty. ``mix`` counts the static instructions by
    kind, most frequent first. ``parameter_bytes`` has the size of each parameter.
    """

    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    static_shared_bytes: int | None = None
    max_threads_per_block: int | None = None
    noncoherent: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    mix: tuple[tuple[str, int], ...] = ()
    parameter_bytes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A compiled build: machine code, and usage by entry.

    ``symbols`` maps each entry and variable to its name in the binary (C++ names are mangled);
    ``variable_bytes`` has the variables' sizes. ``persists`` tells whether the code can make the
    last-level cache keep lines beyond a launch. ``reaches`` names features that it uses beyond its
    arguments, such as a clock. ``lasting`` has the sizes in bytes of variables that keep what a
    launch writes, by their names in the binary, where they can be reset. ``shares`` and
    ``synchronises`` are false where the code certainly names no shared memory, and certainly has no
    barrier and synchronises no warp.
    """

    build: str
    code: bytes
    usage: tuple[tuple[str, Usage], ...]
    symbols: tuple[tuple[str, str], ...]
    compile_seconds: float
    persists: bool = False
    reaches: tuple[str, ...] = ()
    variable_bytes: tuple[tuple[str, int], ...] = ()
    lasting: tuple[tuple[str, int], ...] = ()
    shares: bool = True
    synchronises: bool = True
