"""Score search strategies on recorded spaces: how close to the optimum, how soon.

Usage: python -m tests.benchmarks.search_efficiency SPACES [--strategies gp tpe random]
       [--repeats 50] [--budget 200] [--workers 1] [--timing exact] [--json FILE]
       [--leave-one-kernel-out] [--kernel-tuner PYTHON]

``gp:N`` is ``gp`` with a design of N points. ``--leave-one-kernel-out`` says how far the choice of
a strategy carries to an unseen kernel: for each kernel, the best strategy on the others' spaces is
chosen, and its score on the spaces left out is reported. A kernel is a file's name before ``__``.

With ``--kernel-tuner``, an interpreter that has kernel_tuner, its strategies are scored too, each
with its own defaults, in its simulation mode on the same spaces.

``--timing full`` tells strategies the median of five bursts that scatter as launches did when they
were recorded, ``--timing raced`` only as many of them as racing takes; what was found is judged by
the recorded mean all the same.

SPACES is a folder of ``<kernel>__<device>.csv.gz`` files: parameter columns, then ``status`` and
``time_mean_ms``, one row for each feasible configuration.

With F(k) the mean over repeats of the best time after k evaluations, R(k) the expected best of k
random draws without replacement (failures counting as the slowest valid time) and f* the optimum,
a strategy scores P(k) = (F(k) - R(k)) / (f* - R(k)), averaged over k = 1 … budget: random search
about 0, the optimum at once 1. Source: Willemsen et al. 2024, doi 10.1016/j.future.2024.05.021.
"""

import argparse
import csv
import gzip
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: asks are timed as in a run

import numpy as np

from tests.benchmarks.leave_one_out import leave_one_out
from tuner.experiment.model import SearchSettings
from tuner.racing import CutoffTracker
from tuner.search.gaussian_process.suggest import GaussianProcess
from tuner.search.hyperopt_proposer import HyperoptProposer
from tuner.search.select import make_proposer
from tuner.space.feasible import FeasibleSet, recorded_set
from tuner.trial import Full, Measured
from workers.bench.stopping import surely_slower

QUANTILES = (50, 100, 200)
BURSTS, PLACES = 5, 5
STAGES = ("compile_ms", "verify_ms", "bench_ms", "framework_ms")
KERNEL_TUNER = (
    "adaptive_tabu_greywolf",
    "genetic_algorithm",
    "hybrid_vndx",
    "pso",
    "diff_evo",
    "simulated_annealing",
    "random_sample",
)


@dataclass(frozen=True)
class RecordedSpace:
    """A fully measured space: a time in milliseconds per configuration, NaN where it failed.

    ``costs`` are the milliseconds that evaluating each took, compiling included; ``scatter`` is the
    relative standard deviation of its launches.
    """

    name: str
    space: FeasibleSet
    times: np.ndarray
    costs: np.ndarray
    scatter: np.ndarray

    @property
    def optimum(self):
        return np.nanmin(self.times)

    @property
    def worst(self):
        return np.nanmax(self.times)

    def random_curve(self, budget):
        """R(k) for k = 1 … budget, shape [budget]."""
        ascending = np.sort(np.where(np.isnan(self.times), self.worst, self.times))
        size = len(ascending)
        better = np.arange(size)
        curve = np.empty(budget)
        # P(best is the i-th) = C(N-i-1, k-1) / C(N, k), by recurrence over k.
        still_out = np.ones(size + 1)
        for k in range(1, min(budget, size) + 1):
            remaining = np.maximum(size - np.arange(size + 1) - (k - 1), 0)
            still_out = still_out * remaining / (size - (k - 1))
            curve[k - 1] = np.sum(ascending * (still_out[better] - still_out[better + 1]))
        curve[size:] = ascending[0]
        return curve


