"""The least times that the loop of rounds goes by: measured ceilings, else what is known."""

from dataclasses import replace

import pytest

from agents.settings import AgentSettings
from agents.static_profile import UNKNOWN
from cluster.runs.agent_run import loop_task
from cluster.runs.evaluator import Baseline
from tests.tuner.engine.driving import CPU, GPU, experiment
from tuner.ceilings import Ceilings
from tuner.experiment.model import Cost, Measure
from tuner.expressions import Expression

MEASURED = Ceilings(copy_bytes_per_second=1e9, launch_ns=1500.0)
PINS = replace(GPU, memory_bytes_per_second=2e9)


@pytest.mark.parametrize(
    ("device", "cache", "ceilings", "floors"),
    [
        (PINS, "cold", MEASURED, (2.048, 8.192)),
        (PINS, "cold", None, (1.024, 4.096)),
        (PINS, "hot", MEASURED, (None, None)),
        (CPU, "cold", MEASURED, (None, None)),
    ],
    ids=["measured", "the pins", "a hot cache", "a processor's caches"],
)
def test_floors_are_measured_where_they_can_be(tmp_path, device, cache, ceilings, floors):
    cost = Cost(bytes=Expression.parse("8 * n"))
    problem = replace(experiment(), cost=cost, measure=Measure(cache=cache))
    baseline = Baseline(device=device, times_us=(1.0, 2.0), static=UNKNOWN, ceilings=ceilings)
    assert loop_task(tmp_path, problem, AgentSettings(), baseline).floor_us == floors


def test_no_time_is_expected_below_an_empty_launch(tmp_path):
    slow = replace(MEASURED, launch_ns=5000.0)
    problem = replace(experiment(), cost=Cost(bytes=Expression.parse("8 * n")))
    baseline = Baseline(device=PINS, times_us=(1.0, 2.0), static=UNKNOWN, ceilings=slow)
    assert loop_task(tmp_path, problem, AgentSettings(), baseline).floor_us == (5.0, 8.192)
