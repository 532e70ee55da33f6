"""The kernels of the kinds that public projects hold: one source that both languages take."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.commands.validate import validate
from tuner.experiment.load import load_experiment
from tuner.plan import CellPlan
from tuner.space.feasible import feasible_set
from tuner.space.limits import over_limit
from tuner.space.lower import lower
from tuner.trial import Configuration, Rejected
from workers.backends.cuda.architectures import device_for
from workers.backends.cuda.compiler import open_compiler

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

SPECS = sorted((Path(__file__).parents[1] / "data" / "public").glob("*.yaml"))
H100 = device_for("sm_90")
every_kernel = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)


@pytest.fixture(scope="module")
def compiler():
    return open_compiler(H100)


@every_kernel
def test_the_baseline_and_a_configuration_compile_for_cuda(compiler, spec):
    experiment = load_experiment(spec)
    experiment = replace(experiment, kernel=replace(experiment.kernel, language="cuda"))
    space = feasible_set(experiment, experiment.template, H100)
    largest = space.configuration(len(space) - 1)
    shapes = experiment.shapes.tune
    for template, configuration in ((None, Configuration(())), (experiment.template, largest)):
        plan = lower(experiment, template, configuration, shapes, H100)
        assert all(isinstance(cell, CellPlan) for cell in plan.cells)
        binaries = [compiler.compile(build) for build in plan.builds]
        assert not any(isinstance(one, Rejected) for one in binaries), binaries
        assert over_limit(plan, H100, binaries) is None


@pytest.mark.slow
@every_kernel
def test_validate_finds_no_error(spec, capsys):
    validate(str(spec), target=None, fast=False, device=None, as_json=False)
    assert capsys.readouterr().out.endswith(f"{spec.stem}: no errors found\n")
