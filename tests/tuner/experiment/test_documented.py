"""README's list of fields is that of the schema."""

import re
from pathlib import Path

import pytest

from tuner.experiment.schema import json_schema

README = (Path(__file__).parents[3] / "README.md").read_text()
LISTED = README.partition("### Every field\n")[2].partition("\n## ")[0]
SCHEMA = json_schema()
FIELDS = sorted(
    {*SCHEMA["properties"], *(f for kind in SCHEMA["$defs"].values() for f in kind["properties"])}
)


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_is_listed(field: str) -> None:
    assert re.search(rf"\b{field}\b", LISTED)


def test_what_is_listed_as_a_field_is_one() -> None:
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|", LISTED, re.MULTILINE)
    named = {re.split(r"\W", name)[0] for row in rows for name in re.findall(r"`([^`]*)`", row)}
    assert len(named) > 40
    assert named <= set(FIELDS)
