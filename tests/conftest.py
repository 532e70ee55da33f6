"""What holds for every test: the environment, the tiers, and which process runs what.

``pytest`` leaves out tests marked ``slow``. ``pytest -m slow`` runs those, and every property test
on many random examples; without it a property test runs on a few that never change.
"""

import gc
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Matrices here are small, and on a busy machine OpenBLAS's threads spend their time waiting for
# each other. Set before NumPy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# No patterns of the user's are read or left.
os.environ["KERNELWRIGHT_HOME"] = ""

_COMPILED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kernelwright-tests")
_KEPT_SECONDS = 7 * 86400.0
"""What the compile cache holds goes when it was not used for so long."""

# PoCL names an entry by source, options, device and PoCL's version, and moves it into place whole.
os.environ.setdefault("KERNELWRIGHT_DRIVER_CACHE", str(_COMPILED))

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    # Locks of devices are kept here: else one process of the tests waits while another launches.
    # A short name, since Ray's sockets are kept here, too.
    _folder = Path(tempfile.gettempdir(), f"kw{os.getuid()}-{worker}")
    _folder.mkdir(mode=0o700, exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(_folder)

_ON_RAY = ("elastic", "fleets", "killed_in_turn", "killed_on_ray", "ray_driver", "sharing")
_OF_ONE_RUN = ("command_line", "python_api", "verify")
_WITH_MODELS = ("agent_run", "model_faults", "network_models", "places")
_TOGETHER = {
    **{f"tests/cluster/test_{name}.py": "run" for name in _OF_ONE_RUN},
    **{f"tests/cluster/test_{name}.py": "ray" for name in _ON_RAY},
    **{f"tests/cluster/test_{name}.py": "models" for name in _WITH_MODELS},
    **{f"tests/agents/llm/test_{name}.py": "models" for name in ("network", "relaying")},
}
"""Files whose tests share what takes long: one finished run, one Ray, or LiteLLM's import.

Commands are run before their process joins Ray for good, which they would refuse.
"""

_SLOW_SECONDS = 1800
"""The time limit of a test of the slow tier: a thousand examples may take 4 minutes of a core."""

_LONGEST = (*_TOGETHER, "tests/exploits/", "tests/cluster/", "tests/workers/", "tests/agents/")
"""What is begun first, so that no process ends long after the others."""

settings.register_profile("few", max_examples=20, derandomize=True, deadline=None, database=None)
settings.register_profile(
    "many", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of examples; sweep the compile cache once."""
    settings.load_profile("many" if config.option.markexpr == "slow" else "few")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        _sweep(_COMPILED)


def pytest_collection() -> None:
    """Look for no garbage while modules are imported, which takes a tenth of that time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor, later, among what all tests use."""
    gc.enable()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the slow tier hold every property test, and the longest files come first."""
    if config.option.markexpr == "slow":
        for item in items:
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _place(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """A file, and those that belong together, are run by one process, in the order given here."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _TOGETHER.get(file, file)

    config.option.loadscopereorder = False
    return ByFile(config, log)


def _place(nodeid: str) -> int:
    """Where a test stands in ``_LONGEST``."""
    return next(
        (place for place, start in enumerate(_LONGEST) if nodeid.startswith(start)), len(_LONGEST)
    )


def _sweep(cache: Path) -> None:
    """Remove the entries of PoCL that were not used lately."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    oldest = time.time() - _KEPT_SECONDS
    for path in (*cache.glob("tempfile_*"), *cache.glob("*/*/last_accessed")):
        try:
            used = path.stat().st_mtime
        except FileNotFoundError:  # another session moved or removed it
            continue
        if used > oldest:
            continue
        if path.name == "last_accessed":
            shutil.rmtree(path.parent, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
