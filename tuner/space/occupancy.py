"""How many blocks of a kernel fit on one multiprocessor, by its backend's allocation rules."""

from dataclasses import dataclass
from typing import Literal

from tuner.backends.registry import traits_of
from tuner.backends.traits import RegisterAllocation
from tuner.device import Device

Limiter = Literal["warps", "blocks", "registers", "shared memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Resident blocks and warps per multiprocessor; ``fraction`` of the device's warps, 0 to 1."""

    blocks: int
    warps: int
    fraction: float
    limiter: Limiter


def occupancy(device: Device, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Occupancy of a launch.

    Args:
        device: a device model whose backend has allocation rules.
        threads: threads per block.
        registers: 32-bit registers per thread, from the compiler's report.
        shared_bytes: static and dynamic shared memory per block.

    Returns:
        Zero blocks where the launch would fail.
    """
    allocation = _allocation(device)
    warps = _warps(threads, device)
    capacity = device.max_threads_per_multiprocessor // device.warp_size
    blocks: dict[Limiter, int] = {
        "warps": capacity // warps,
        "blocks": device.max_blocks_per_multiprocessor,
    }
    if registers_per_block(threads, registers, device) > device.max_registers_per_block:
        blocks["registers"] = 0
    elif registers:
        partition = device.registers_per_multiprocessor // allocation.sub_partitions
        fitting = partition // _registers_per_warp(registers, device)
        blocks["registers"] = fitting * allocation.sub_partitions // warps
    shared = _round_up(shared_bytes + allocation.shared_reserved, allocation.shared_unit)
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
    warps = _round_up(_warps(threads, device), _allocation(device).sub_partitions)
    return warps * _registers_per_warp(registers, device)


def _registers_per_warp(registers: int, device: Device) -> int:
    return _round_up(registers * device.warp_size, _allocation(device).register_unit)


def _allocation(device: Device) -> RegisterAllocation:
    allocation = traits_of(device.backend).allocation
    assert allocation is not None
    return allocation


def _warps(threads: int, device: Device) -> int:
    return -(-threads // device.warp_size)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
