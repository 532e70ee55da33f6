"""Templates that the mechanical rules make are right and run on a real GPU."""

from pathlib import Path

import pytest

from agents.generation.corners import corners
from agents.generation.mechanical import mechanical_template
from tests.workers.harness import Laboratory
from tuner.candidate import Candidate
from tuner.space.feasible import feasible_set
from tuner.space.limits import over_limit
from tuner.space.lower import lower
from tuner.trial import Measured, Rejected

pytestmark = pytest.mark.gpu

DATA = Path(__file__).parent / "data" / "sequences"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("convolution", {"UNROLL_1", "UNROLL_2", "BLOCK_1", "ITEMS_2"}),
        ("histogram", {"BLOCK_1", "UNROLL_2", "BLOCK_2"}),
        ("elementwise", {"BLOCK", "VEC", "ITEMS", "STRIDED"}),
    ],
)
def test_every_corner_agrees_with_the_plain_kernel(name, expected):
    laboratory = Laboratory(DATA / f"{name}.yaml")
    try:
        experiment, device = laboratory.experiment, laboratory.device
        template = mechanical_template(experiment).template
        print(name, {key: len(values) for key, values in template.parameters.items()})
        assert expected <= template.parameters.keys()
        space = feasible_set(experiment, template, device)
        for trial, configuration in enumerate(corners(space)):
            plan = lower(experiment, template, configuration, experiment.shapes.tune, device)
            binaries = laboratory.compiler.compile(plan.builds)
            assert not isinstance(binaries, Rejected), (configuration, binaries)
            if over_limit(plan, device, binaries):
                continue
            candidate = Candidate(
                trial=trial, configuration=configuration, plan=plan, binaries=binaries
            )
            outcome = laboratory.bench.run(candidate).outcome
            assert isinstance(outcome, Measured), (configuration, outcome)
            print(name, configuration, [round(cell.ratio, 3) for cell in outcome.cells])
    finally:
        laboratory.close()
