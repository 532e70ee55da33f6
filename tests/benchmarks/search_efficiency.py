"""Score search strategies on recorded spaces: how close to the optimum, how soon.

Usage: python -m tests.benchmarks.search_efficiency SPACES [--strategies gp tpe random]
       [--repeats 50] [--budget 200] [--workers 1] [--json FILE]

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
import json
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.search.select import make_proposer
from tuner.space.feasible import FeasibleSet, recorded_set
from tuner.spec.experiment import Search

QUANTILES = (50, 100, 200)


@dataclass(frozen=True)
class RecordedSpace:
    """A fully measured space: a time in milliseconds per configuration, NaN where it failed."""

    name: str
    space: FeasibleSet
    times: np.ndarray

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
    times = np.full(len(space), np.nan)
    at = space.find(np.array(ordinals, np.uint16))
    mean = header.index("time_mean_ms")
    for point, row in zip(at, rows, strict=True):
        if row[width] == "ok":
            times[point] = float(row[mean])
    return RecordedSpace(path.name.split(".")[0], space, times)


def trace(recorded, strategy, seed, budget, workers):
    """The best time after each evaluation, shape [budget], and the seconds spent asking.

    With several workers, each result is told only after ``workers - 1`` later proposals.
    """
    search = Search(strategy=strategy, trials=budget, seed=seed)
    proposer = make_proposer(search, recorded.space)
    best, asking = recorded.worst, 0.0
    curve = np.empty(budget)
    running = deque()
    for trial in range(budget):
        start = time.perf_counter()
        configuration = proposer.ask(trial)
        if configuration is not None:
            running.append((trial, recorded.space.index_of(configuration)))
        if running and (configuration is None or len(running) >= workers):
            done, point = running.popleft()
            took = recorded.times[point]
            proposer.tell(done, None if np.isnan(took) else (float(took),))
        asking += time.perf_counter() - start
        if configuration is not None:
            took = recorded.times[recorded.space.index_of(configuration)]
            best = np.fmin(best, took)
        curve[trial] = best
    return curve, asking


def evaluate(recorded, strategy, repeats, budget, workers):
    """Score, its standard error over repeats, best ÷ optimum at some budgets, and ask times."""
    traces = [trace(recorded, strategy, seed, budget, workers) for seed in range(repeats)]
    curves = np.array([curve for curve, _ in traces])
    baseline = recorded.random_curve(budget)
    room = recorded.optimum - baseline
    scores = ((curves - baseline) / np.where(room == 0, 1, room)).mean(axis=1)
    return {
        "space": recorded.name,
        "strategy": strategy,
        "repeats": repeats,
        "workers": workers,
        "score": float(scores.mean()),
        "error": float(scores.std(ddof=1) / np.sqrt(repeats)) if repeats > 1 else None,
        "found": {
            str(k): float((recorded.optimum / curves[:, k - 1]).mean())
            for k in QUANTILES
            if k <= budget
        },
        "ask_ms": 1e3 * sum(asking for _, asking in traces) / repeats / budget,
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
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    results = []
    for path in sorted(options.spaces.glob("*.csv.gz")):
        if options.only and path.name.split(".")[0] not in options.only:
            continue
        recorded = load(path)
        for strategy in options.strategies:
            results.append(
                evaluate(recorded, strategy, options.repeats, options.budget, options.workers)
            )
            print(json.dumps(results[-1]), file=sys.stderr)
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
