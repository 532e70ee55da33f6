"""What to say where CuPy, which all of CUDA needs, is missing or does not load."""

from tuner.errors import EnvironmentProblem

REMEDY = "pip install '.[cuda13]' in a clone of kernelwright"


def cupy_problem(error: ImportError) -> EnvironmentProblem:
    """That CuPy is not installed, or why it does not load."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("cupy"):
        return EnvironmentProblem(f"CuPy is not installed; only CUDA needs it: {REMEDY}")
    return EnvironmentProblem(f"CuPy does not load ({error}): {REMEDY}")
