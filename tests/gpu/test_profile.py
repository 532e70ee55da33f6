"""Nsight Compute over a launch of the bundled SiLU kernel, where counters can be read."""

from pathlib import Path

import pytest

from tests.workers.harness import Laboratory
from tuner.journal.facts import Profile

pytestmark = pytest.mark.gpu

SPEC = Path(__file__).parent / "data" / "silu_space" / "cuda.yaml"


def test_the_winners_counters_come_with_its_examination():
    laboratory = Laboratory(SPEC)
    try:
        source = laboratory.experiment.kernel.source.text
        candidate = laboratory.candidate(f"{source}\n// a copy\n")
        examined = laboratory.examined(candidate)
    finally:
        laboratory.close()
    print(examined.notes)
    if any("Nsight Compute" in note for note in examined.notes):
        pytest.skip("; ".join(examined.notes))
    (profile,) = examined.profiles
    assert isinstance(profile, Profile)
    shapes = laboratory.experiment.shapes
    assert profile.shape < len(shapes.tune) + len(shapes.held_out)
    counters = dict(profile.counters)
    print(*(f"{name}: {value:g}" for name, value in counters.items()), sep="\n")
    assert len(counters) >= 18
    assert 0 < counters["DRAM throughput %"] <= 100
    assert counters["registers a thread"] >= 16
