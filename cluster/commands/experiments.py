"""Finding a spec: a path, or the name of a bundled experiment."""

import difflib
from collections.abc import Callable
from pathlib import Path

from tuner.errors import SpecError
from workers.devices.discover import list_devices

BUNDLED = Path(__file__).parents[2] / "deploy" / "experiments"


def bundled_names() -> list[str]:
    """The experiments that come with Kernelwright."""
    return sorted(path.parent.name for path in BUNDLED.glob("*/opencl.yaml"))


def find_spec(spec: str, has_gpu: Callable[[], bool]) -> Path:
    """The spec's file. A bundled name means its CUDA variant where there is a GPU, else OpenCL's.

    Args:
        spec: what the user typed.
        has_gpu: asked for a bundled name only.

    Raises:
        SpecError: there is neither such a file nor such an experiment.
    """
    path = Path(spec)
    if path.is_file():
        return path
    names = bundled_names()
    if spec in names:
        cuda = BUNDLED / spec / "cuda.yaml"
        if cuda.is_file() and has_gpu():
            return cuda
        return BUNDLED / spec / "opencl.yaml"
    if path.is_dir():
        raise SpecError(f"{spec} is a folder; name the .yaml file in it")
    close = difflib.get_close_matches(spec, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"bundled experiments: {', '.join(names)}"
    raise SpecError(f"no such file: {spec}; {hint}")


def machine_has_gpu() -> bool:
    """Whether the CUDA backend finds a device here."""
    return any(found.device is not None for found in list_devices(("cuda",)))
