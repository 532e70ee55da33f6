"""The best configurations that a file of results records: of an earlier run, or of Kernel Tuner.

Reads ``results.jsonl`` of a run, a cache file of Kernel Tuner, and results in the T4 format.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.experiment.objective import ENERGY_SHARE
from tuner.files import given_text
from tuner.trial import Value

MOST = 5
"""How many become seeds."""

_MOST_BYTES = 256 << 20
"""Largest file: a cache of Kernel Tuner has every single time of every configuration."""


def best_recorded(path: Path) -> tuple[dict[str, Value], ...]:
    """The best configurations, best first.

    Raises:
        ValueError: the file cannot be read, or is in none of the formats.
    """
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder: name the results.jsonl of a search in it; with agents it is in "
            "rounds/NN/"
        )
    text = given_text(path, _MOST_BYTES)
    try:
        rows = list(_rows(text))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise ValueError(
            f"{path}: neither the results.jsonl of a run, nor a cache file or T4 results of Kernel "
            "Tuner"
        ) from None
    ranked = sorted((row for row in rows if math.isfinite(row[0])), key=lambda row: row[0])
    return tuple(configuration for _, configuration in ranked[:MOST])


def _rows(text: str) -> Iterator[tuple[float, dict[str, Value]]]:
    """Each configuration that was measured, with what is to be small."""
    document = _document(text)
    if document is None:
        for line in text.splitlines():
            row = json.loads(line)
            if isinstance(row["loss"], float):
                yield row["loss"], dict(row["configuration"])
    elif "cache" in document:
        names = document["tune_params_keys"]
        minimised = _minimised([document.get("objective")])
        for entry in document["cache"].values():
            if _is_number(cost := entry.get(minimised)):
                yield float(cost), {name: _value(entry[name]) for name in names}
    else:
        for entry in document["results"]:
            cost = _measured(entry, _minimised(entry.get("objectives", ())))
            if entry["invalidity"] == "correct" and cost is not None:
                found = entry["configuration"].items()
                yield cost, {name: _value(value) for name, value in found}


def _document(text: str) -> dict[str, Any] | None:
    """A JSON object of Kernel Tuner; ``None`` for lines. A cache may lack its end."""
    for end in ("", "}}"):
        try:
            found = json.loads(text if not end else text.rstrip().rstrip(",") + end)
        except ValueError:
            continue
        if isinstance(found, dict) and found.keys() & {"cache", "results"}:
            return found
    return None


def _minimised(objectives: Sequence[object]) -> str:
    """What is to be small: an objective of our own, or else the time."""
    return next((name for name in ENERGY_SHARE if name in objectives), "time")


def _measured(entry: Mapping[str, Any], name: str) -> float | None:
    for one in entry.get("measurements", ()):
        if one["name"] == name and _is_number(one["value"]):
            return float(one["value"])
    if name != "time":
        return None
    times = entry["times"].get("runtimes") or []
    return math.fsum(times) / len(times) if times else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(given: object) -> Value:
    if isinstance(given, float) and given.is_integer():
        return int(given)
    if not isinstance(given, bool | int | str):
        raise TypeError
    return given
