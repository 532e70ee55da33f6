"""Element types that a device lacks are refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuner.experiment import specs
from tests.tuner.space.devices import cuda_device
from tuner.errors import SpecError
from tuner.experiment.check.device import require_dtypes, require_launches
from tuner.experiment.load import load_experiment
from tuner.experiment.model import NEVER
from tuner.expressions import Expression


def test_a_type_that_the_device_lacks(tmp_path):
    text = specs.SPEC.replace("dtype: float32, shape: [n], range", "dtype: T, shape: [n], range")
    text = text.replace("{n: 1000}", "{n: 1000, T: float32}").replace("weight: 2", "T: float32")
    text = text.replace("{n: 777}", "{n: 777, T: float64}")
    experiment = load_experiment(specs.write(tmp_path, text))
    device = replace(cuda_device(90), name="Tiny", dtypes=("float32", "int32"))
    with pytest.raises(
        SpecError,
        match=r"argument 'x' is float64, which Tiny does not support; .*: float32",
    ):
        require_dtypes(experiment, device)
    require_dtypes(experiment, replace(device, dtypes=("float32", "int32", "float64")))


DEPENDENT = Path(__file__).parents[2] / "gpu/exploits/experiments/dependent_affine/experiment.yaml"


def test_launch_attributes_that_the_device_lacks():
    experiment = load_experiment(DEPENDENT)
    old = replace(cuda_device(80), name="Old")
    words = (
        "kernel.launch.dependent: a dependent launch needs compute capability 9.0, and Old has 8.0"
    )
    with pytest.raises(SpecError, match=words):
        require_launches(experiment, old)
    require_launches(experiment, cuda_device(90))
    launch = replace(experiment.kernel.launch, dependent=NEVER, cluster=(Expression.parse(2),))
    clustered = replace(experiment, kernel=replace(experiment.kernel, launch=launch))
    with pytest.raises(SpecError, match=r"kernel\.launch\.cluster: a cluster needs compute"):
        require_launches(clustered, old)
    require_launches(clustered, cuda_device(90))
