"""CUDA devices by architecture alone, for judging a candidate where there is no GPU.

Owns one table: the limits per compute capability, from the technical specifications of the CUDA C++
Programming Guide, with the size of one well-known card of each architecture.
"""

from tuner.device import Device
from tuner.errors import SpecError

#: What CUDA devices can hold in a buffer.
DTYPES = tuple(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "float8_e4m3 float8_e5m2".split()
)

NO_DRIVER = "none: limits from the table of architectures"
"""What stands for the driver of a device that is not here."""

BASE_ALIGN = 256
"""The least alignment of a fresh allocation, in bytes."""

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

#: architecture → card, multiprocessors, threads and blocks per multiprocessor,
#: shared memory per block and per multiprocessor in KiB, L2 in MiB, memory in GiB.
_CARDS: dict[str, tuple[str, int, int, int, int, int, int, int]] = {
    "sm_80": ("NVIDIA A100-SXM4-80GB", 108, 2048, 32, 163, 164, 40, 80),
    "sm_86": ("NVIDIA A10", 72, 1536, 16, 99, 100, 6, 24),
    "sm_89": ("NVIDIA L4", 58, 1536, 24, 99, 100, 48, 24),
    "sm_90": ("NVIDIA H100 80GB HBM3", 132, 2048, 32, 227, 228, 50, 80),
    "sm_100": ("NVIDIA B200", 148, 2048, 32, 227, 228, 126, 180),
    "sm_120": ("NVIDIA GeForce RTX 5090", 170, 1536, 24, 99, 100, 96, 32),
}

ARCHITECTURES = tuple(_CARDS)


def device_for(arch: str) -> Device:
    """A device of an architecture such as ``sm_90``, without asking any driver.

    Raises:
        SpecError: the table does not hold it.
    """
    try:
        name, multiprocessors, threads, blocks, shared, shared_all, l2, memory = _CARDS[arch]
    except KeyError:
        raise SpecError(
            f"unknown target {arch!r}; the targets are {', '.join(ARCHITECTURES)}"
        ) from None
    return Device(
        backend="cuda",
        name=name,
        arch=arch,
        is_cpu=False,
        driver=NO_DRIVER,
        max_threads_per_block=1024,
        max_block=(1024, 1024, 64),
        max_grid=(2**31 - 1, 65535, 65535),
        warp_size=32,
        multiprocessors=multiprocessors,
        max_shared_bytes_per_block=shared * _KIB,
        shared_bytes_per_multiprocessor=shared_all * _KIB,
        registers_per_multiprocessor=65536,
        max_registers_per_block=65536,
        max_registers_per_thread=255,
        max_threads_per_multiprocessor=threads,
        max_blocks_per_multiprocessor=blocks,
        l2_bytes=l2 * _MIB,
        memory_bytes=memory * _GIB,
        compute_capability=int(arch.removeprefix("sm_")),
        base_align=BASE_ALIGN,
        dtypes=DTYPES,
    )
