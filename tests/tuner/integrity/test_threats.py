"""The table of threats in the documents: every check and test that it names exists."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
TEXT = (ROOT / "docs/integrity.md").read_text(encoding="utf-8")
ROWS = ROW.findall(TEXT)
CHECKED = TEXT.partition("## Checks and their cost")[2].partition("\n## ")[0]
COSTS = re.findall(r"^\| (`[^|]+) \| [^|]+ \| ([^|]+) \|$", CHECKED, re.MULTILINE)


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_threats_are_numbered_throughout() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 55))


@pytest.mark.parametrize(("number", "checks", "tests"), ROWS, ids=lambda cell: cell[:2])
def test_every_threat_has_checks_and_tests_that_exist(number: str, checks: str, tests: str) -> None:
    assert names(checks)
    assert names(tests)
    for module in names(checks):
        importlib.import_module(module)
    for test in names(tests):
        assert list(ROOT.glob(test)), test


def test_every_check_has_a_row_with_its_cost() -> None:
    costs = dict(COSTS)
    priced = {module for checks in costs for module in names(checks)}
    assert {module for _, checks, _ in ROWS for module in names(checks)} <= priced
    assert all(cost.strip() for cost in costs.values())
    for module in priced:
        importlib.import_module(module)


def test_every_exploit_belongs_to_its_threat() -> None:
    named = {
        (number, path) for number, _, cell in ROWS for t in names(cell) for path in ROOT.glob(t)
    }
    exploits = {path.parent for path in ROOT.glob("tests/**/exploits/*/case.yaml")}
    assert exploits
    assert {(str(int(path.name[:2])), path) for path in exploits} <= named


def test_every_check_of_both_packages_is_in_the_table() -> None:
    named = {module for _, checks, _ in ROWS for module in names(checks)}
    for package in ("tuner/integrity", "workers/integrity"):
        stems = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
        assert {f"{package.replace('/', '.')}.{stem}" for stem in stems} <= named
