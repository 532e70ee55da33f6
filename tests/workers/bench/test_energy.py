"""Energy per launch: from readings of a counter, and on a device with a stand-in for one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.backends.fake_backend import LAUNCH_MJ, THRIFTY_MJ, TICK_MJ, register
from tests.workers.backends.test_third_backend import SOURCE, SPEC
from tests.workers.harness import Laboratory
from tuner.backends import registry as traits_registry
from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.load import load_experiment
from tuner.experiment.metrics import metric_values
from tuner.trial import Measured, Rejected
from workers.backends import registry as adapter_registry
from workers.bench.energy import interleaved, millijoules_per_launch
from workers.devices.port import DeviceFailure, EnergyReading


def readings(*given: tuple[float, int, float]) -> list[EnergyReading]:
    return [EnergyReading(millijoules=mj, launches=n, ns=ns) for mj, n, ns in given]


@given(
    launch_mj=st.floats(1e-3, 1e3),
    launch_ns=st.floats(1e3, 1e7),
    ticks=st.lists(st.integers(1, 10_000), min_size=2, max_size=9),
    begun=st.floats(0, 1e9),
)
def test_a_launch_costs_what_the_counter_gained_between_its_changes(
    launch_mj, launch_ns, ticks, begun
):
    at = np.cumsum(ticks).tolist()
    taken = readings(*((begun + launch_mj * n, n, launch_ns * n) for n in at))
    found = millijoules_per_launch(taken, launch_ns)
    assert found == pytest.approx(launch_mj, rel=1e-3, abs=1e-6 * begun)


@pytest.mark.parametrize(
    ("taken", "says"),
    [
        (readings(), "does not change"),
        (readings((5.0, 10, 1e6)), "does not change"),
        (readings((5.0, 10, 1e6), (4.0, 20, 2e6)), "runs backwards"),
        (readings((5.0, 10, 1e6), (6.0, 10, 2e6)), "runs backwards"),
    ],
)
def test_a_counter_that_tells_nothing_is_refused(taken, says):
    with pytest.raises(EnvironmentProblem, match=says):
        millijoules_per_launch(taken, 1e5)


def test_work_that_repeated_launches_leave_out_is_noticed():
    taken = readings((5.0, 10, 1e6), (6.0, 20, 1.5e6))
    assert millijoules_per_launch(taken, 5e4) == pytest.approx(0.1)
    with pytest.raises(DeviceFailure, match="50000 ns a launch where launches are repeated"):
        millijoules_per_launch(taken, 1e5)


def test_all_are_measured_in_every_round():
    calls = []
    each = {key: lambda key=key: calls.append(key) or float(len(calls)) for key in "abc"}
    found = interleaved(each, 2, np.random.default_rng(1))
    assert sorted(calls[:3]) == sorted(calls[3:]) == ["a", "b", "c"]
    assert sum(found.values()) == pytest.approx(10.5)


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.setattr(traits_registry, "TRAITS", dict(traits_registry.TRAITS))
    monkeypatch.setattr(adapter_registry, "MODULES", dict(adapter_registry.MODULES))
    monkeypatch.setattr("workers.bench.session.SETTLE_SECONDS", 0.002)
    monkeypatch.setattr("workers.bench.session.ENERGY_SECONDS", 0.005)
    monkeypatch.setattr("workers.bench.supervisor._ENERGY_PATIENCE", 1000.0)  # a busy host stalls
    register()
    (tmp_path / "affine.fake").write_text(SOURCE.format("affine"))
    path = tmp_path / "experiment.yaml"
    path.write_text(SPEC + "objective: energy\n")
    return path


def test_a_candidate_of_less_energy_wins_at_the_same_time(spec):
    laboratory = Laboratory(spec)
    try:
        prepared = laboratory.prepared.result
        assert not isinstance(prepared, Rejected), prepared
        tolerance = 2 * TICK_MJ / 1000
        assert [cell.energy.millijoules for cell in prepared] == pytest.approx(
            [LAUNCH_MJ] * 2, rel=tolerance
        )
        outcome = laboratory.outcome(SOURCE.format("thrifty"))
        assert isinstance(outcome, Measured), outcome
        (cell,) = outcome.cells
        assert cell.time_ratio == 1.0
        assert cell.ratio == pytest.approx(THRIFTY_MJ / LAUNCH_MJ, rel=tolerance)
        sampled = laboratory.confirmed(laboratory.candidate(SOURCE.format("thrifty")))
        assert not sampled.failed
        for sample in sampled.samples:
            wanted = LAUNCH_MJ if sample.trial < 0 else THRIFTY_MJ
            assert sample.millijoules == pytest.approx(wanted, rel=tolerance)
    finally:
        laboratory.close()


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("FAKE_NO_COUNTER", r"no energy counter of its own.*objective: time"),
        ("FAKE_OTHERS", r"2 other processes use the device.*objective: time"),
    ],
)
def test_where_energy_cannot_be_measured_it_is_refused_by_name(spec, monkeypatch, variable, says):
    monkeypatch.setenv(variable, "2")
    with pytest.raises(EnvironmentProblem, match=says):
        Laboratory(spec)


def test_metrics_may_read_joules_where_they_are_measured(spec):
    plain = SPEC + "metrics: {elem/J: n / joules}\n"
    spec.write_text(plain + "objective: energy_delay\n")
    experiment = load_experiment(spec)
    assert metric_values(experiment, {"n": 8}, 1e9, 2e3) == {"elem/J": 4.0}
    assert metric_values(experiment, {"n": 8}, 1e9, None) == {"elem/J": None}
    spec.write_text(plain)
    with pytest.raises(SpecError, match="'joules' are measured where the objective is energy"):
        load_experiment(spec)


@pytest.mark.parametrize("objective", ["energy", "energy_delay"])
def test_opencl_is_refused_by_name(spec, objective):
    text = SPEC.replace("language: fake", "language: opencl").replace(".fake", ".cl")
    spec.with_name("affine.cl").write_text(SOURCE.format("affine"))
    spec.write_text(f"{text}objective: {objective}\n")
    with pytest.raises(
        SpecError, match=r":19:12: OpenCL has no energy counter: set objective: time"
    ):
        load_experiment(spec)
