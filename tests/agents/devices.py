"""Device models for tests that need none to be there."""

from tuner.device import Device

CPU = Device(
    backend="opencl",
    name="cpu",
    arch="cpu",
    is_cpu=True,
    driver="1",
    max_threads_per_block=4096,
    max_block=(4096, 4096, 4096),
    max_grid=(2**31 - 1, 2**31 - 1, 2**31 - 1),
    warp_size=1,
    multiprocessors=2,
    max_shared_bytes_per_block=1 << 18,
    shared_bytes_per_multiprocessor=1 << 18,
    registers_per_multiprocessor=0,
    max_registers_per_block=0,
    max_registers_per_thread=0,
    max_threads_per_multiprocessor=4096,
    max_blocks_per_multiprocessor=1,
    l2_bytes=1 << 20,
    memory_bytes=1 << 33,
    compute_capability=0,
    base_align=128,
    dtypes=("float16", "float32", "float64", "int32"),
)
