"""What one configuration needs to be compiled and launched, with every expression evaluated.

A :class:`Plan` is all that compilers and benches see of a candidate: builds (source, integer
defines, options) and, per shape, the launch geometry. It is made by :mod:`tuner.space.lower` and
carries no expression, so nothing outside the domain evaluates one.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

from tuner.device import Backend
from tuner.trial import Infeasible, Value

Dim3 = tuple[int, int, int]
Shape = dict[str, Value]
"""One binding of the symbols: sizes, and element types where the experiment has type symbols."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Exactly what reaches the compiler; its digest is the key of every cache.

    ``defines`` are integer literals (``-DNAME=value``), ``options`` come from the whitelist,
    ``headers`` maps the include name of each allowed file to its text, ``entries`` are the kernel
    names, or C++ name expressions, that must be found in the result.
    """

    language: Backend
    file: str
    source: str
    entries: tuple[str, ...]
    defines: tuple[tuple[str, int], ...] = ()
    options: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 over every field, as hex."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStep:
    """One kernel launch: ``grid`` counts blocks and ``block`` threads, on every backend.

    ``arguments`` names the arguments in the entry's order.
    """

    kind: Literal["kernel"] = "kernel"
    entry: str
    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    cooperative: bool = False
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemsetStep:
    """Fill one buffer with a byte before what follows; timed together with it."""

    kind: Literal["memset"] = "memset"
    argument: str
    byte: int


Step = KernelStep | MemsetStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """A work buffer that a template appends: contents undefined, never compared."""

    name: str
    dtype: str
    elements: int
    align: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """How to run the candidate on one shape: which build, which launches, which scratch."""

    kind: Literal["cell"] = "cell"
    build: int
    steps: tuple[Step, ...]
    scratch: tuple[Scratch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One configuration made concrete: distinct builds, and one entry of ``cells`` per shape."""

    builds: tuple[Build, ...]
    cells: tuple[CellPlan | Infeasible, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a compiled kernel needs, ``u(θ;h)``, from the compiler's report; ``None``: not told.

    Registers are 32-bit per thread; the rest in bytes, spills and stack per thread. ``noncoherent``
    and ``written`` are the indices of pointer parameters that it surely reads past coherence
    (``__ldg``, ``const __restrict__``) and writes; known only of kernels that do the former.
    ``mix`` counts its instructions by kind, in the code and not as run, most frequent first.
    """

    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    static_shared_bytes: int | None = None
    max_threads_per_block: int | None = None
    noncoherent: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    mix: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A compiled build: raw machine code, and usage by entry.

    ``symbols`` maps each entry to its name in the binary (C++ names are mangled). ``persists``: the
    code can ask the last-level cache to keep lines beyond a launch. ``reaches`` names what it uses
    that reaches outside a kernel's work, such as a clock.
    """

    build: str
    code: bytes
    usage: tuple[tuple[str, Usage], ...]
    symbols: tuple[tuple[str, str], ...]
    compile_seconds: float
    persists: bool = False
    reaches: tuple[str, ...] = ()
