"""The simulated benchmarks in small: every GPU is fed, and the driver's own time stays small."""

from tests.benchmarks import overhead, saturation, scaling


def test_eight_gpus_do_the_work_of_eight():
    rows = scaling.measure(per_gpu=50, recorded=None, gpus=(1, 8))
    assert [row["gpus"] for row in rows] == [1, 8]
    assert rows[-1]["efficiency"] > 0.85


def test_a_trial_costs_no_more_when_there_are_many():
    few, many = overhead.measure(100), overhead.measure(500)
    assert many["ms_per_trial"] < 2 * few["ms_per_trial"]


def test_the_real_driver_keeps_stub_benches_busy():
    row = saturation.measure(2, strategy="random", per_bench=10)
    assert (row["benches"], row["trials"]) == (2, 20)
    assert 0 < row["efficiency"] <= 1
