"""The environment of child processes: what they may see of this one's, and never a key."""

import os
from collections.abc import Mapping
from pathlib import Path

from tuner.backends.registry import backends, traits_of

# fmt: off
_ALLOWED = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV",
    "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_CACHE_HOME",
))
_ALLOWED_PREFIXES = ("LC_", "OMP_", "OPENBLAS_", "MKL_")
# fmt: on
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that Python and the devices need, without keys."""
    backend_prefixes = (prefix for one in backends() for prefix in one.environment_prefixes)
    prefixes = (*_ALLOWED_PREFIXES, *backend_prefixes)
    return {
        name: value
        for name, value in environment.items()
        if (name in _ALLOWED or name.startswith(prefixes))
        and not any(word in name.upper() for word in _SECRET_WORDS)
    }


def module_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The allowed variables, those of the backends, and this project first on ``PYTHONPATH``."""
    kept = allowed_environment(environment)
    for one in backends():
        kept |= one.child_environment
    root = str(Path(__file__).resolve().parent.parent)
    kept["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [kept.get("PYTHONPATH")])])
    return kept


def private_environment(backend: str, folder: Path) -> dict[str, str]:
    """Variables with which a backend keeps what it caches in ``folder``, so that no run forges it.

    ``KERNELWRIGHT_DRIVER_CACHE`` names a lasting folder instead. Set it only where every kernel is
    trusted: a kernel on a CPU device can write files.
    """
    kept = os.environ.get("KERNELWRIGHT_DRIVER_CACHE") or folder
    return dict.fromkeys(traits_of(backend).cache_variables, str(kept))
