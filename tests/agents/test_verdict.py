from dataclasses import replace

import pytest

from agents.planning import least_times
from agents.verdict import refused
from tests.agents.briefs import twice
from tuner.experiment.model import Cost
from tuner.expressions import Expression
from tuner.trial import Code, Configuration, Rejected, Stage

POINT = Configuration.of({"VEC": 4, "BLOCK": 16})


def test_a_refusal_quotes_the_finder_and_the_lines() -> None:
    template = twice().template
    assert template is not None
    detail = "twice.cl:4:30: error: no\ntwice.cl(2): warning\ntwice.cl:99999999: x\nother.h:1: y"
    rejected = Rejected(stage=Stage.COMPILE, code=Code.COMPILE_ERROR, detail=detail)
    found = refused(rejected, POINT, template, twice().shapes.tune)
    assert found.by == "The compiler"
    assert found.detail.startswith("VEC=4 BLOCK=16: compile_error: twice.cl:4:30: error: no")
    assert found.detail.endswith(
        "the lines named:\n"
        "    2 | kernel void twice(global float *out, global const float *x, int d) {\n"
        "    4 |   for (int k = 0; k < VEC; ++k) {"
    )


def test_a_refusal_names_the_shape_on_which_it_was_seen() -> None:
    template, shapes = twice().template, twice().shapes.tune
    assert template is not None
    rejected = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="1 is not 2", shape=1)
    found = refused(rejected, POINT, template, shapes)
    assert found.detail == f"VEC=4 BLOCK=16 at {shapes[1]}: wrong_result: 1 is not 2"


@pytest.mark.parametrize("stage", list(Stage))
def test_every_stage_has_a_finder_and_details_are_bounded(stage: Stage) -> None:
    template = twice().template
    assert template is not None
    rejected = Rejected(stage=stage, code=Code.WRONG_RESULT, detail="x" * 10**6)
    found = refused(rejected, POINT, template, twice().shapes.tune)
    assert found.by
    assert len(found.detail) < 4_000


def test_the_least_time_is_the_larger_of_bytes_and_launch() -> None:
    experiment = replace(twice(), cost=Cost(bytes=Expression.parse("8 * tokens * d")))
    elements = [16 * 4096, 32 * 5120]
    memory = least_times(experiment, bytes_per_second=1e12, launch_us=0.1)
    assert memory == pytest.approx([8 * n / 1e6 for n in elements])
    assert least_times(experiment, bytes_per_second=1e15, launch_us=5.0) == (5.0, 5.0)
    assert least_times(experiment, bytes_per_second=None, launch_us=5.0) == (None, None)
    assert least_times(twice(), bytes_per_second=1e12, launch_us=1.0) == (None, None)
