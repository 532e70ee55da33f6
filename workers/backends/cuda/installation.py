"""What this machine has of CUDA: the toolkit's programs, and what to say where CuPy is missing."""

import shutil

from tuner.errors import EnvironmentProblem

PLACES = (
    "/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer:/opt/nvidia/nsight-compute"
    ":/usr/local/NVIDIA-Nsight-Compute"
)
REMEDY = "pip install '.[cuda13]' in a clone of kernelwright"


def cupy_problem(error: ImportError) -> EnvironmentProblem:
    """That CuPy is not installed, or why it does not load."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("cupy"):
        return EnvironmentProblem(f"CuPy is not installed; only CUDA needs it: {REMEDY}")
    return EnvironmentProblem(f"CuPy does not load ({error}): {REMEDY}")


def program(name: str) -> str | None:
    """The path of one of the toolkit's programs, on ``PATH`` or where they are installed."""
    return shutil.which(name) or shutil.which(name, path=PLACES)
