"""Devices for tests: the limits of a few CUDA architectures, and of a CPU under OpenCL."""

from tuner.device import Device

# threads, blocks and shared KiB per multiprocessor; shared KiB per block; multiprocessors; L2 MiB
_CUDA = {
    80: (2048, 32, 164, 163, 108, 40),
    86: (1536, 16, 100, 99, 84, 6),
    90: (2048, 32, 228, 227, 132, 50),
    120: (1536, 24, 100, 99, 170, 96),
}


def cuda_device(capability: int) -> Device:
    threads, blocks, shared, shared_per_block, multiprocessors, l2 = _CUDA[capability]
    return Device(
        backend="cuda",
        name=f"test sm_{capability}",
        arch=f"sm_{capability}",
        is_cpu=False,
        driver="13.0",
        max_threads_per_block=1024,
        max_block=(1024, 1024, 64),
        max_grid=(2**31 - 1, 65535, 65535),
        warp_size=32,
        multiprocessors=multiprocessors,
        max_shared_bytes_per_block=shared_per_block * 1024,
        shared_bytes_per_multiprocessor=shared * 1024,
        registers_per_multiprocessor=65536,
        max_registers_per_block=65536,
        max_registers_per_thread=255,
        max_threads_per_multiprocessor=threads,
        max_blocks_per_multiprocessor=blocks,
        l2_bytes=l2 * 2**20,
        memory_bytes=80 * 2**30,
        compute_capability=capability,
        base_align=256,
        dtypes=("float16", "bfloat16", "float32", "float64", "int32"),
    )


def opencl_cpu() -> Device:
    return Device(
        backend="opencl",
        name="test cpu",
        arch="cpu",
        is_cpu=True,
        driver="3.0",
        max_threads_per_block=4096,
        max_block=(4096, 4096, 4096),
        max_grid=(2**31 - 1, 2**31 - 1, 2**31 - 1),
        warp_size=1,
        multiprocessors=2,
        max_shared_bytes_per_block=256 * 1024,
        shared_bytes_per_multiprocessor=256 * 1024,
        registers_per_multiprocessor=0,
        max_registers_per_block=0,
        max_registers_per_thread=0,
        max_threads_per_multiprocessor=4096,
        max_blocks_per_multiprocessor=1,
        l2_bytes=2**21,
        memory_bytes=2**33,
        compute_capability=0,
        base_align=128,
        dtypes=("float32", "int32"),
    )
