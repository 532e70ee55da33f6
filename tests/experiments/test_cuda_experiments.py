"""The bundled CUDA experiments without a GPU: compiled for every architecture, judged, lowered.

What their kernels compute and how fast is for a machine with a GPU to tell.
"""

import random
from pathlib import Path

import pytest

from tests.covering import covering
from tuner.experiment.load import load_experiment
from tuner.integrity.source_rules import source_violations
from tuner.plan import CellPlan, KernelStep
from tuner.space.feasible import FeasibleSet, feasible_set
from tuner.space.limits import over_limit
from tuner.space.lower import lower
from tuner.space.occupancy import occupancy
from tuner.trial import Configuration
from workers.backends.cuda.architectures import ARCHITECTURES, device_for
from workers.backends.cuda.compiler import open_compiler

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

EXPERIMENTS = Path(__file__).parents[2] / "deploy" / "experiments"
NAMES = ("silu_and_mul", "fused_add_rmsnorm", "merge_attn_states_lse")
H100 = device_for("sm_90")
IN_CI = ("sm_90",)
"""Architectures whose corners are compiled every time; those of the others in the slow tier."""


@pytest.fixture(params=NAMES)
def experiment(request):
    return load_experiment(EXPERIMENTS / request.param / "cuda.yaml")


def corners(space: FeasibleSet) -> list[Configuration]:
    """Feasible points with every parameter at an end of its values, in all pairs of such ends."""
    points = (space.configuration(index) for index in range(len(space)))
    ends = {name: (values[0], values[-1]) for name, values in space.parameters.items()}
    extreme = (p for p in points if all(value in ends[name] for name, value in p.values))
    return covering(extreme, strength=2)


def test_the_baseline_fits_every_shape_on_every_architecture(experiment):
    bindings = (*experiment.shapes.tune, *experiment.shapes.held_out)
    for arch in ARCHITECTURES:
        device = device_for(arch)
        plan = lower(experiment, None, Configuration(()), bindings, device)
        assert all(isinstance(cell, CellPlan) for cell in plan.cells)
        binaries = [open_compiler(device).compile(build) for build in plan.builds]
        assert over_limit(plan, device, binaries) is None


def test_a_budget_of_trials_covers_the_whole_space(experiment):
    space = feasible_set(experiment, experiment.template, H100)
    assert 200 <= len(space) <= experiment.search.trials
    assert space.mask.all(axis=1).any()


def test_the_static_gate_lets_the_template_pass(experiment):
    assert source_violations(experiment, experiment.template) == ()


@pytest.mark.parametrize(
    "arch",
    [pytest.param(a, marks=() if a in IN_CI else pytest.mark.slow) for a in ARCHITECTURES],
)
def test_corner_configurations_compile_and_fit(experiment, arch):
    device = device_for(arch)
    compiler = open_compiler(device)
    space = feasible_set(experiment, experiment.template, device)
    shapes = (experiment.shapes.tune[0], experiment.shapes.tune[-1])
    for configuration in corners(space):
        plan = lower(experiment, experiment.template, configuration, shapes, device)
        binaries = [compiler.compile(build) for build in plan.builds]
        assert over_limit(plan, device, binaries) is None
        for cell in plan.cells:
            if not isinstance(cell, CellPlan):
                continue
            (step,) = cell.steps
            assert isinstance(step, KernelStep)
            usage = dict(binaries[cell.build].usage)[step.entry]
            assert usage.spill_bytes == usage.stack_bytes == 0
            threads = step.block[0] * step.block[1] * step.block[2]
            assert usage.max_threads_per_block == threads
            shared = usage.static_shared_bytes + step.shared_bytes
            assert occupancy(device, threads, usage.registers, shared) > 0


def test_every_launch_covers_its_elements_once(experiment):
    template = experiment.template
    space = feasible_set(experiment, template, H100)
    for index in random.Random(1).sample(range(len(space)), 20):
        configuration = space.configuration(index)
        theta = configuration.as_dict()
        bindings = (*experiment.shapes.tune, *experiment.shapes.held_out)
        plan = lower(experiment, template, configuration, bindings, H100)
        for binding, cell in zip(bindings, plan.cells, strict=True):
            if not isinstance(cell, CellPlan):
                continue
            (step,) = cell.steps
            sizes = binding.symbols
            rows = sizes.get("tokens", 1)
            row_packs = sizes["d"] // theta.get("VEC", 8)
            if "n" in sizes:
                row_packs *= sizes["n"] * sizes["h"]
            blocks_of_rows = -(-rows // theta.get("ROWS", 1))
            blocks_per_row = step.grid[0] / blocks_of_rows
            assert blocks_per_row == int(blocks_per_row)
            covered = blocks_per_row * step.block[0] * theta["UNROLL"]
            assert row_packs <= covered
            assert covered - step.block[0] * theta["UNROLL"] < row_packs