def load(path):
    """Read one recorded space."""
    with gzip.open(path, "rt", newline="") as stream:
        header, *rows = csv.reader(stream)
    width = header.index("status")
    parameters = {}
    for column, name in enumerate(header[:width]):
        parameters[name] = tuple(sorted({int(row[column]) for row in rows}))
    ordinals = [
        [parameters[name].index(int(row[column])) for column, name in enumerate(header[:width])]
        for row in rows
    ]
    space = recorded_set(parameters, ordinals)
    times, costs = np.full(len(space), np.nan), np.zeros(len(space))
    scatter = np.zeros(len(space))
    at = space.find(np.array(ordinals, np.uint16))
    mean = header.index("time_mean_ms")
    deviation = header.index("time_rsd") if "time_rsd" in header else None
    stages = [header.index(name) for name in STAGES if name in header]
    for point, row in zip(at, rows, strict=True):
        if row[width] == "ok":
            times[point] = float(row[mean])
            scatter[point] = float(row[deviation] or 0) if deviation else 0.0
        costs[point] = 1.0 + sum(float(row[stage] or 0) for stage in stages)
    return RecordedSpace(path.name.split(".")[0], space, times, costs, scatter)


class Bench:
    """Times configurations: exactly, or by bursts; counts those."""

    def __init__(self, recorded, timing, seed):
        self.recorded, self.timing = recorded, timing
        self.random = np.random.default_rng(seed)
        self.race = CutoffTracker(PLACES, (1.0,))
        self.bursts = 0

    def time(self, point):
        """What is told of a point, in milliseconds; NaN where it fails."""
        took = self.recorded.times[point]
        if self.timing == "exact" or np.isnan(took):
            return took
        bursts = took * np.exp(self.recorded.scatter[point] * self.random.standard_normal(BURSTS))
        seen = []
        for burst in bursts:
            seen.append((1e6 * burst, 1_000_000))
            cutoff = self.race.cutoffs[1] if self.timing == "raced" else np.inf
            if surely_slower(seen, 1e6 * cutoff, cpu=False):
                break
        self.bursts += len(seen)
        told = float(np.median(bursts[: len(seen)]))
        if len(seen) == BURSTS:
            cell = Full(median_ns=told, mad_ns=0, samples=BURSTS, baseline_ns=1.0)
            self.race.take(0, Measured(cells=(cell,)))
        return told


def trace(recorded, strategy, seed, budget, workers, timing="exact"):
    """The best time after each evaluation, shape [budget], and the seconds spent asking.

    Workers are busy for as long as each evaluation took when it was recorded; whoever becomes free
    is given the next proposal, made with what is known by then.
    """
    proposer = propose(strategy, recorded.space, budget, seed)
    bench = Bench(recorded, timing, seed)
    best, told_best, asking, clock = recorded.worst, np.inf, 0.0, 0.0
    curve = []
    running = []
    for trial in range(budget + workers):
        start = time.perf_counter()
        configuration = proposer.ask(trial) if trial < budget else None
        asking += time.perf_counter() - start
        if configuration is not None:
            point = recorded.space.index_of(configuration)
            heapq.heappush(running, (clock + recorded.costs[point], trial, point))
        if running and (configuration is None or len(running) == workers):
            clock, done, point = heapq.heappop(running)
            told = bench.time(point)
            if told < told_best:
                best, told_best = recorded.times[point], told
            curve.append(best)
            start = time.perf_counter()
            proposer.tell(done, None if np.isnan(told) else (float(told),))
            asking += time.perf_counter() - start
    return np.array(curve + [best] * (budget - len(curve))), asking, bench.bursts


def propose(strategy, space, budget, seed):
    """The proposer of a strategy, or of ``gp:N``."""
    name, _, design = strategy.partition(":")
    if name == "gp" and design:
        return HyperoptProposer(space, seed, partial(GaussianProcess, design=int(design)))
    return make_proposer(SearchSettings(strategy=name, trials=budget, seed=seed), space)


def evaluate(recorded, strategy, repeats, budget, workers, timing="exact"):
    """Score, its standard error over repeats, best ÷ optimum at some budgets, and ask times."""
    traces = [trace(recorded, strategy, seed, budget, workers, timing) for seed in range(repeats)]
    asking = sum(asking for _, asking, _ in traces) / repeats / budget
    curves = np.array([curve for curve, _, _ in traces])
    return judge(recorded, strategy, curves) | {
        "workers": workers,
        "timing": timing,
        "bursts": sum(bursts for *_, bursts in traces) / repeats,
        "ask_ms": 1e3 * asking,
    }


