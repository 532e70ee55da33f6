"""Two runs compared by what they export: shape by shape, each with its noise."""

from dataclasses import replace

import pytest

from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_run
from tuner.experiment.fields import Source
from tuner.results.run_comparison import compare_runs
from tuner.results.summary import summarise

BASE = [1000.0, 2000.0, 4000.0]


def run(*trials, of=None, base=BASE, **options):
    given = [({"x": number}, times) for number, times in enumerate(trials)]
    return finished_run(of or experiment(), GPU, base, given, **options)


def verdicts(found):
    return {one.shape: one.comparison.verdict for one in found.shapes}


def test_a_run_is_the_same_as_its_repetition_and_slower_than_a_better_one():
    once = run([500.0, 1000.0, 2000.0], noise=0.001)
    again = run([500.0, 1000.0, 2000.0], noise=0.001, seed=1)
    better = run([400.0, 800.0, 1600.0], noise=0.001, seed=2)
    assert set(verdicts(compare_runs(once, again)).values()) == {"same"}
    found = compare_runs(better, once)
    assert set(verdicts(found).values()) == {"slower"}
    assert found.mean.speedup == pytest.approx(0.8, rel=0.01)
    assert found.mean.verdict == "slower"
    assert [one.held_out for one in found.shapes] == [False, False, True]


def test_what_was_measured_on_a_slower_clock_is_compared_by_speedups():
    once = run([500.0, 1000.0, 2000.0], noise=0.001)
    base, times = ([2 * time for time in each] for each in (BASE, [500.0, 1000.0, 2000.0]))
    slow = run(times, base=base, noise=0.001, seed=1)
    found = compare_runs(once, slow)
    assert (found.by, set(verdicts(found).values())) == ("speedup", {"same"})
    assert found.shapes[0].second.time_ns == pytest.approx(1000.0, rel=0.01)


def test_runs_of_different_kernels_are_compared_by_their_times():
    other = experiment()
    source = Source(name="copy.cu", text="void copy(float *o, int n) {}")
    other = replace(other, kernel=replace(other.kernel, source=source))
    old = run([500.0, 1000.0, 2000.0], noise=0.001)
    new = run([400.0, 900.0, 1900.0], of=other, base=[600.0, 1100.0, 2100.0], noise=0.001, seed=1)
    found = compare_runs(old, new)
    assert (found.by, set(verdicts(found).values())) == ("time", {"faster"})


def test_a_run_without_gain_exports_its_baseline():
    found = compare_runs(run(BASE, noise=0.001), run([500.0, 1000.0, 2000.0], noise=0.001, seed=1))
    assert found.shapes[0].first.configuration == "the baseline"
    assert [one.first.baseline for one in found.shapes] == [True] * 3
    assert not any(one.second.baseline for one in found.shapes)
    assert set(verdicts(found).values()) == {"faster"}


def test_a_baseline_that_is_exported_adds_no_noise():
    wild = run(BASE, [1100.0, 2200.0, 4400.0], noise=0.1)
    steady = run([500.0, 1000.0, 2000.0], noise=0.001, seed=1)
    own = summarise(steady).portfolio
    for found in (compare_runs(wild, steady), compare_runs(steady, wild)):
        widths = [one.comparison.half_width for one in found.shapes]
        assert widths == pytest.approx([cell.comparison.half_width for cell in own.cells])
        assert found.mean.half_width == pytest.approx(own.comparison.half_width)
    both = compare_runs(wild, wild)
    every = [both.mean, *(one.comparison for one in both.shapes)]
    assert {(one.low, one.speedup, one.high, one.verdict) for one in every} == {(1, 1, 1, "same")}


def test_the_baseline_has_noise_where_times_are_compared():
    other = experiment()
    source = Source(name="copy.cu", text="void copy(float *o, int n) {}")
    other = replace(other, kernel=replace(other.kernel, source=source))
    found = compare_runs(run(BASE, noise=0.01), run(BASE, of=other, noise=0.01, seed=1))
    assert found.by == "time"
    assert all(one.half_width > 0.01 for one in (found.mean, found.shapes[0].comparison))


@pytest.mark.parametrize("seed", range(5))
def test_a_run_against_itself_is_no_better_known_than_alone(seed):
    spec = experiment(processes=5)
    trials = [500.0, 1000.0, 2000.0], [510.0, 1010.0, 2010.0], [490.0, 990.0, 1990.0]
    alone = run(*trials, of=spec, noise=0.01, seed=seed)
    own, found = summarise(alone).portfolio, compare_runs(alone, alone)
    pairs = [(found.mean, own.comparison)]
    pairs += [(f.comparison, c.comparison) for f, c in zip(found.shapes, own.cells, strict=True)]
    for against, by_itself in pairs:
        assert against.half_width >= by_itself.half_width * (1 - 1e-9)


def test_noise_of_either_run_makes_it_unclear():
    steady = run([500.0, 1000.0, 2000.0], noise=0.001)
    wild = run([500.0, 1000.0, 2000.0], noise=0.05, seed=1)
    for found in (compare_runs(steady, wild), compare_runs(wild, steady)):
        assert "unclear" in {*verdicts(found).values(), found.mean.verdict}


def test_shapes_of_one_run_alone_are_left_out_and_named():
    other = experiment()
    shapes = replace(other.shapes, held_out=())
    fewer = run([500.0, 1000.0], of=replace(other, shapes=shapes), base=BASE[:2], noise=0.001)
    found = compare_runs(run([500.0, 1000.0, 2000.0], noise=0.001), fewer)
    assert [one.shape for one in found.shapes] == ["n=256", "n=1024"]
    assert (found.only_first, found.only_second) == (("n=4096",), ())
