"""Mechanical templates of plain OpenCL kernels compute what the kernels do, run for real."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from agents.generation.mechanical import mechanical_template
from tests.agents.devices import CPU
from tests.covering import covering
from tuner.experiment.arguments import resolve_arguments
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, ShapeBinding, Shapes, Template
from tuner.plan import Build, CellPlan, KernelStep
from tuner.space.feasible import feasible_set
from tuner.space.lower import lower
from tuner.trial import Configuration

ROOT = Path(__file__).parents[3]
KERNELS = {
    "silu_and_mul": {"tokens": 3, "d": 37},
    "fused_add_rmsnorm": {"tokens": 5, "d": 75},
    "merge_attn_states_lse": {"n": 3, "h": 5, "d": 27},
    "row_softmax": {"rows": 3, "columns": 75},
    "stencil_2d": {"height": 11, "width": 37},
}
IN_CI = ("fused_add_rmsnorm", "stencil_2d")


def load(name: str) -> Experiment:
    experiment = load_experiment(ROOT / "deploy" / "experiments" / name / "opencl.yaml")
    shapes = Shapes(domain=experiment.shapes.domain, tune=(ShapeBinding(KERNELS[name]),))
    return replace(experiment, shapes=shapes)


class Runner:
    def __init__(self, experiment: Experiment) -> None:
        (device,) = cl.get_platforms()[0].get_devices()[:1]
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        self.experiment = experiment
        random = np.random.default_rng(7)
        self.values = []
        for argument in resolve_arguments(experiment, experiment.shapes.tune[0].symbols):
            if argument.kind == "scalar":
                self.values.append(np.dtype(argument.dtype).type(argument.value))
            else:
                filled = random.normal(size=argument.shape).astype(argument.dtype)
                self.values.append(np.zeros_like(filled) if argument.kind == "out" else filled)

    def run(self, template: Template | None, configuration: Configuration) -> list[np.ndarray]:
        plan = lower(self.experiment, template, configuration, self.experiment.shapes.tune, CPU)
        (cell,) = plan.cells
        assert isinstance(cell, CellPlan), cell
        (step,) = cell.steps
        assert isinstance(step, KernelStep)
        kernel = getattr(self._program(plan.builds[cell.build]), step.entry)
        buffers = [
            cl.Buffer(self.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=value)
            if isinstance(value, np.ndarray)
            else value
            for value in self.values
        ]
        size = tuple(grid * block for grid, block in zip(step.grid, step.block, strict=True))
        kernel(self.queue, size, step.block, *buffers)
        results = []
        for value, buffer in zip(self.values, buffers, strict=True):
            if isinstance(buffer, cl.Buffer):
                results.append(np.empty_like(value))
                cl.enqueue_copy(self.queue, results[-1], buffer)
        return results

    def _program(self, build: Build) -> cl.Program:
        options = [*build.options, *(f"-D{name}={value}" for name, value in build.defines)]
        return cl.Program(self.context, build.source).build(options)


def corners(template: Template, experiment: Experiment) -> list[Configuration]:
    """Every combination of first and last values that is feasible."""
    space = feasible_set(experiment, template, CPU)
    ends = itertools.product(*({values[0], values[-1]} for values in template.parameters.values()))
    feasible = {space.configuration(index) for index in range(len(space))}
    points = [
        Configuration.of(dict(zip(template.parameters, point, strict=True))) for point in ends
    ]
    return [point for point in points if point in feasible]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in IN_CI else pytest.mark.slow) for n in KERNELS]
)
def test_corners_agree_with_the_plain_kernel(name: str, every: bool) -> None:
    """Those that have all pairs of ends between them, or every one."""
    experiment = load(name)
    template = mechanical_template(experiment).template
    runner = Runner(experiment)
    expected = runner.run(None, Configuration(()))
    tried = corners(template, experiment)
    assert len(tried) >= 4
    for configuration in tried if every else covering(tried, strength=2):
        for got, wanted in zip(runner.run(template, configuration), expected, strict=True):
            np.testing.assert_allclose(
                got.astype(np.float64),
                wanted.astype(np.float64),
                rtol=2e-3,
                atol=1e-5,
                err_msg=str(configuration),
            )


def test_a_computed_global_index_is_varied_alike() -> None:
    """On two axes, at the outermost corners."""
    asked = load("stencil_2d")
    text = asked.kernel.source.text
    for axis, computed in enumerate(
        (
            "(int)get_group_id(0) * (int)get_local_size(0) + (int)get_local_id(0)",
            "get_local_id(1) + get_local_size(1) * get_group_id(1)",
        )
    ):
        assert f"get_global_id({axis})" in text
        text = text.replace(f"get_global_id({axis})", computed)
    source = replace(asked.kernel.source, text=text)
    experiment = replace(asked, kernel=replace(asked.kernel, source=source))
    template = mechanical_template(experiment).template
    runner = Runner(experiment)
    expected = runner.run(None, Configuration(()))
    assert template.parameters == mechanical_template(asked).template.parameters
    tried = corners(template, experiment)
    for configuration in (tried[0], tried[-1]):
        for got, wanted in zip(runner.run(template, configuration), expected, strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=str(configuration))


@pytest.mark.parametrize("name", KERNELS)
def test_the_baseline_itself_is_in_the_space(name: str) -> None:
    experiment = load(name)
    template = mechanical_template(experiment).template
    block = experiment.kernel.steps[0].block  # type: ignore[union-attr]
    wanted = {"ITEMS": 1, "STRIDED": False, "UNROLL": 0}
    sizes = [name for name in template.parameters if name.startswith("BLOCK")]
    wanted |= dict(zip(sorted(sizes), (int(axis.text) for axis in block), strict=True))
    configuration = Configuration.of({name: wanted[name] for name in template.parameters})
    baseline, same = (
        lower(experiment, subject, point, experiment.shapes.tune, CPU).cells[0]
        for subject, point in ((None, Configuration(())), (template, configuration))
    )
    assert isinstance(baseline, CellPlan)
    assert isinstance(same, CellPlan)
    assert same.steps == baseline.steps
