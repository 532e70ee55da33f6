"""Launch sequences on a real GPU, from the first process to confirmation in two fresh ones."""

from pathlib import Path

import pytest

from tests.workers.harness import Laboratory
from tuner.journal.facts import ConfirmationSampled
from tuner.trial import Measured, Rejected

pytestmark = pytest.mark.gpu

DATA = Path(__file__).parent / "data" / "sequences"


@pytest.mark.parametrize("name", ["convolution", "histogram"])
def test_constants_and_memsets_are_right_in_every_process(name):
    laboratory = Laboratory(DATA / f"{name}.yaml")
    try:
        prepared = laboratory.prepared.result
        assert not isinstance(prepared, Rejected), prepared
        source = laboratory.experiment.kernel.source.text
        twin = laboratory.candidate(f"{source}\n// a copy\n")
        outcome = laboratory.bench.run(twin).outcome
        assert isinstance(outcome, Measured), outcome
        for process in (0, 1):
            sampled = laboratory.confirmed(twin, process=process)
            assert isinstance(sampled, ConfirmationSampled)
            assert not sampled.failed, sampled
            print(name, process, sampled.samples, sampled.notes)
    finally:
        laboratory.close()
