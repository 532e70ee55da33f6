"""Kernel Tuner's strategies in its simulation mode: what each evaluates, in order, as JSON.

Run by an interpreter that has kernel_tuner and needs nothing of ours:
``python kernel_tuner_traces.py SPACE.json STRATEGY REPEATS BUDGET``. The space is an object with
``parameters`` (name to values) and ``times`` (an array of [values, milliseconds or null]). Prints
an array with one trace for each repeat: the times of the distinct configurations, in the order in
which they were first evaluated, null where one failed.
"""

import contextlib
import io
import json
import random
import sys
import tempfile
from pathlib import Path

import numpy as np


def cache_file(space, folder):
    """The space as one of Kernel Tuner's cache files, every configuration measured."""
    names = list(space["parameters"])
    cache = {}
    for values, time in space["times"]:
        entry = dict(zip(names, values, strict=True))
        if time is None:
            entry |= {"time": "RuntimeFailedConfig", "__error__": "RuntimeFailedConfig"}
        else:
            entry["time"] = time
        stages = ("compile_time", "verification_time", "benchmark_time")
        cache[",".join(map(str, values))] = entry | dict.fromkeys(stages, 0.0)
    path = Path(folder) / "cache.json"
    document = {
        "device_name": "recorded",
        "kernel_name": "recorded",
        "problem_size": [1, 1, 1],
        "tune_params_keys": names,
        "tune_params": space["parameters"],
        "objective": "time",
        "cache": cache,
    }
    path.write_text(json.dumps(document))
    return path


def trace(space, known, path, strategy, seed, budget):
    """One run: the times in the order of first evaluation."""
    import kernel_tuner
    from constraint import FunctionConstraint

    random.seed(seed)
    np.random.seed(seed)
    names = list(space["parameters"])
    with contextlib.redirect_stdout(io.StringIO()):
        results, _ = kernel_tuner.tune_kernel(
            "recorded",
            "__kernel void recorded() {}",
            (1, 1, 1),
            [],
            space["parameters"],
            restrictions=[FunctionConstraint(lambda *values: values in known, names)],
            cache=str(path),
            simulation_mode=True,
            strategy=strategy,
            strategy_options={"max_fevals": budget},
            lang="opencl",
            quiet=True,
            seed=seed,
        )
    order = dict.fromkeys(tuple(result[name] for name in names) for result in results)
    return [known[values] for values in order if values in known]


def main():
    """Write the traces to standard output."""
    path, strategy, repeats, budget = sys.argv[1:5]
    space = json.loads(Path(path).read_text())
    known = {tuple(values): time for values, time in space["times"]}
    with tempfile.TemporaryDirectory() as folder:
        cache = cache_file(space, folder)
        traces = [
            trace(space, known, cache, strategy, seed, int(budget)) for seed in range(int(repeats))
        ]
    json.dump(traces, sys.stdout)


if __name__ == "__main__":
    main()