def evaluate_kernel_tuner(recorded, strategy, repeats, budget, python):
    """The same for one of Kernel Tuner's strategies, run by the interpreter ``python``."""
    times = [None if np.isnan(took) else float(took) for took in recorded.times]
    values = [
        [value for _, value in recorded.space.configuration(point).values]
        for point in range(len(recorded.space))
    ]
    parameters = {name: list(listed) for name, listed in recorded.space.parameters.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"parameters": parameters, "times": list(zip(values, times, strict=True))}, file)
        file.flush()
        script = Path(__file__).with_name("kernel_tuner_traces.py")
        command = [python, script, file.name, strategy, str(repeats), str(budget)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    curves = np.full((repeats, budget), recorded.worst)
    for curve, found in zip(curves, json.loads(ran.stdout), strict=True):
        took = np.array([recorded.worst if t is None else t for t in found[:budget]])
        curve[: len(took)] = np.minimum.accumulate(took)
        curve[len(took) :] = took.min()
    return judge(recorded, f"kernel_tuner:{strategy}", curves) | {"workers": 1, "ask_ms": None}


def judge(recorded, strategy, curves):
    """Score and best ÷ optimum of the best times so far, shape [repeats, budget]."""
    repeats, budget = curves.shape
    baseline = recorded.random_curve(budget)
    room = recorded.optimum - baseline
    scores = ((curves - baseline) / np.where(room == 0, 1, room)).mean(axis=1)
    return {
        "space": recorded.name,
        "strategy": strategy,
        "repeats": repeats,
        "score": float(scores.mean()),
        "error": float(scores.std(ddof=1) / np.sqrt(repeats)) if repeats > 1 else None,
        "found": {
            str(k): float((recorded.optimum / curves[:, k - 1]).mean())
            for k in QUANTILES
            if k <= budget
        },
    }


def table(results):
    """The results as text, with a mean over the spaces for each strategy."""
    head = ["space", "strategy", "score", "±", *(f"best/opt @{k}" for k in QUANTILES), "ms/ask"]
    lines = [head]
    for strategy in dict.fromkeys(result["strategy"] for result in results):
        mine = [result for result in results if result["strategy"] == strategy]
        lines.extend(_line(result["space"], strategy, [result]) for result in mine)
        lines.append(_line("(mean)", strategy, mine))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _line(space, strategy, results):
    def mean(values):
        known = [value for value in values if value is not None]
        return f"{np.mean(known):.4f}" if known else "-"

    errors = [r["error"] for r in results if r["error"] is not None]
    error = f"{np.sqrt(np.sum(np.square(errors))) / len(errors):.4f}" if errors else "-"
    found = [mean([r["found"].get(str(k)) for r in results]) for k in QUANTILES]
    score, ask = mean([r["score"] for r in results]), mean([r["ask_ms"] for r in results])
    return [space, strategy, score, error, *found, ask]


def main(arguments=None):
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spaces", type=Path)
    parser.add_argument("--strategies", nargs="+", default=["random", "tpe", "gp"])
    parser.add_argument("--only", nargs="+", help="names of spaces to take")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--timing", choices=("exact", "full", "raced"), default="exact")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--leave-one-kernel-out", action="store_true")
    parser.add_argument("--kernel-tuner", metavar="PYTHON")
    options = parser.parse_args(arguments)
    results = []
    for path in sorted(options.spaces.glob("*.csv.gz")):
        if options.only and path.name.split(".")[0] not in options.only:
            continue
        recorded = load(path)
        for strategy in options.strategies:
            results.append(
                evaluate(
                    recorded,
                    strategy,
                    options.repeats,
                    options.budget,
                    options.workers,
                    options.timing,
                )
            )
            print(json.dumps(results[-1]), file=sys.stderr)
        for strategy in KERNEL_TUNER if options.kernel_tuner else ():
            results.append(
                evaluate_kernel_tuner(
                    recorded, strategy, options.repeats, options.budget, options.kernel_tuner
                )
            )
            print(json.dumps(results[-1]), file=sys.stderr)
    print(table(results))
    if options.leave_one_kernel_out:
        print(leave_one_out(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
