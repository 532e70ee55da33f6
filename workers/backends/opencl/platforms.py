"""The devices of all OpenCL platforms, and what each is."""

from typing import Any

from tuner.device import Device
from tuner.errors import EnvironmentProblem

_DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bool", "float16", "bfloat16", "float32"),
)


def opencl_devices() -> list[Any]:
    """Every device of every platform, in the driver's order.

    Raises:
        EnvironmentProblem: pyopencl or a platform is missing.
    """
    try:
        import pyopencl as cl
    except ImportError as error:
        raise EnvironmentProblem(
            f"OpenCL needs pyopencl, which does not import ({error}); "
            "install it with: pip install '.[cpu]' in a clone of kernelwright"
        ) from error
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        found = []
        reason = f" ({error})"
    else:
        reason = ""
    if not found:
        raise EnvironmentProblem(
            f"no OpenCL device{reason}; for one on the CPU: pip install '.[cpu]' in a clone of "
            "kernelwright"
        )
    return found


def described(handle: Any, cl: Any) -> Device:
    """The model and the limits of a device."""
    info = handle.get_info
    sizes = [min(int(size), 2**31 - 1) for size in handle.max_work_item_sizes]
    is_cpu = bool(handle.type & cl.device_type.CPU)
    return Device(
        backend="opencl",
        name=handle.name.strip(),
        arch=handle.name.strip(),
        is_cpu=is_cpu,
        driver=f"{handle.platform.name.strip()} {handle.driver_version.strip()}",
        max_threads_per_block=handle.max_work_group_size,
        max_block=(sizes[0], sizes[1], sizes[2]),
        max_grid=(2**31 - 1, 2**31 - 1, 2**31 - 1),
        warp_size=1 if is_cpu else 32,
        multiprocessors=handle.max_compute_units,
        max_shared_bytes_per_block=handle.local_mem_size,
        shared_bytes_per_multiprocessor=handle.local_mem_size,
        registers_per_multiprocessor=0,
        max_registers_per_block=0,
        max_registers_per_thread=0,
        max_threads_per_multiprocessor=handle.max_work_group_size,
        max_blocks_per_multiprocessor=0,
        l2_bytes=int(info(cl.device_info.GLOBAL_MEM_CACHE_SIZE)),
        memory_bytes=handle.global_mem_size,
        compute_capability=0,
        base_align=handle.mem_base_addr_align // 8,
        dtypes=(*_DTYPES, *(("float64",) if "cl_khr_fp64" in handle.extensions else ())),
    )
