"""CUDA: C++ kernels for NVIDIA GPUs."""

from tuner.backends.traits import COMPILED_ELSEWHERE, BackendTraits, RegisterAllocation

CHECKS_FOLDER = "KERNELWRIGHT_CHECKS"
"""The environment variable that names where the bench's own kernels are kept for its children."""

_CLOCK = "a kernel that reads a clock can tell when it is timed"
_DEPENDENT = "it is for kernels that are launched with 'dependent'"

_NONE: tuple[str, ...] = ()
_BOOLEAN = ("true", "false")

CUDA = BackendTraits(
    name="cuda",
    title="CUDA",
    suffixes=(".cu", ".cuh"),
    grammar="cuda",
    kernel_qualifiers=("__global__",),
    cpp_names=True,
    type_names={
        "bool": "bool",
        "int8": "signed char",
        "uint8": "unsigned char",
        "int16": "short",
        "uint16": "unsigned short",
        "int32": "int",
        "uint32": "unsigned int",
        "int64": "long long",
        "uint64": "unsigned long long",
        "float16": "__half",
        "bfloat16": "__nv_bfloat16",
        "float32": "float",
        "float64": "double",
        "float8_e4m3": "__nv_fp8_e4m3",
        "float8_e5m2": "__nv_fp8_e5m2",
    },
    unsupported={},
    unsupported_parameters={
        "cudaTextureObject_t": "a texture",
        "CUtexObject": "a texture",
        "cudaSurfaceObject_t": "a surface",
        "CUsurfObject": "a surface",
        "CUtensorMap": "a tensor map",
        "CUtensorMap_st": "a tensor map",
    },
    options={
        "--use_fast_math": _NONE,
        "--extra-device-vectorization": _NONE,
        "--restrict": _NONE,
        "--device-int128": _NONE,
        "--generate-line-info": _NONE,
        "-lineinfo": _NONE,
        "--maxrregcount": tuple(map(str, range(16, 256))),
        "--fmad": _BOOLEAN,
        "--ftz": _BOOLEAN,
        "--prec-div": _BOOLEAN,
        "--prec-sqrt": _BOOLEAN,
        "--std": ("c++11", "c++14", "c++17", "c++20"),
    },
    register_cap_flag="--maxrregcount",
    block_size_attribute="upper_bound",
    forbidden_names={
        "cudaGridDependencySynchronize": _DEPENDENT,
        "cudaTriggerProgrammaticLaunchCompletion": _DEPENDENT,
        "printf": "a kernel's text is never a result",
        "clock": _CLOCK,
        "clock64": _CLOCK,
        "globaltimer": _CLOCK,
        "main": "only device code is compiled",
        "__CUDACC_RTC__": "what another compiler sees is not measured",
        "__CUDACC_RTC_MINIMAL__": "what another compiler sees is not measured",
        "__NVCC__": "what another compiler sees is not measured",
        **COMPILED_ELSEWHERE,
    },
    forbidden_patterns={
        r"cu(?:da)?(?:Launch|Graph|Stream|Event|Malloc|Free|Memcpy|Memset|Ctx)\w*": (
            "a kernel may not call the runtime"
        ),
    },
    dependence_names=frozenset(
        {"cudaGridDependencySynchronize", "cudaTriggerProgrammaticLaunchCompletion"}
    ),
    refuses_undefined_calls=False,
    equal_code_is_equal_kernel=True,
    compiles_at_first_launch=False,
    gpu_only=True,
    example_target="sm_90",
    # For compute capability 8.0 to 12.x, after NVIDIA's CUDA Occupancy Calculator.
    allocation=RegisterAllocation(
        register_unit=256, sub_partitions=4, shared_unit=128, shared_reserved=1024
    ),
    compile_seconds=0.15,
    shape_seconds=0.02,
    checker_seconds=2.5,  # four tools side by side
    checker_seconds_per_mib=0.0,
    launch_floor_us=0.8,  # in a replayed graph on an H100
    distributions=("nvidia-cuda-nvrtc", "cupy-cuda13x"),
    optional_distributions=("nvidia-ml-py",),
    extra="cuda13",
    offers="CUDA for NVIDIA GPUs",
    environment_prefixes=("CUDA_", "NVIDIA_", "CUPY_", "NVRTC_"),
    preloaded_packages=("cupy",),  # all of it is imported at the first call of CUDA or NVRTC
    cache_variables=(CHECKS_FOLDER,),
)
