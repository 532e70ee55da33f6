"""What models said in the bundled transcripts: of these very kernels, readable, and compiling."""

from pathlib import Path

import pytest

from agents.generation.admission import refusal
from agents.generation.corners import corners
from agents.llm.port import Role
from agents.llm.replay import read_transcript
from agents.replies import GeneratedTemplate, Suggestion, read_suggestion, read_template
from agents.settings import agent_settings
from tuner.experiment.digest import kernel_digest
from tuner.experiment.load import load_experiment
from tuner.space.feasible import feasible_set
from tuner.space.limits import over_limit
from tuner.space.lower import lower
from workers.backends.cuda.architectures import device_for

EXPERIMENTS = Path(__file__).parents[2] / "deploy" / "experiments"
RECORDED = sorted(EXPERIMENTS.glob("*/transcript_cuda*.jsonl"))
"""Each is named after its spec, ``transcript_SPEC.jsonl``."""
H100 = device_for("sm_90")
IN_CI = ("merge_attn_states_lse",)
"""Experiments whose long transcripts, of several rounds, are read every time, as all short ones."""


def by_tier(path):
    long = path.stem == "transcript_cuda" and path.parent.name not in IN_CI
    marks = pytest.mark.slow if long else ()
    return pytest.param(path, marks=marks, id=f"{path.parent.name}-{path.stem}")


@pytest.mark.parametrize("path", [by_tier(path) for path in RECORDED])
def test_every_reply_of_a_cuda_transcript_can_be_used(path):
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
    from workers.backends.cuda.compiler import open_compiler

    experiment = load_experiment(path.parent / f"{path.stem.removeprefix('transcript_')}.yaml")
    shapes = (experiment.shapes.tune[0], experiment.shapes.tune[-1])
    transcript = read_transcript(path)
    assert transcript.header.kernel == kernel_digest(experiment.kernel)
    rounds = {exchange.step.round for exchange in transcript.exchanges}
    assert rounds == set(range(1, agent_settings(experiment).rounds + 1))
    compiler = open_compiler(H100)
    for exchange in transcript.exchanges:
        if exchange.step.role is Role.PLANNING:
            assert isinstance(read_suggestion(exchange.reply), Suggestion)
            continue
        found = read_template(exchange.reply, "template.cu")
        assert isinstance(found, GeneratedTemplate)
        assert refusal(experiment, found.template) is None
        space = feasible_set(experiment, found.template, H100)
        for configuration in corners(space, 2):
            plan = lower(experiment, found.template, configuration, shapes, H100)
            binaries = [compiler.compile(build) for build in plan.builds]
            assert over_limit(plan, H100, binaries) is None
