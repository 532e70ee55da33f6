"""A backend that nothing knows until it is registered: traits, adapter, children, bench."""

import pytest

from tests.conformance.device_backend import DeviceBackendConformance
from tests.workers.backends.fake_backend import FakeCompiler, FakeDevice, register
from tests.workers.harness import Laboratory
from tuner.backends import registry as traits_registry
from tuner.errors import SpecError
from tuner.experiment.load import load_experiment
from tuner.experiment.schema import json_schema
from tuner.plan import Binary, Build
from tuner.report.estimate import estimate
from tuner.trial import Measured, Rejected
from workers.backends import registry as adapter_registry
from workers.devices.discover import list_devices

SPEC = """
version: 1
name: affine
kernel:
  language: fake
  source: affine.fake
  entry: affine
  launch: {grid: ["ceil_div(n, 64)"], block: [64]}
arguments:
  - {name: out, kind: out, dtype: float32, shape: [n]}
  - {name: x, kind: in, dtype: float32, shape: [n]}
  - {name: y, kind: in, dtype: float32, shape: [n]}
  - {name: n, kind: scalar, dtype: int32, value: n}
shapes:
  domain: ["1 <= n", "n <= 65536"]
  tune: [{n: 1024}]
  held_out: [{n: 1537}]
measure: {warmup: 5, repeats: 20, cache: cold}
"""
SOURCE = """// runs {}
kernel void affine(global float *out, global const float *x, global const float *y, int n) {{}}
"""


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(traits_registry, "TRAITS", dict(traits_registry.TRAITS))
    monkeypatch.setattr(adapter_registry, "MODULES", dict(adapter_registry.MODULES))
    register()


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "affine.fake").write_text(SOURCE.format("affine"))
    path = tmp_path / "experiment.yaml"
    path.write_text(SPEC)
    return path


class TestFakeDevice(DeviceBackendConformance):
    @pytest.fixture
    def backend(self):
        return FakeDevice()

    def compiled(self, entry: str) -> Binary:
        build = Build(language="fake", file="k", source=f"// runs {entry}", entries=(entry,))
        binary = FakeCompiler().compile(build)
        assert isinstance(binary, Binary)
        return binary


def test_unregistered_it_is_refused_with_the_known_names(spec):
    with pytest.raises(SpecError, match=r"should be 'cuda' or 'opencl', not 'fake'"):
        load_experiment(spec)
    with pytest.raises(ValueError, match="unknown backend 'fake'; there are: cuda, opencl"):
        traits_registry.traits_of("fake")


@pytest.mark.usefixtures("registered")
def test_registered_it_is_prepared_measured_and_examined(spec):
    assert "fake" in json_schema()["$defs"]["Kernel"]["properties"]["language"]["enum"]
    (found,) = list_devices(("fake",))
    assert found.device == FakeDevice.device
    laboratory = Laboratory(spec)
    try:
        assert not isinstance(laboratory.prepared.result, Rejected), laboratory.prepared
        assert isinstance(laboratory.outcome(SOURCE.format("affine")), Measured)
        wrong = laboratory.outcome(SOURCE.format("nothing"))
        assert isinstance(wrong, Rejected)
        assert "out" in wrong.detail
        honest = laboratory.candidate(SOURCE.format("affine"))
        assert not laboratory.confirmed(honest).failed
        (note,) = laboratory.examined(honest).notes
        assert note.startswith("winners were not examined")
        cost = estimate(
            laboratory.experiment, laboratory.device, 10, compile_slots=1, bench_slots=1
        )
        assert cost.search_seconds > 0
    finally:
        laboratory.close()
