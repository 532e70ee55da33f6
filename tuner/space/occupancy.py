"""How many blocks of a CUDA kernel fit on one multiprocessor, by the rules of NVIDIA's calculator.

Holds for compute capability 8.0 to 12.x, which share their allocation granularities: registers are
given to warps in units of 256, warps in groups of four (one per sub-partition), shared memory in
units of 128 bytes with 1 KiB kept by the system for each block.
"""

from dataclasses import dataclass
from typing import Literal

from tuner.device import Device

REGISTER_UNIT = 256
SUB_PARTITIONS = 4
SHARED_UNIT = 128
SHARED_RESERVED = 1024

Limiter = Literal["warps", "blocks", "registers", "shared memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Resident blocks and warps per multiprocessor; ``fraction`` of the device's warps, 0 to 1."""

    blocks: int
    warps: int
    fraction: float
    limiter: Limiter


def occupancy(device: Device, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Occupancy of a launch on a CUDA device.

    Args:
        device: a CUDA device model.
        threads: threads per block.
        registers: 32-bit registers per thread, from the compiler's report.
        shared_bytes: static and dynamic shared memory per block.

    Returns:
        Zero blocks where the launch would fail. Source: the *CUDA Occupancy Calculator*, and the
        technical specifications per compute capability in the CUDA C++ Programming Guide.
    """
    warps = _warps(threads, device)
    capacity = device.max_threads_per_multiprocessor // device.warp_size
    blocks: dict[Limiter, int] = {
        "warps": capacity // warps,
        "blocks": device.max_blocks_per_multiprocessor,
    }
    if registers_per_block(threads, registers, device) > device.max_registers_per_block:
        blocks["registers"] = 0
    elif registers:
        partition = device.registers_per_multiprocessor // SUB_PARTITIONS
        fitting = partition // _registers_per_warp(registers, device) * SUB_PARTITIONS
        blocks["registers"] = fitting // warps
    shared = _round_up(shared_bytes + SHARED_RESERVED, SHARED_UNIT)
    blocks["shared memory"] = (
        device.shared_bytes_per_multiprocessor // shared
        if shared_bytes <= device.max_shared_bytes_per_block
        else 0
    )
    limiter = min(blocks, key=lambda name: blocks[name])
    resident = blocks[limiter]
    return Occupancy(
        blocks=resident,
        warps=resident * warps,
        fraction=resident * warps / capacity,
        limiter=limiter,
    )


def registers_per_block(threads: int, registers: int, device: Device) -> int:
    """Registers that a block takes, with the granularity at which they are given out."""
    warps = _round_up(_warps(threads, device), SUB_PARTITIONS)
    return warps * _registers_per_warp(registers, device)


def _registers_per_warp(registers: int, device: Device) -> int:
    return _round_up(registers * device.warp_size, REGISTER_UNIT)


def _warps(threads: int, device: Device) -> int:
    return -(-threads // device.warp_size)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
