"""A device model and its limits ``r(h)``, as plain data.

Workers fill a :class:`Device` from the driver or from a table by architecture; expressions read it
as ``device.<name>``.
"""

from dataclasses import dataclass

Backend = str
"""A name in :mod:`tuner.backends.registry`."""

EXPRESSION_ATTRIBUTES = tuple(
    "max_threads_per_block warp_size multiprocessors max_shared_bytes_per_block"
    " shared_bytes_per_multiprocessor registers_per_multiprocessor max_registers_per_block l2_bytes"
    " compute_capability name".split()
)
"""The attributes that an expression may read as ``device.<name>``."""

_FIRST_WITH_ATTRIBUTES = 90
"""The first compute capability with clusters and programmatic dependent launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device model and its limits.

    Sizes are in bytes; ``max_block`` and ``max_grid`` are per axis (x, y, z), in threads and
    blocks; registers are 32-bit, 0 where unknown; ``compute_capability`` is ``10 * major + minor``
    on CUDA (90 for an H100), else 0. ``arch`` is the compiler's target (``sm_90``), ``base_align``
    the alignment of an allocation, ``memory_bytes_per_second`` the pin bandwidth (0 if unknown).
    """

    backend: Backend
    name: str
    arch: str
    is_cpu: bool
    driver: str
    max_threads_per_block: int
    max_block: tuple[int, int, int]
    max_grid: tuple[int, int, int]
    warp_size: int
    multiprocessors: int
    max_shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    registers_per_multiprocessor: int
    max_registers_per_block: int
    max_registers_per_thread: int
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    l2_bytes: int
    memory_bytes: int
    compute_capability: int
    base_align: int
    dtypes: tuple[str, ...]
    memory_bytes_per_second: float = 0.0

    @property
    def has_launch_attributes(self) -> bool:
        """Whether kernels can be launched dependently and in clusters."""
        return self.compute_capability >= _FIRST_WITH_ATTRIBUTES

    @property
    def model(self) -> str:
        """Backend and name: devices of one model share results."""
        return f"{self.backend}:{self.name}"
