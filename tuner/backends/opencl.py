"""OpenCL C: on a CPU through PoCL, or on any other platform."""

from tuner.backends.traits import COMPILED_ELSEWHERE, BackendTraits

_CLOCK = "a kernel that reads a clock can tell when it is timed"
_OUTSIDE = "it reaches code outside the kernel"

_NONE: tuple[str, ...] = ()

OPENCL = BackendTraits(
    name="opencl",
    title="OpenCL",
    suffixes=(".cl",),
    grammar="opencl",
    kernel_qualifiers=("__kernel", "kernel"),
    cpp_names=False,
    type_names={
        "bool": "uchar",
        "int8": "char",
        "uint8": "uchar",
        "int16": "short",
        "uint16": "ushort",
        "int32": "int",
        "uint32": "uint",
        "int64": "long",
        "uint64": "ulong",
        "float16": "half",
        "float32": "float",
        "float64": "double",
    },
    unsupported={
        "cooperative": "OpenCL has no cooperative launch",
        "dependent": "OpenCL has no dependent launch",
        "cluster": "OpenCL has no clusters",
        "dynamic_shared": "OpenCL kernels declare their local memory themselves",
        "constant": "OpenCL cannot set a program's constants; pass it with kind: in",
        "energy": "OpenCL has no energy counter: set objective: time",
        "binary": "a binary as baseline is CUDA's alone; OpenCL compiles kernel.source",
    },
    unsupported_parameters={
        **{
            f"image{kind}_t": "an image"
            for kind in ("1d", "1d_array", "1d_buffer", "2d", "2d_array", "2d_depth", "3d")
        },
        "sampler_t": "a sampler",
        "pipe": "a pipe",
    },
    options={
        "-cl-fast-relaxed-math": _NONE,
        "-cl-unsafe-math-optimizations": _NONE,
        "-cl-finite-math-only": _NONE,
        "-cl-mad-enable": _NONE,
        "-cl-no-signed-zeros": _NONE,
        "-cl-denorms-are-zero": _NONE,
        "-cl-single-precision-constant": _NONE,
        "-cl-fp32-correctly-rounded-divide-sqrt": _NONE,
        "-cl-strict-aliasing": _NONE,
        "-cl-opt-disable": _NONE,
        "-cl-uniform-work-group-size": _NONE,
        "-w": _NONE,
        "-cl-std": ("CL1.0", "CL1.1", "CL1.2", "CL2.0", "CL3.0"),
    },
    register_cap_flag=None,
    block_size_attribute="exact",
    forbidden_names={
        "enqueue_kernel": "it may finish after the timing ends",
        "printf": "a kernel's text is never a result",
        "extern": _OUTSIDE,
        **COMPILED_ELSEWHERE,
        **dict.fromkeys(("__asm", "__asm__", "asm"), "inline assembly is not allowed in OpenCL"),
        **dict.fromkeys(("__seg_fs", "__seg_gs"), _OUTSIDE),
    },
    forbidden_patterns={
        r"clock_read_\w+": _CLOCK,
        r"_cl_\w+|_*(?:pocl|POCL)_\w+|__spirv_\w+": _OUTSIDE,
    },
    dependence_names=frozenset(),
    refuses_undefined_calls=True,
    equal_code_is_equal_kernel=False,  # a binary changes with a macro that nothing reads
    compiles_at_first_launch=True,
    gpu_only=False,
    example_target=None,
    allocation=None,
    compile_seconds=0.5,
    shape_seconds=0.12,
    checker_seconds=0.3,
    checker_seconds_per_mib=2.0,  # Oclgrind interprets the kernel
    launch_floor_us=0.0,
    distributions=("pyopencl", "pocl-binary-distribution"),
    extra="cpu",
    offers="OpenCL for the processor",
    environment_prefixes=("OCL_ICD_", "OPENCL_", "POCL_", "PYOPENCL_"),
    # Kernels compiled by another run are not read, so that none can be forged there.
    child_environment={"PYOPENCL_NO_CACHE": "1"},
    preloaded_packages=("pyopencl",),
    cache_variables=("POCL_CACHE_DIR",),
)
