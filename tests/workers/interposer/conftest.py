"""The stand-in driver and its applications, built once with the system's compiler."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from workers.interposer.library import COMPILER, SOURCES, interposer_library

STAND_IN = Path(__file__).parent / "stand_in"
_OPTIONS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}")


@dataclass(frozen=True, slots=True)
class Rig:
    """A folder with ``libcuda.so.1``, kernels, and the application in three ways of linking."""

    folder: Path
    cache: Path

    @property
    def kernels(self) -> Path:
        """What stands for a cubin."""
        return self.folder / "kernels.so"

    def app(self, *scenarios: str, linked: str = "gpa") -> list[str]:
        """The application's command line; ``linked``: how it finds the driver."""
        return [str(self.folder / f"app_{linked}"), str(self.kernels), *scenarios]


def _cc(*words: object) -> None:
    subprocess.run([COMPILER, *_OPTIONS, *map(str, words)], check=True)


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Rig:
    folder = tmp_path_factory.mktemp("stand_in")
    driver = folder / "libcuda.so.1"
    shared = ("-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic")
    sources = (STAND_IN / "libcuda.c", STAND_IN / "graphs.c")
    _cc(*shared, "-Wl,-soname,libcuda.so.1", *sources, "-o", driver, "-ldl")
    _cc("-fPIC", "-shared", STAND_IN / "kernels.c", "-o", folder / "kernels.so", "-lm")
    app = STAND_IN / "application.c"
    _cc(app, "-o", folder / "app_gpa", "-lm", "-ldl")
    _cc("-DDLSYM", app, "-o", folder / "app_dlsym", "-lm", "-ldl")
    _cc("-DLINKED", app, "-o", folder / "app_plt", driver, "-lm", "-ldl")
    lookups = STAND_IN / "next_symbol.c"
    _cc(lookups, "-o", folder / "next_symbol", "-ldl")
    _cc("-DFORWARDER", "-fPIC", "-shared", lookups, "-o", folder / "forwarder.so", "-ldl")
    cache = tmp_path_factory.mktemp("cache")
    interposer_library({"XDG_CACHE_HOME": str(cache)})
    return Rig(folder, cache)


@pytest.fixture
def rig(built, monkeypatch, tmp_path) -> Rig:
    """The stand-in, in place of the machine's driver for this test, in a folder of its own."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(built.folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(built.cache))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return built
