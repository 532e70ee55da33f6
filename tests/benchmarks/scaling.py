"""How a search scales over simulated GPUs, on compile and run times as recorded on real ones.

Usage: python -m tests.benchmarks.scaling [--recorded JOURNAL] [--per-gpu 200] [--json FILE]

Virtual time under the real session and engine. The times are drawn, trial by trial, from a run's
journal; by default from a log-normal spread about those of an H100 (0.11 s of compiling on one
core, 31 ms on the device for each configuration). Efficiency is throughput ÷ (GPUs × that of one
GPU), with enough cores to compile for all.
"""

import argparse
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.benchmarks.overhead import BASELINE_NS, GPU, ForgetfulFleet, cost, rehearse, rehearsed
from tests.tuner.engine.simulated_fleet import Durations
from tuner.journal.facts import TrialFinished
from tuner.journal.file import read_journal

COMPILE_SECONDS, BENCH_SECONDS, SPREAD = 0.11, 0.031, 0.4
GPUS = (1, 2, 4, 8, 16, 32, 64)


def bench_seconds(recorded: Path | None) -> np.ndarray:
    """Device seconds of many trials."""
    if recorded is None:
        spread = np.random.default_rng(0).standard_normal(4096)
        return BENCH_SECONDS * np.exp(SPREAD * spread)
    facts = [entry.fact for entry in read_journal(recorded)]
    return np.array([f.device_seconds for f in facts if isinstance(f, TrialFinished) and f.span])


def throughput(gpus: int, trials: int, seconds: np.ndarray) -> float:
    """Trials in a virtual second, from first proposal to last outcome."""
    random = np.random.default_rng(gpus)
    needed = 1.5 * COMPILE_SECONDS / float(np.mean(seconds))
    fleet = ForgetfulFleet(
        device=GPU,
        baseline_ns=BASELINE_NS,
        cost=cost,
        compile_slots=math.ceil(needed * gpus),
        bench_slots=gpus,
        of_trial={
            trial: Durations(
                compile=COMPILE_SECONDS * float(np.exp(SPREAD * random.standard_normal())),
                bench=float(random.choice(seconds)),
            )
            for trial in range(trials)
        },
    )
    problem = rehearsed(trials)
    problem = replace(problem, confirm=replace(problem.confirm, top=1, processes=1))
    with tempfile.TemporaryDirectory() as folder:
        history, _ = rehearse(problem, fleet, Path(folder) / "journal.jsonl")
    return trials / history.clock.searched


def measure(per_gpu: int, recorded: Path | None, gpus: tuple[int, ...] = GPUS) -> list[dict]:
    """One row for each number of GPUs."""
    seconds = bench_seconds(recorded)
    rows: list[dict] = []
    for count in gpus:
        rate = throughput(count, per_gpu * count, seconds)
        alone = rows[0]["per_second"] if rows else rate
        rows.append({"gpus": count, "per_second": rate, "efficiency": rate / alone / count})
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Print a table; write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorded", type=Path)
    parser.add_argument("--per-gpu", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows = measure(given.per_gpu, given.recorded)
    print("GPUs  configurations/s  efficiency")
    for row in rows:
        print(f"{row['gpus']:4}  {row['per_second']:16.1f}  {row['efficiency']:10.3f}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
