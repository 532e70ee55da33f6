"""The command ``campaign``: its report, and a campaign of real runs from its begin to its end."""

import csv
import io
import json
import re
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from cluster.campaigns import summary
from cluster.campaigns.folder import CampaignFolder, Record
from cluster.campaigns.plan import Campaign, PlannedRun, load_campaign
from cluster.commands.campaign import campaign
from tests.cluster.kernels import KERNEL, SPEC, kernelwright, write_experiment
from tests.cluster.test_full_disk import begin, follow
from tests.tuner.engine import driving
from tests.tuner.results.runs import finished_facts
from tuner.errors import SpecError
from tuner.journal.facts import Entry
from tuner.run_directory import RunDirectory


def test_a_report_has_the_verdict_on_each_kernel(tmp_path):
    path = begin(tmp_path)
    follow(path)
    (tmp_path / "night" / "runs").mkdir(parents=True)
    path.rename(tmp_path / "night" / "runs" / "scale")
    runs = tuple(PlannedRun(spec=f"{name}.yaml", name=name) for name in ("scale", "later"))
    record = Record(campaign=Campaign(version=1, name="night", runs=runs))
    rows = summary.rows_of(tmp_path / "night", record)
    (scale, later) = rows
    assert (scale.outcome, scale.verdict, scale.trials) == ("improved", "faster", 6)
    assert (scale.low, scale.speedup, scale.high) == pytest.approx((2.0, 2.0, 2.0), rel=0.01)
    assert (later.outcome, later.speedup) == ("not_begun", None)
    said = summary.text(rows, 80)
    assert all(len(line) <= 80 for line in said.splitlines())
    head, first, *_ = said.splitlines()
    assert head.index("outcome") == first.index("improved")
    assert re.search(r"scale +improved +6 +- +2\.000× \[.*\] faster", said)
    assert "1 of 2 kernels improved; 1 not begun." in said
    failed = replace(later, outcome="failed", words=" ".join(["no device"] * 20))
    wrapped = summary.text([scale, failed], 80)
    assert all(len(line) <= 80 for line in wrapped.splitlines())
    assert wrapped.count("device") == 20
    page = summary.as_markdown("night", "today", rows)
    assert "faster than the baseline with one configuration" in page
    read = list(csv.DictReader(io.StringIO(summary.as_csv(rows))))
    assert [row["outcome"] for row in read] == ["improved", "not_begun"]
    assert float(read[0]["speedup"]) == scale.speedup


def test_a_kernel_that_is_faster_on_some_shapes_only_says_so_everywhere(tmp_path):
    spec = driving.experiment()
    trials = [({"x": 0}, [500.0, None, None]), ({"x": 1}, [1000.0, 2000.0, 4000.0])]
    base = [1000.0, 2000.0, 4000.0]
    facts = finished_facts(spec, driving.GPU, base, trials, noise=0.001)
    path = tmp_path / "runs" / "jac"
    path.parent.mkdir()
    with closing(RunDirectory.create(path, spec, "")) as folder, folder.journal() as journal:
        for fact in facts:
            journal.append(Entry(fact))
    runs = tuple(PlannedRun(spec=f"{name}.yaml", name=name) for name in ("jac", "later"))
    record = Record(campaign=Campaign(version=1, name="night", runs=runs))
    rows = summary.rows_of(tmp_path, record)
    for said in (summary.text(rows, 100), summary.as_markdown("night", "today", rows)):
        assert "improved on 1 of 2 shapes" in said
        assert "1 of 2 kernels improved, 1 of them on some shapes only; 1 not begun." in said


CAMPAIGN = """\
version: 1
seconds: 600
runs:
  - {spec: good/spec.yaml, name: good}
  - {spec: wrong/spec.yaml, name: wrong, priority: 1}
"""


def test_the_errors_of_all_specs_are_told_before_anything_is_begun(tmp_path):
    write_experiment(tmp_path / "good")
    for name, key in (("wrong", "trails"), ("more", "tirals")):
        write_experiment(tmp_path / name, spec=SPEC.replace("trials:", f"{key}:"))
    text = "version: 1\nruns:\n" + "".join(
        f"  - {{spec: {name}/spec.yaml, name: {name}}}\n" for name in ("good", "wrong", "more")
    )
    (tmp_path / "night.yaml").write_text(text)
    run = partial(
        campaign,
        fleet="local",
        output=tmp_path / "out",
        seconds=None,
        device=None,
        allow_endpoint=None,
        as_json=False,
    )
    with pytest.raises(SpecError, match=r"(?s)wrong/spec.yaml:\d.*trails.*more/spec.yaml.*tirals"):
        run(tmp_path / "night.yaml")
    assert not (tmp_path / "out").exists()
    planned = load_campaign(tmp_path / "night.yaml")
    CampaignFolder.create(tmp_path / "out", Record(campaign=planned, fleet="local")).close()
    with pytest.raises(SpecError, match=r"(?s)wrong/spec.yaml:\d.*trails.*more/spec.yaml.*tirals"):
        run(tmp_path / "out")
    assert not list((tmp_path / "out" / "runs").iterdir())


@pytest.mark.slow
def test_a_wrong_kernel_leaves_the_others_their_result(tmp_path):
    write_experiment(tmp_path / "good")
    write_experiment(tmp_path / "wrong", kernel=KERNEL.replace("3.0f", "2.0f"))
    (tmp_path / "night.yaml").write_text(CAMPAIGN)
    done = kernelwright(
        "campaign", tmp_path / "night.yaml", "--fleet", "local", "-o", tmp_path / "out", "--json"
    )
    assert done.returncode == 4, done.stderr
    assert "no valid result of wrong: see" in done.stderr
    found = json.loads(done.stdout)["runs"]
    assert [row["name"] for row in found] == ["wrong", "good"]
    assert found[0]["outcome"] == "nothing_valid"
    assert found[1]["outcome"] in ("improved", "no_gain")
    assert "the baseline disagrees with its reference" in (tmp_path / "out/report.md").read_text()
    run = tmp_path / "out" / "runs" / "good"
    assert kernelwright("report", run).returncode == 0
    done = kernelwright("campaign", tmp_path / "out", "--seconds", "300")
    assert "good: resume" not in done.stderr, "what is finished is not begun again"
    assert re.search(r"good +(improved|no gain) +6 ", done.stdout), done.stdout + done.stderr


@pytest.mark.slow
def test_runs_of_a_campaign_share_one_ray(tmp_path):
    write_experiment(tmp_path)
    (tmp_path / "night.yaml").write_text(
        "version: 1\nruns:\n  - {spec: spec.yaml, name: one}\n  - {spec: spec.yaml, name: two}\n"
    )
    done = kernelwright("campaign", tmp_path / "night.yaml", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("starting Ray") == 1
    for name in ("one", "two"):
        assert "starting Ray" not in (tmp_path / "out" / "output" / f"{name}.txt").read_text()
        assert re.search(rf"{name} +(improved|no gain) +6 ", done.stdout)
