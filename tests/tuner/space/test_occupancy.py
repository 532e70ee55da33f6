"""Occupancy against values that NVIDIA's calculator gives."""

import pytest

from tests.tuner.space.devices import cuda_device
from tuner.space.occupancy import occupancy, registers_per_block

SM_80 = cuda_device(80)
SM_86 = cuda_device(86)
SM_90 = cuda_device(90)
SM_120 = cuda_device(120)


@pytest.mark.parametrize(
    ("device", "threads", "registers", "shared", "blocks"),
    [
        (SM_80, 256, 32, 0, 8),
        (SM_80, 256, 64, 0, 4),
        (SM_80, 32, 16, 0, 32),
        (SM_80, 128, 32, 48 * 1024, 3),
        (SM_80, 1024, 65, 0, 0),
        (SM_80, 1024, 64, 0, 1),
        (SM_80, 256, 255, 0, 1),
        (SM_80, 96, 40, 0, 16),
        (SM_86, 256, 32, 0, 6),
        (SM_86, 32, 16, 0, 16),
        (SM_90, 1024, 32, 0, 2),
        (SM_90, 128, 168, 0, 3),
        (SM_90, 128, 32, 227 * 1024, 1),
        (SM_90, 128, 32, 227 * 1024 + 1, 0),
        (SM_90, 128, 32, 113 * 1024, 2),
        (SM_120, 1024, 32, 0, 1),
        (SM_120, 64, 32, 0, 24),
    ],
)
def test_known_values(device, threads, registers, shared, blocks):
    warps = blocks * -(-threads // 32)
    most = device.max_threads_per_multiprocessor // 32
    assert occupancy(device, threads, registers, shared) == pytest.approx(warps / most)


@pytest.mark.parametrize(
    ("threads", "registers", "needed"),
    [
        (1024, 64, 65536),
        (1024, 65, 73728),
        (32, 1, 4 * 256),
        (33, 32, 4 * 1024),
        (160, 32, 8 * 1024),
    ],
)
def test_registers_come_in_units_of_a_warp(threads, registers, needed):
    assert registers_per_block(threads, registers, SM_80) == needed
