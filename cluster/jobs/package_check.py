"""Start-up check: our top-level packages are not hidden or overwritten by another distribution.

``agents`` and ``cluster`` are common names. A distribution with a package of the same name causes
baffling import errors, so it is named first.
"""

import importlib.util
from pathlib import Path

from tuner.errors import EnvironmentProblem

OURS = ("agents", "cluster", "kernelwright.py", "tuner", "workers")
"""The packages and the module at the top, by file name."""

_DISTRIBUTION = "kernelwright"


def check_packages(root: Path | None = None) -> None:
    """Raise :class:`EnvironmentProblem` if one of our packages comes from elsewhere.

    Args:
        root: the folder that holds our packages; where this file lies by default.
    """
    home = (root or Path(__file__).parents[2]).resolve()
    for file in OURS:
        package = Path(file).stem
        for place in _places(package):
            if place != home / file:
                raise EnvironmentProblem(
                    f"the Python package {package!r} is loaded from {place}, not from "
                    f"{home / file}: {_owner(place.parent, package)} hides it. Install "
                    "Kernelwright in its own virtual environment."
                )
    for record in home.glob("*.dist-info/RECORD"):
        if record.parent.name.lower().startswith(f"{_DISTRIBUTION}-"):
            continue
        text = "\n" + record.read_text(encoding="utf-8", errors="replace")
        for package in (Path(file).stem for file in OURS):
            if _holds(text, package):
                raise EnvironmentProblem(
                    f"the distribution {_name(record.parent)!r} overwrites files of the Python "
                    f"package {package!r} in {home}. Install Kernelwright in its own virtual "
                    "environment."
                )


def _places(package: str) -> list[Path]:
    found = importlib.util.find_spec(package)
    if found is None or found.submodule_search_locations is None:
        return [] if found is None else [Path(str(found.origin)).resolve()]
    return [Path(place).resolve() for place in list(found.submodule_search_locations)[:1]]


def _owner(folder: Path, package: str) -> str:
    for record in folder.glob("*.dist-info/RECORD"):
        text = "\n" + record.read_text(encoding="utf-8", errors="replace")
        if _holds(text, package):
            return f"the distribution {_name(record.parent)!r}"
    return f"a package in {folder}"


def _holds(record: str, package: str) -> bool:
    return f"\n{package}/" in record or f"\n{package}.py," in record


def _name(dist_info: Path) -> str:
    return dist_info.name.removesuffix(".dist-info").rsplit("-", 1)[0]
