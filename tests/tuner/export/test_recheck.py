"""The launch record of an export, read back; and claims judged by fresh samples."""

import json
import math
from dataclasses import replace

import pytest

from tests.tuner.export.test_bundle import BUNDLED, corners
from tests.tuner.results.runs import finished_run
from tests.tuner.space.devices import cuda_device, opencl_cpu
from tuner.candidate import BASELINE
from tuner.errors import EnvironmentProblem
from tuner.experiment.load import load_experiment
from tuner.experiment.odd_shapes import every_shape
from tuner.export.bundle import export_files
from tuner.export.recheck import outcome, recheck, wide_claim
from tuner.export.record import NAME, read_record
from tuner.journal.facts import ConfirmationSampled, Sample
from tuner.space.lower import lower
from tuner.trial import Code, Rejected, Stage


def exported(path=BUNDLED[0]):
    experiment = load_experiment(path)
    device = cuda_device(90) if experiment.kernel.language == "cuda" else opencl_cpu()
    shapes = len(experiment.shapes.tune) + len(experiment.shapes.held_out)
    baseline = [1000.0] * shapes
    mine = corners(experiment)[0]
    run = finished_run(
        experiment, device, baseline, [(mine.as_dict(), [500.0] * shapes)], noise=0.001
    )
    return experiment, device, mine, export_files(run)


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_record_launches_what_the_template_does(path):
    experiment, device, mine, files = exported(path)
    record = read_record(files[NAME])
    shapes = every_shape(experiment)
    assert record.device == device.model
    assert list(record.shapes) == [shape.symbols for shape in shapes]
    baseline, general = record.variants
    assert (baseline.trial, general.trial, general.name) == (BASELINE, 0, "general")
    for variant, template in ((baseline, None), (general, experiment.template)):
        configuration = mine if template else type(mine)(())
        wanted = lower(experiment, template, configuration, shapes, device)
        plan = variant.plan(experiment, files)
        assert plan.cells == wanted.cells
        for build, original in zip(plan.builds, wanted.builds, strict=True):
            assert build.source.endswith(original.source)
            assert (build.entries, build.options) == (original.entries, original.options)
            baked = dict(original.defines).items() - dict(build.defines).items()
            assert all(f"#define {name} {value}\n" in build.source for name, value in baked)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop("device"),
        lambda data: data.update(more=1),
        lambda data: data["variants"][0]["cells"].append({"kind": "shell", "run": "ls"}),
        lambda data: data.update(format=99),
    ],
)
def test_a_broken_record_is_refused(damage):
    data = json.loads(exported()[3][NAME])
    damage(data)
    with pytest.raises(EnvironmentProblem, match=r"record\.json"):
        read_record(json.dumps(data))


def answers(record, speedup, *, processes=5, noise=0.0, failed=()):
    found = []
    for process in range(processes):
        shake = math.exp(noise * (-1) ** process)
        samples = [
            Sample(trial=trial, shape=shape, cache="hot", median_ns=time)
            for shape in range(len(record.shapes))
            for trial, time in ((BASELINE, 1000.0), (0, 1000.0 / speedup * shake))
            if trial not in dict(failed)
        ]
        found.append(ConfirmationSampled(process=process, samples=tuple(samples), failed=failed))
    return found


@pytest.mark.parametrize(
    ("speedup", "noise", "verdict"),
    [
        (2.0, 0.0, "holds"),
        (1.97, 0.0005, "holds"),
        (1.9, 0.0005, "fails"),
        (2.2, 0.0005, "higher"),
        (1.9, 0.015, "holds"),
        (1.9, 0.05, "holds"),
        (2.1, 0.07, "holds"),
        (2.1, 0.1, "unclear"),
        (1.9, 0.4, "unclear"),
        (2.0, 0.4, "unclear"),
        (1.03, 0.5, "unclear"),
    ],
)
def test_claims_hold_within_two_percent_or_their_intervals(speedup, noise, verdict):
    record = read_record(exported()[3][NAME])
    checks = recheck(record, "hot", answers(record, speedup, noise=noise))
    assert {check.verdict for check in checks} == {verdict}
    assert outcome(checks) == ("holds" if verdict == "higher" else verdict)
    assert all(check.claimed.speedup == pytest.approx(2.0, rel=0.01) for check in checks)


def test_a_narrow_measurement_confirms_a_claim_whose_interval_is_wide():
    record = read_record(exported()[3][NAME])
    wide = [
        replace(one, claims=tuple(replace(claim, low=0.4, high=10.0) for claim in one.claims))
        for one in record.variants
    ]
    checks = recheck(
        replace(record, variants=tuple(wide)), "hot", answers(record, 2.0, noise=0.0005)
    )
    assert {check.verdict for check in checks} == {"holds"}
    assert all(map(wide_claim, checks))


def test_a_wide_claim_is_not_confirmed_by_another_figure_that_is_faster_too():
    record = read_record(exported()[3][NAME])
    claims = [
        replace(one, claims=tuple(replace(claim, low=1.01, high=50.0) for claim in one.claims))
        for one in record.variants
    ]
    wide = replace(record, variants=tuple(claims))
    checks = recheck(wide, "hot", answers(record, 1.3, noise=0.0005))
    assert {check.verdict for check in checks} == {"unclear"}


def test_one_process_settles_nothing_and_a_failure_is_told():
    record = read_record(exported()[3][NAME])
    once = recheck(record, "hot", answers(record, 1.5, processes=1))
    assert {check.verdict for check in once} == {"unclear"}
    assert outcome(once) == "unclear"
    sure = recheck(record, "hot", answers(record, 2.0))
    assert outcome([*once, *sure]) == "unclear"
    why = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, shape=1, detail="out[0] is 3")
    wrong = recheck(record, "hot", answers(record, 2.0, failed=((0, why),)))
    assert {(check.verdict, check.reason) for check in wrong} == {
        ("fails", "at tokens=256,d=4096: out[0] is 3")
    }
    assert outcome([*once, *sure, *wrong]) == "fails"
    assert {c.verdict for c in recheck(record, "cold", answers(record, 2.0))} == {"fails"}


def test_who_failed_adds_nothing_to_the_noise_of_the_others():
    record = read_record(exported()[3][NAME])
    steady = answers(record, 2.0, noise=0.0005)
    why = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="out[0] is 3 instead of 2")
    wild = [
        replace(
            answer,
            samples=(
                *answer.samples,
                *(
                    replace(s, trial=7, median_ns=s.median_ns * 9**answer.process)
                    for s in answer.samples
                    if s.trial == 0
                ),
            ),
            failed=((7, why),) if answer.process == 4 else (),
        )
        for answer in steady
    ]
    assert recheck(record, "hot", wild) == recheck(record, "hot", steady)
