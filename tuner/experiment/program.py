"""The part of an experiment that says what is launched: the kernel, its build and its launches.

Dataclasses as in :mod:`tuner.experiment.model`, which the rest of the project imports them from.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from tuner.experiment.contents import STRICT, Name
from tuner.experiment.fields import BackendName, BinaryFile, OneOrMany, SourceFile
from tuner.expressions import Expression

NO_BYTES = Expression.constant(0)
NEVER = Expression.constant(False)

Axes = Annotated[tuple[Expression, ...], OneOrMany(1, 3)]
MacroText = Annotated[str, Field(pattern=r"^[\w.:<>+\-*/() ]*$", max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    grid: Axes
    """Blocks (work-groups) per axis: one to three expressions."""
    block: Axes
    """Threads (work-items) per block and axis: one to three expressions."""
    shared_bytes: Expression = NO_BYTES
    """Dynamic shared memory per block, in bytes."""
    cooperative: bool = False
    """Launch all blocks at once, for a kernel that synchronises the whole grid."""
    dependent: Expression = NEVER
    """Whether the kernel may begin before the kernel ahead of it has ended (programmatic dependent
    launch), as an expression. It must not read or write memory before `griddepcontrol.wait`
    (`cudaGridDependencySynchronize`)."""
    cluster: Annotated[tuple[Expression, ...], OneOrMany(0, 3)] = ()
    """Blocks per cluster and axis, at most 8 in all; the grid is a multiple on each axis."""
    entry: str | None = None
    """The kernel to launch, if it is not the `entry` beside `launches`."""
    arguments: tuple[Name, ...] | None = None
    """Names of the arguments that this launch takes, in order; all by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memset:
    """Fill one buffer with a byte, as a step between launches."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    memset: Name
    """Name of the buffer to fill."""
    byte: Annotated[int, Field(ge=0, le=255)] = 0
    """The byte that fills it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBinary:
    """The kernel as machine code."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    file: BinaryFile
    """A cubin, a fatbin or PTX."""
    symbols: dict[str, str] = field(default_factory=dict)
    """Name in the binary of each `entry`, as `cuobjdump -symbols` lists it. Without it the entry is
    looked up by its own name, then as the only kernel whose C++ name is the entry's."""


def _as_file(given: object) -> object:
    return {"file": given} if isinstance(given, str) else given


def first_entry(steps: "tuple[Launch | Memset, ...]") -> str:
    """The entry of the first launch, where every launch names its own; empty otherwise."""
    entries = [step.entry or "" for step in steps if isinstance(step, Launch)]
    return entries[0] if entries and all(entries) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The baseline: the user's source as the application builds and launches it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    language: BackendName
    """The backend that compiles and runs the kernel."""
    source: SourceFile
    """The source file, as your application builds it. In CUDA, host code in it is left out.
    Headers beside it are found."""
    entry: str = ""
    """Name of the kernel; in CUDA also an instantiation such as `ns::kernel<float, 4>`. `{NAME}` in
    it stands for a symbol: `kernel<{T}, {D}>` is instantiated with each shape's type and integer.
    Not needed if every launch names its own."""
    include_dirs: tuple[str, ...] = ()
    """Folders searched for included headers, relative to the spec. Headers are recorded by
    content; none outside these and the source's folder is read."""
    headers: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    """Compiler options that your application uses."""
    defines: dict[Name, MacroText] = field(default_factory=dict)
    """Macros that your application's build sets, with their text, for the kernel and templates."""
    compiler: Literal["", "nvcc"] = ""
    """`nvcc` compiles the very file with the installed CUDA toolkit. By default NVRTC compiles its
    device code, which needs no toolkit and no C++ compiler."""
    compile_commands: str | None = None
    """A `compile_commands.json` that has the source: its include folders, options and macros are
    added to those given here."""
    binary: Annotated[KernelBinary, BeforeValidator(_as_file)] | None = None
    """The machine code that your application runs: a file (cubin, fatbin or PTX), or `{file,
    symbols}`. It is then the baseline: what is timed, and what results are compared with. `source`
    is what templates are written from, and is not compiled itself."""
    launch: Launch | None = None
    """How your application launches the kernel. Give this or `launches`."""
    launches: tuple[Launch | Memset, ...] = ()
    """Several launches and memsets, run in order and timed as one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry", self.entry or first_entry(self.steps))

    @property
    def steps(self) -> tuple[Launch | Memset, ...]:
        """The launches in order."""
        return self.launches or ((self.launch,) if self.launch else ())
