"""The environment of child processes: what they may see of this one's, but no keys, and more."""

import os
from collections.abc import Mapping
from pathlib import Path

# fmt: off
_ALLOWED = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV",
    "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_CACHE_HOME",
))
_ALLOWED_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "CUPY_", "NVRTC_", "OCL_ICD_", "OPENCL_", "POCL_", "PYOPENCL_",
    "OMP_", "OPENBLAS_", "MKL_",
)
# fmt: on
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a child may see: what Python and the device need, and no keys."""
    return {
        name: value
        for name, value in environment.items()
        if (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES))
        and not any(word in name.upper() for word in _SECRET_WORDS)
    }


def module_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What is allowed of an environment, with this project's modules to be found first."""
    kept = allowed_environment(environment)
    root = str(Path(__file__).resolve().parent.parent)
    kept["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [kept.get("PYTHONPATH")])])
    return kept


def opencl_caches(folder: Path) -> dict[str, str]:
    """Have OpenCL keep in a private folder what it compiles, so that no other run can forge it.

    ``KERNELWRIGHT_OPENCL_CACHE`` names a lasting folder instead. Set it only where every kernel is
    trusted: a kernel on a CPU device can write files.
    """
    kept = os.environ.get("KERNELWRIGHT_OPENCL_CACHE") or str(folder)
    return {"POCL_CACHE_DIR": kept, "PYOPENCL_NO_CACHE": "1"}
