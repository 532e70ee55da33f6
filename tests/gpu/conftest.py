"""The tests of this folder need an NVIDIA GPU, and are left out where there is none."""

import os
from pathlib import Path

import pytest

from tuner.errors import EnvironmentProblem
from workers.backends.cuda.driver import count_devices

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    if not ours:
        return
    try:
        reason = "" if count_devices() else "no CUDA device"
    except EnvironmentProblem as problem:
        reason = str(problem)
    if reason:
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=reason))
    # Others open the GPU in this process, and energy refuses a GPU that another process uses.
    items.sort(key=lambda item: item.path.name != "test_energy.py")


@pytest.fixture
def ray_here():
    """A Ray of this machine with its GPUs."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    import ray

    ray.init(address="local", namespace="kernelwright", include_dashboard=False)
    yield ray
    ray.shutdown()
