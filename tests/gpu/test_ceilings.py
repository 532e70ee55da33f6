"""What this GPU can do at most, and what NVML tells of it while a run prepares."""

from pathlib import Path

import pytest

from tests.workers.harness import Laboratory
from tuner.trial import Measured, Rejected

pytestmark = pytest.mark.gpu

SPEC = Path(__file__).parent / "data" / "silu_space" / "cuda.yaml"


@pytest.fixture(scope="module")
def laboratory():
    made = Laboratory(SPEC)
    yield made
    made.close()


def test_ceilings_lie_below_the_pins_and_above_what_is_plausible(laboratory):
    assert not isinstance(laboratory.prepared.result, Rejected), laboratory.prepared
    ceilings, pins = laboratory.prepared.ceilings, laboratory.device.memory_bytes_per_second
    print(ceilings, f"; pins {pins / 1e9:.4g} GB/s")
    assert ceilings is not None
    assert 0.7 * pins < ceilings.copy_bytes_per_second < pins
    assert 300 < ceilings.launch_ns < 5_000
    products = dict(ceilings.products)
    assert products["float32"] > 5e12
    assert products["float16"] > products["float32"]


def test_nobody_else_is_on_the_device_and_its_clocks_are_told(laboratory):
    vitals = laboratory.prepared.vitals
    print(vitals)
    if vitals is None:
        pytest.skip("NVML is not there")
    assert vitals.others == 0
    assert vitals.sm_mhz > 300
    assert vitals.watts > 10


def test_a_confirmation_sees_no_stranger_either(laboratory):
    source = laboratory.experiment.kernel.source.text
    candidate = laboratory.candidate(f"{source}\n// a copy\n")
    benched = laboratory.bench.run(candidate)
    assert isinstance(benched.outcome, Measured), benched.outcome
    confirmed = laboratory.confirmed(candidate)
    assert not confirmed.failed
    if laboratory.prepared.vitals is not None:
        assert benched.vitals is not None
        assert confirmed.vitals
        assert all(look.others == 0 for look in confirmed.vitals)


def test_winners_are_seen_by_every_checker_together(laboratory):
    source = laboratory.experiment.kernel.source.text
    copies = [laboratory.candidate(f"{source}\n// {n}\n", trial=n) for n in range(3)]
    examined = laboratory.examined(*copies)
    print(examined.notes)
    assert examined.trials == (0, 1, 2)
    assert not examined.failed
