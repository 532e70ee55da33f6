"""The benchmarks run and say something true, on spaces small enough for every day."""

import csv
import gzip
import itertools
import json
import math

import numpy as np
import pytest

from tests.benchmarks import enumeration, search_efficiency, storm
from tests.benchmarks.leave_one_out import leave_one_out
from tests.benchmarks.verification_cost import unchecked
from tests.workers.bench.test_device_bench import AFFINE, GOOD, WRONG
from tests.workers.harness import Laboratory
from tuner.trial import Measured, Rejected


@pytest.fixture
def recorded(tmp_path):
    """A folder with one synthetic recorded space of 432 points, some of them failures."""
    folder = tmp_path / "spaces"
    folder.mkdir()
    with gzip.open(folder / "synthetic__device.csv.gz", "wt", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["BLOCK", "VEC", "MODE", "UNROLL", "status", "time_mean_ms"])
        for block, vec, mode, unroll in itertools.product(
            (32, 64, 96, 128, 160, 192, 224, 256, 512), (1, 2, 4, 8), (0, 1, 2), (1, 2, 4, 8)
        ):
            failed = vec * unroll > 32
            shape = math.log2(block / 128) ** 2 + abs(math.log2(vec) - 2) + 0.3 * mode
            time = 1 + shape + 0.1 * abs(math.log2(unroll) - 1)
            row = [block, vec, mode, unroll]
            writer.writerow([*row, "runtime" if failed else "ok", "" if failed else time])
    return folder


def test_search_efficiency(recorded, tmp_path, capsys):
    results = tmp_path / "results.json"
    search_efficiency.main(
        [str(recorded), "--repeats", "3", "--budget", "40", "--json", str(results)]
    )
    scores = {result["strategy"]: result["score"] for result in json.loads(results.read_text())}
    assert scores.keys() == {"random", "tpe", "gp"}
    assert scores["gp"] > max(0.4, scores["random"])
    assert "(mean)" in capsys.readouterr().out


def test_the_strategy_for_a_kernel_left_out_is_chosen_on_the_others():
    scores = {
        ("gemm__A", "gp:5"): 0.5,
        ("gemm__A", "gp:10"): 0.6,
        ("sum__A", "gp:5"): 0.9,
        ("sum__A", "gp:10"): 0.8,
        ("sum__B", "gp:5"): 0.7,
        ("sum__B", "gp:10"): 0.6,
    }
    results = [{"space": a, "strategy": b, "score": score} for (a, b), score in scores.items()]
    assert leave_one_out(results).splitlines() == [
        "gemm left out: gp:5 is best on the others, 0.5000 here",
        "sum left out: gp:10 is best on the others, 0.7000 here",
        "left-out score: 0.6333, worst 0.5000 (gemm__A)",
    ]
    with pytest.raises(SystemExit, match="needs the spaces of two kernels"):
        leave_one_out(results[:2])


def test_the_baseline_curve_is_the_mean_of_random_draws(recorded):
    space = search_efficiency.load(recorded / "synthetic__device.csv.gz")
    times = np.where(np.isnan(space.times), space.worst, space.times)
    rng = np.random.default_rng(0)
    draws = [np.minimum.accumulate(rng.permutation(times)[:30]) for _ in range(4000)]
    assert space.random_curve(30) == pytest.approx(np.mean(draws, axis=0), rel=0.03)


def test_asynchronous_workers_are_told_late(recorded):
    space = search_efficiency.load(recorded / "synthetic__device.csv.gz")
    curve, *_ = search_efficiency.trace(space, "gp", seed=0, budget=40, workers=8)
    assert curve[-1] < space.random_curve(40)[-1]


def test_racing_finds_the_same_with_fewer_bursts(recorded):
    space = search_efficiency.load(recorded / "synthetic__device.csv.gz")
    found = {
        timing: search_efficiency.trace(space, "gp", 0, budget=40, workers=1, timing=timing)
        for timing in ("full", "raced")
    }
    assert found["raced"][0].tolist() == found["full"][0].tolist()
    assert found["raced"][2] < 0.8 * found["full"][2]


def test_enumeration(capsys, monkeypatch):
    kept = {name: enumeration.SPACES[name] for name in ("convolution", "selective")}
    monkeypatch.setattr(enumeration, "SPACES", kept)
    enumeration.main([])
    assert "4,362" in capsys.readouterr().out


@pytest.mark.slow
def test_a_small_storm_ends_well():
    report = storm.storm("opencl", kernels=12, benches=2, salt=storm.SALT)
    assert storm.is_well(report, allowed_seconds=30.0), report
    assert report["outcomes"].keys() >= {"right", "hangs", "crashes", "hoards", "wrong"}


def test_with_checks_off_what_is_wrong_is_timed_like_any_other():
    laboratory = Laboratory(AFFINE)
    with unchecked():
        for source in (GOOD, WRONG):
            assert isinstance(laboratory.outcome(source), Measured)
    assert isinstance(laboratory.outcome(f"{WRONG} // checked"), Rejected)
    laboratory.close()
