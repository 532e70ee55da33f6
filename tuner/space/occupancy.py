"""Occupancy of a multiprocessor by its backend's allocation rules."""

from tuner.backends.registry import traits_of
from tuner.backends.traits import RegisterAllocation
from tuner.device import Device


def occupancy(device: Device, threads: int, registers: int, shared_bytes: int) -> float:
    """The share of a multiprocessor's warps that a launch keeps resident, 0 to 1.

    Args:
        device: a device model whose backend has allocation rules.
        threads: threads per block.
        registers: 32-bit registers per thread, from the compiler's report.
        shared_bytes: static and dynamic shared memory per block.

    Returns:
        0 where the launch would fail.
    """
    allocation = _allocation(device)
    warps = _warps(threads, device)
    capacity = device.max_threads_per_multiprocessor // device.warp_size
    shared = _round_up(shared_bytes + allocation.shared_reserved, allocation.shared_unit)
    blocks = [
        capacity // warps,
        device.max_blocks_per_multiprocessor,
        device.shared_bytes_per_multiprocessor // shared,
    ]
    too_many_registers = (
        registers_per_block(threads, registers, device) > device.max_registers_per_block
    )
    if too_many_registers or shared_bytes > device.max_shared_bytes_per_block:
        return 0.0
    if registers:
        partition = device.registers_per_multiprocessor // allocation.sub_partitions
        fitting = partition // _registers_per_warp(registers, device)
        blocks.append(fitting * allocation.sub_partitions // warps)
    return min(blocks) * warps / capacity


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
