"""The bundled OpenCL experiments that have a template, on a real device.

Every kernel passes its own reference, and a sample of its template's space that has every value of
every parameter agrees with it, on a shape small and odd enough to reach each tail.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.covering import covering
from tuner.candidate import BASELINE, Candidate
from tuner.csource.kernels import signatures
from tuner.device import Device
from tuner.engine.work import BenchSetup
from tuner.experiment.load import load_experiment
from tuner.experiment.model import Experiment, Measure, ShapeBinding, Shapes, Template
from tuner.plan import Plan
from tuner.space.feasible import feasible_set
from tuner.space.limits import over_limit
from tuner.space.lower import lower
from tuner.trial import Configuration, Measured, Rejected, Value
from workers.bench.device_bench import DeviceBench
from workers.compilers.worker import CompileWorker

ROOT = Path(__file__).parents[2]
BUNDLED = ROOT / "deploy" / "experiments"

ODD_SHAPES: dict[str, dict[str, Value]] = {
    "silu_and_mul": {"tokens": 3, "d": 37},
    "fused_add_rmsnorm": {"tokens": 5, "d": 75},
    "merge_attn_states_lse": {"n": 3, "h": 5, "d": 27},
}
FOLDERS = {name: BUNDLED / name for name in ODD_SHAPES}
every_experiment = pytest.mark.parametrize("name", FOLDERS)


def load(name: str) -> tuple[Experiment, Template]:
    experiment = load_experiment(FOLDERS[name] / "opencl.yaml")
    assert experiment.template is not None
    return experiment, experiment.template


@every_experiment
def test_promises_of_the_bundle(name: str) -> None:
    experiment, _ = load(name)
    assert experiment.name == name
    assert experiment.reference is not None
    assert experiment.search.trials <= 40
    assert experiment.shapes.held_out


@every_experiment
def test_arguments_follow_the_signature_of_kernel_and_template(name: str) -> None:
    experiment, template = load(name)
    names = [argument.name for argument in experiment.arguments]
    for source in (experiment.kernel.source, template.source):
        (signature,) = signatures(source.text, "opencl")
        assert signature.name == experiment.kernel.entry
        assert [parameter.name for parameter in signature.parameters] == names


@dataclass(frozen=True)
class Workbench:
    compiler: CompileWorker
    bench: DeviceBench
    device: Device

    def candidate(
        self, experiment: Experiment, template: Template | None, values: Configuration, trial: int
    ) -> Candidate:
        plan: Plan = lower(experiment, template, values, experiment.shapes.tune, self.device)
        binaries = self.compiler.compile(plan.builds)
        assert not isinstance(binaries, Rejected), f"{values}: {binaries}"
        assert over_limit(plan, self.device, binaries) is None
        return Candidate(trial=trial, configuration=values, plan=plan, binaries=binaries)


@pytest.fixture(scope="module")
def workbench() -> Iterator[Workbench]:
    bench = DeviceBench("opencl", 0)
    try:
        device = bench.device()
        with CompileWorker(device) as compiler:
            yield Workbench(compiler, bench, device)
    finally:
        bench.close()


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "silu_and_mul" else pytest.mark.slow) for n in FOLDERS],
)
def test_a_covering_sample_of_the_space_agrees_with_the_reference(
    name: str, workbench: Workbench
) -> None:
    experiment, template = load(name)
    shapes = Shapes(domain=experiment.shapes.domain, tune=(ShapeBinding(ODD_SHAPES[name]),))
    tiny = replace(experiment, shapes=shapes, measure=Measure(warmup=0, repeats=3, cache="hot"))
    baseline = workbench.candidate(tiny, None, Configuration(()), BASELINE)
    prepared = workbench.bench.prepare(
        BenchSetup(experiment=tiny, baseline=baseline, secret=20260101)
    )
    assert not isinstance(prepared.result, Rejected), prepared.result.detail
    space = feasible_set(tiny, template, workbench.device)
    rejected = []
    points = covering((space.configuration(index) for index in range(len(space))), strength=1)
    for trial, point in enumerate(points):
        candidate = workbench.candidate(tiny, template, point, trial)
        outcome = workbench.bench.run(candidate).outcome
        if not isinstance(outcome, Measured) or not outcome.general:
            rejected.append((str(point), outcome))
    assert not rejected
