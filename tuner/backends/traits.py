"""The record of what differs from backend to backend, apart from code that calls a driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Grammar = Literal["cuda", "opencl"]
"""Which words sources use for indices, barriers and address spaces."""

Feature = Literal[
    "cooperative", "dependent", "cluster", "dynamic_shared", "constant", "binary", "energy"
]
"""Features of the spec that a backend may lack."""


COMPILED_ELSEWHERE = dict.fromkeys(
    """__DATE__ __TIME__ __TIMESTAMP__ __FILE__ __FILE_NAME__ __BASE_FILE__ __LINE__
    __INCLUDE_LEVEL__""".split(),
    "an export, compiled elsewhere, could be another kernel than the one measured",
)
"""Macros that differ where the same source is compiled again, with the reason to refuse them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterAllocation:
    """How a multiprocessor hands out registers and shared memory.

    Registers go to warps in multiples of ``register_unit``, warps to ``sub_partitions`` in turn,
    shared memory in multiples of ``shared_unit`` bytes, with ``shared_reserved`` bytes per block
    kept by the system.
    """

    register_unit: int
    sub_partitions: int
    shared_unit: int
    shared_reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTraits:
    """One backend. Code that calls its compiler or driver is its adapter's, in ``workers``."""

    name: str
    """As in ``kernel.language`` and ``Device.backend``."""
    title: str
    """As people write it."""

    suffixes: tuple[str, ...]
    """Of source files; the first is that of exported ones."""
    grammar: Grammar
    kernel_qualifiers: tuple[str, ...]
    """Words that mark a kernel; the first is the usual one."""
    cpp_names: bool
    """Whether an entry may be a C++ name expression, such as ``ns::kernel<4>``."""
    type_names: Mapping[str, str]
    """Element types by dtype."""
    unsupported: Mapping[Feature, str]
    """Features of the spec that it lacks, with the message for users."""
    unsupported_parameters: Mapping[str, str]
    """Types of parameters that cannot be passed, with what they are."""

    options: Mapping[str, tuple[str, ...]]
    """Allowed compiler options with the values each takes; empty: it takes none."""
    register_cap_flag: str | None
    """The option that limits registers per thread."""
    block_size_attribute: Literal["exact", "upper_bound"]
    """Whether a kernel's attribute states its block size exactly, or only limits it."""

    forbidden_names: Mapping[str, str]
    """Words that no candidate may add, with the reason."""
    forbidden_patterns: Mapping[str, str]
    """The same by regular expression, matched against whole words."""
    dependence_names: frozenset[str]
    """Words that only a kernel launched dependently may add."""
    refuses_undefined_calls: bool
    """Whether functions that are declared but not defined would be looked up in the process."""

    equal_code_is_equal_kernel: bool
    """Whether equal kernels compile to equal bytes, whatever unused macros and comments say."""
    compiles_at_first_launch: bool
    """Whether the driver compiles a kernel again when it is first launched."""
    gpu_only: bool
    """Whether its devices are GPUs, which Ray counts."""
    example_target: str | None
    """An architecture that ``--target`` can compile for without a device; ``None``: there is none.
    """
    allocation: RegisterAllocation | None
    """``None``: occupancy and use of registers are not judged."""

    compile_seconds: float
    """To compile one small kernel on one core."""
    shape_seconds: float
    """For the first launch and the checks of one candidate on one small shape."""
    checker_seconds: float
    """To examine a winner with one memory and race checker, on the smallest shape."""
    checker_seconds_per_mib: float
    """What larger shapes take there in addition."""
    launch_floor_us: float
    """An empty launch, where it was not measured."""

    distributions: tuple[str, ...]
    """Python distributions whose version changes what a build becomes."""
    optional_distributions: tuple[str, ...] = ()
    """Others that it makes use of."""
    extra: str
    """The extra of this package that installs it, as in ``kernelwright[cpu]``."""
    offers: str
    """What that extra brings, for users without any device."""
    environment_prefixes: tuple[str, ...]
    """Beginnings of environment variables that child processes may see."""
    child_environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every child process."""
    preloaded_packages: tuple[str, ...] = ()
    """Python packages to import before child processes are forked.

    Their import starts no thread and no driver, and depends on no variable that differs by child.
    """
    cache_variables: tuple[str, ...] = ()
    """Environment variables that name the folder where a child process keeps compiled kernels."""

    def vector_elements(self, lanes: int) -> int:
        """How many elements a vector type takes in memory: OpenCL pads three to four."""
        return 4 if lanes == 3 and self.grammar == "opencl" else lanes

    def vector_align(self, item_bytes: int, lanes: int) -> int:
        """The alignment in bytes of a vector type, such as ``float4``, of so many elements."""
        if self.grammar == "opencl":
            return item_bytes * self.vector_elements(lanes)
        return item_bytes if lanes == 3 else min(16, item_bytes * lanes)
