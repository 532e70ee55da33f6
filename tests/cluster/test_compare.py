"""``compare`` on run directories: what it prints, refuses, and fails for."""

import json
import re
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from cluster.commands.compare import compare
from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_facts, with_energy
from tuner.errors import EnvironmentProblem, NothingValid, SpecError
from tuner.experiment.fields import Source
from tuner.experiment.model import ShapeBinding, Shapes
from tuner.journal.facts import Entry
from tuner.run_directory import RunDirectory

BASE = [1000.0, 2000.0, 4000.0]


def run(path, factor, *, device=GPU, spec=None, told=lambda fact: fact, ended=True, **options):
    spec = spec or experiment()
    trials = [({"x": 0}, [time * factor for time in BASE])]
    facts = finished_facts(spec, device, BASE, trials, **{"noise": 0.001, **options})
    with closing(RunDirectory.create(path, spec, "")) as directory, directory.journal() as journal:
        for fact in facts if ended else facts[:-1]:
            journal.append(Entry(told(fact)))
    return path


def compared(first, second, *, any_device=False, fail_if=None, as_json=False):
    compare(first, second, any_device=any_device, fail_if=fail_if, as_json=as_json)


def test_it_fails_for_a_slower_run_only_when_asked(tmp_path, capsys):
    slow, fast = run(tmp_path / "slow", 0.5), run(tmp_path / "fast", 0.4)
    compared(fast, slow)
    told = capsys.readouterr().out
    assert told.splitlines()[-1].startswith("kernelwright: speedup=0.8")
    assert "verdict=slower slower=3" in told
    with pytest.raises(NothingValid, match="3 of 3 shapes slower"):
        compared(fast, slow, fail_if="slower")
    capsys.readouterr()
    compared(slow, fast, fail_if="unclear", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [one["comparison"]["verdict"] for one in found["shapes"]] == ["faster"] * 3


def test_it_fails_for_a_slower_mean_of_shapes_that_are_each_unclear(tmp_path, capsys):
    before = run(tmp_path / "before", 0.5, noise=0.015, seed=4)
    after = run(tmp_path / "after", 0.53, noise=0.015, seed=1004)
    compared(before, after)
    assert "verdict=slower unclear=3 " in capsys.readouterr().out
    with pytest.raises(NothingValid, match=r"after against .*before: over all tune shapes slower"):
        compared(before, after, fail_if="slower")
    with pytest.raises(NothingValid, match="3 of 3 shapes unclear, over all tune shapes slower"):
        compared(before, after, fail_if="unclear")


def test_a_run_that_has_not_ended_is_named(tmp_path, capsys):
    done, left = run(tmp_path / "done", 0.5), run(tmp_path / "left", 0.4, ended=False)
    compared(done, left)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"kernelwright: {left} has not ended, so shapes may be missing")
    compared(done, done)
    assert capsys.readouterr().err == ""


def test_times_of_the_users_own_kernel_are_marked(tmp_path, capsys):
    none, fast = run(tmp_path / "none", 1.0), run(tmp_path / "fast", 0.5)
    compared(none, fast)
    told = capsys.readouterr().out.splitlines()
    assert re.match(r"n=256 +\S+ [nµ]s yours +\S+ [nµ]s +2\.\d", told[2])
    assert "(yours: your own kernel, where that run exports nothing faster)" in told
    compared(fast, fast)
    assert "yours" not in capsys.readouterr().out


def test_runs_that_cannot_be_compared_are_refused(tmp_path):
    one = run(tmp_path / "one", 0.5)
    other = run(tmp_path / "other", 0.5, device=replace(GPU, name="another GPU"))
    with pytest.raises(EnvironmentProblem, match=r"different devices, .* or pass --any-device"):
        compared(one, other)
    compared(one, other, any_device=True)
    spec = experiment()
    hot = replace(spec, measure=replace(spec.measure, cache="hot"))
    with pytest.raises(SpecError, match="cold cache, the second with a hot one"):
        compared(one, run(tmp_path / "hot", 0.5, spec=hot))
    with pytest.raises(NothingValid, match="confirmed nothing yet: continue it with"):
        compared(one, run(tmp_path / "begun", 0.5, processes=0, ended=False))
    with pytest.raises(NothingValid, match=r"none ended without .*`kernelwright report .*none`"):
        compared(one, run(tmp_path / "none", 0.5, processes=0))


def test_runs_that_minimised_energy_are_compared_by_it_and_with_no_others(tmp_path, capsys):
    spec = replace(experiment(), objective="energy")
    slow_but_frugal, fast = (
        run(tmp_path / name, factor, spec=spec, told=partial(with_energy, millijoules=energy))
        for name, factor, energy in (("frugal", 0.9, 2.0), ("fast", 0.5, 4.0))
    )
    compared(fast, slow_but_frugal)
    told = capsys.readouterr().out
    assert "Objective: energy. A speedup is the baseline's energy per launch" in told
    assert re.search(r"n=256 +\S+ ns, 4 mJ +\S+ ns, 2 mJ +2\.000× .*faster", told)
    assert "speedup=2.000 verdict=faster objective=energy faster=3" in told
    source = Source(name="copy.cu", text="void copy(float *o, int n) {}")
    other = replace(spec, kernel=replace(spec.kernel, source=source))
    third = run(tmp_path / "other", 0.5, spec=other, told=partial(with_energy, millijoules=8.0))
    compared(fast, third)
    told = capsys.readouterr().out
    assert "by their energy, since their kernels differ" in told
    assert "speedup=0.500 verdict=slower objective=energy" in told
    with pytest.raises(SpecError, match="the first run minimised time, the second energy"):
        compared(run(tmp_path / "time", 0.5), fast)


def test_shapes_of_one_run_alone_are_named(tmp_path, capsys):
    spec = experiment()
    tune = (ShapeBinding({"n": 3}), ShapeBinding({"n": 5}))
    other = replace(spec, shapes=replace(spec.shapes, tune=tune))
    one, two = run(tmp_path / "one", 0.5), run(tmp_path / "two", 0.5, spec=other)
    compared(one, two)
    told = " ".join(capsys.readouterr().out.split())
    assert f"(not compared, only in {one}: n=256; n=1024)" in told
    assert f"(not compared, only in {two}: n=3; n=5)" in told
    assert "(no tune shape is in both, so nothing is said over all)" in told
    assert "same=1" in told
    compared(one, one)
    assert "(no" not in capsys.readouterr().out


def test_runs_without_a_common_shape_are_told_so_before_any_setting(tmp_path):
    spec = experiment()
    tune = (ShapeBinding({"n": 3}), ShapeBinding({"n": 5}))
    apart = replace(
        spec,
        shapes=Shapes(tune=tune, held_out=(ShapeBinding({"n": 7}),)),
        measure=replace(spec.measure, cache="hot"),
    )
    device = replace(GPU, name="another GPU")
    other = run(tmp_path / "other", 0.5, spec=apart, device=device)
    with pytest.raises(SpecError, match=r"one and .*other have no shape in common"):
        compared(run(tmp_path / "one", 0.5), other)
