"""Honest kernels of unusual kinds: as baselines they are prepared, and their twins pass."""

from pathlib import Path

import pytest

from tests.workers.harness import Laboratory
from tuner.trial import Measured, Rejected

pytestmark = pytest.mark.gpu

SPECS = sorted((Path(__file__).parent / "data" / "honest").glob("*.yaml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_an_honest_kernel_is_a_baseline_and_its_twin_passes(spec) -> None:
    for secret in range(1, 11):
        laboratory = Laboratory(spec, secret=secret)
        try:
            assert not isinstance(laboratory.prepared.result, Rejected), laboratory.prepared
            source = spec.with_suffix(".cu").read_text()
            twin = laboratory.candidate(f"{source}// seed {secret}\n")
            assert not isinstance(twin, Rejected), twin
            outcome = laboratory.bench.run(twin).outcome
            assert isinstance(outcome, Measured), outcome
            assert laboratory.confirmed(twin).failed == ()
        finally:
            laboratory.close()
