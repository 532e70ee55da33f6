"""Both real fleets do what every fleet does."""

import pytest

from cluster.fleets.local import choose, compile_slots, open_local_fleet
from tests.cluster.kernels import write_experiment
from tests.conformance.fleet import FleetConformance
from tests.tuner.space.devices import cuda_device, opencl_cpu
from tuner.errors import EnvironmentProblem
from tuner.experiment.load import load_experiment
from tuner.trial import Configuration
from workers.devices.discover import Found


class OpenClConformance(FleetConformance):
    configurations = (
        Configuration.of({"ITEMS": 1, "BLOCK": 16}),
        Configuration.of({"ITEMS": 2, "BLOCK": 64}),
        Configuration.of({"ITEMS": 4, "BLOCK": 16}),
    )

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _experiment(cls, tmp_path_factory):
        cls.experiment = load_experiment(write_experiment(tmp_path_factory.mktemp("scale")))


class TestLocalFleet(OpenClConformance):
    @classmethod
    async def open_fleet(cls):
        return await open_local_fleet("opencl")


@pytest.mark.usefixtures("ray_cluster")
class TestRayFleet(OpenClConformance):
    @classmethod
    async def open_fleet(cls):
        from cluster.fleets.ray import open_ray_fleet

        return await open_ray_fleet("opencl")


def found(*devices):
    return tuple(
        Found(backend="cuda", index=index, device=device) for index, device in enumerate(devices)
    )


def test_devices_of_the_first_fitting_model_are_taken():
    devices = found(cuda_device(80), cuda_device(90), cuda_device(80))
    assert choose(devices, "cuda", None) == (cuda_device(80), (0, 2))
    assert choose(devices, "cuda", "SM_90") == (cuda_device(90), (1,))
    assert choose(devices, "cuda", "2") == (cuda_device(80), (2,))
    assert choose(found(opencl_cpu(), opencl_cpu()), "opencl", None)[1] == (0,)


def test_no_device_is_told_with_what_there_is():
    with pytest.raises(EnvironmentProblem, match=r"no cuda device fits 'x'.*0 \(test sm_80\)"):
        choose(found(cuda_device(80)), "cuda", "x")
    nothing = (Found(backend="cuda", index=-1, problem="no driver"),)
    with pytest.raises(EnvironmentProblem, match="no cuda device: no driver"):
        choose(nothing, "cuda", None)


def test_one_core_stays_free_for_each_bench():
    assert compile_slots(cuda_device(90), processors=16, benches=2) == 14
    assert compile_slots(cuda_device(90), processors=1, benches=1) == 1
    assert compile_slots(opencl_cpu(), processors=2, benches=1) == 2
