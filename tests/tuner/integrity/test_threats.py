"""The table of threats: complete, and every check and test that it names exists."""

import importlib
from pathlib import Path

import pytest

from tuner.integrity.threats import THREATS, Threat

ROOT = Path(__file__).parents[3]
EXPLOITS = [ROOT / "tests/exploits", ROOT / "tests/gpu/exploits"]


def folders(threat: Threat) -> list[Path]:
    return [path for folder in EXPLOITS for path in folder.glob(f"{threat.number:02}_*")]


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: str(threat.number))
def test_every_threat_has_checks_and_tests_that_exist(threat: Threat) -> None:
    assert threat.checks
    for check in threat.checks:
        module, _, name = check.partition(":")
        found = importlib.import_module(module)
        assert not name or callable(getattr(found, name))
    assert folders(threat) or threat.tests
    for test in threat.tests:
        assert (ROOT / test).is_file(), test


def test_every_exploit_belongs_to_a_threat() -> None:
    known = {folder for threat in THREATS for folder in folders(threat)}
    assert known == {path.parent for folder in EXPLOITS for path in folder.glob("*/case.yaml")}


def test_every_check_of_both_packages_is_in_the_table() -> None:
    named = {check.partition(":")[0] for threat in THREATS for check in threat.checks}
    packages = {"tuner/integrity": "threats", "workers/integrity": ""}
    modules = {
        f"{package.replace('/', '.')}.{path.stem}"
        for package, other in packages.items()
        for path in (ROOT / package).glob("*.py")
        if path.stem not in ("__init__", other)
    }
    assert modules <= named
