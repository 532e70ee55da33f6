"""Mechanical templates of the bundled CUDA kernels compile, with no GPU."""

from pathlib import Path

import pytest

from agents.generation.mechanical import mechanical_template
from tuner.experiment.load import load_experiment
from tuner.plan import CellPlan
from tuner.space.feasible import feasible_set
from tuner.space.lower import lower
from tuner.trial import Rejected
from workers.backends.cuda.architectures import device_for
from workers.backends.cuda.compiler import open_compiler

pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

EXPERIMENTS = Path(__file__).parents[3] / "deploy" / "experiments"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("silu_and_mul", ["UNROLL", "BLOCK", "RESIDENT"]),
        ("fused_add_rmsnorm", ["UNROLL", "BLOCK_Y", "RESIDENT"]),
        ("merge_attn_states_lse", ["BLOCK", "ITEMS", "STRIDED", "RESIDENT"]),
        ("row_softmax", ["UNROLL", "BLOCK", "RESIDENT"]),
        ("stencil_2d", ["UNROLL", "BLOCK_Y", "BLOCK_X", "ITEMS", "STRIDED", "RESIDENT"]),
    ],
)
def test_first_middle_and_last_compile(name: str, parameters: list[str]) -> None:
    experiment = load_experiment(EXPERIMENTS / name / "cuda.yaml")
    template = mechanical_template(experiment).template
    assert list(template.parameters) == parameters
    device = device_for("sm_90")
    compiler = open_compiler(device)
    space = feasible_set(experiment, template, device)
    for index in (0, len(space) // 2, len(space) - 1):
        configuration = space.configuration(index)
        plan = lower(experiment, template, configuration, experiment.shapes.tune, device)
        assert any(isinstance(cell, CellPlan) for cell in plan.cells)
        for build in plan.builds:
            result = compiler.compile(build)
            assert not isinstance(result, Rejected), result.detail
