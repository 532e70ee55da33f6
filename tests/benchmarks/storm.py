"""A run over kernels that crash, hang, exhaust memory or lie at random, among a few right ones.

``python -m tests.benchmarks.storm [--kernels 200] [--benches 3] [--backend opencl|cuda]`` runs it
with real child processes, then says whether the run ended well: the winner is right and one of the
fastest, nothing is left behind, and how much time each kind of failure cost. Exit code 1 if not.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.fleets.local import ThreadBench, ThreadCompiler, choose
from cluster.fleets.pool import PooledFleet
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tuner.experiment.load import load_experiment
from tuner.expressions import Expression
from tuner.journal.history import History
from tuner.results.summary import summarise
from tuner.run_directory import RunDirectory, RunView
from tuner.trial import Configuration, Rejected
from workers.bench.deadlines import Deadlines
from workers.bench.device_bench import DeviceBench
from workers.devices.discover import list_devices

DEADLINES = Deadlines(launch=1.0)
"""A hang is seen once it runs; what compiles at the first launch has the usual time."""
ALLOWED_SECONDS = 2.0
"""What a hang may cost beyond its deadlines."""

FAULTS = ("right", "crashes", "hangs", "hoards", "wrong", "writes behind", "reads wildly", "stops")
SALT = 5
WORK = 3
"""A right kernel does its work one to so many times."""

MIX = "(CASE * 2654435761 + {salt} * 40503001) % 4294967296 // 65536 % 11"
"""As good as random; the first faults are drawn twice as often as the others."""

SPEC = """\
version: 1
name: storm
kernel:
  language: {backend}
  source: scale.{suffix}
  entry: scale
  launch: {{grid: ["ceil_div(n, 64)"], block: [64]}}
arguments:
  - {{name: out, kind: out, dtype: float32, shape: [n]}}
  - {{name: x, kind: in, dtype: float32, shape: [n]}}
  - {{name: n, kind: scalar, dtype: int32, value: n}}
shapes:
  domain: ["1 <= n", "n <= 1000000"]
  tune: [{{n: 100000}}]
template: template.yaml
search: {{strategy: exhaustive, trials: {kernels}, seconds: 3600}}
confirm: {{top: 2, processes: 2}}
measure: {{warmup: 2, repeats: 20, cache: hot}}
"""

TEMPLATE = """\
source: template.{suffix}
entry: scale
parameters: {{CASE: [{cases}]}}
launch: {{grid: ["ceil_div(n, 64)"], block: [64]}}
defines:
  FAULT: "{fault}"
  WORK: "1 + CASE % {work}"
scratch: [{{name: hoard, dtype: float32, shape: ["2**46 if {fault} == 3 else 1"]}}]
"""

OPENCL = (
    "kernel void scale(global float *out, global const float *x, int n{more}) {{\n"
    "  int i = get_global_id(0);\n"
)
CUDA = (
    'extern "C" __global__ void scale(float* out, const float* x, int n{more}) {{\n'
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
)
PLAIN = "  if (i < n) out[i] = 3.0f * x[i];\n}\n"
BODY = """\
#if FAULT == 1
  ((GLOBAL volatile int *)0)[i] = 1;
#elif FAULT == 2
  while (((GLOBAL volatile float *)out)[0] != 1e30f) {{ }}
#elif FAULT == 4
  if (i < n) out[i] = 3.0f * x[i] + CASE;
  return;
#elif FAULT == 5
  if (i < n) out[n + i % 64] = 7.0f;
#elif FAULT == 6
  if (i < n) out[i] = x[i + ((long)1 << 42)];
#elif FAULT == 7
  {stop}
#endif
  float sum = 0.0f;
  for (int k = 0; k < 40 * WORK; ++k)
    if (i < n) sum += ((GLOBAL volatile const float *)x)[i];
  if (i < n) out[i] = 3.0f * x[i] + 0.0f * (sum > 1e37f);
}}
"""


def write_storm(folder: Path, backend: str, kernels: int, salt: int) -> Path:
    """The experiment on disk; ``salt`` decides which kernel does what."""
    opencl = backend == "opencl"
    suffix, head = ("cl", OPENCL) if opencl else ("cu", CUDA)
    fault = f"{MIX.format(salt=salt)} % {len(FAULTS)}"
    more = ", global float *hoard" if opencl else ", float* hoard"
    space = f"#define GLOBAL {'global' if opencl else ''}\n"
    stop = "volatile int none = 0; out[0] = i / none;" if opencl else "__trap();"
    cases = ", ".join(map(str, range(kernels)))
    for name, text in {
        f"scale.{suffix}": head.format(more="") + PLAIN,
        f"template.{suffix}": space + head.format(more=more) + BODY.format(stop=stop),
        "template.yaml": TEMPLATE.format(suffix=suffix, cases=cases, fault=fault, work=WORK),
        "spec.yaml": SPEC.format(backend=backend, suffix=suffix, kernels=kernels),
    }.items():
        (folder / name).write_text(text)
    return folder / "spec.yaml"


def fault_of(case: int, salt: int) -> str:
    """What the kernel of this number does."""
    return FAULTS[
        int(Expression.parse(MIX.format(salt=salt)).evaluate({"CASE": case})) % len(FAULTS)
    ]


class _StormBench(ThreadBench):
    """With deadlines short enough to see what they cost."""

    def __init__(self, backend: str, index: int) -> None:
        super().__init__(backend, index)
        self._bench = DeviceBench(backend, index, deadlines=DEADLINES)


def left_behind() -> list[str]:
    """Forked children that outlived the run; they have the fork server's command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent != os.getpid() and {"workers.fork_server", str(os.getpid())} <= set(words):
            found.append(path.name)
    return found


def device_bytes() -> int:
    """Memory in use on all NVIDIA GPUs, 0 where there is none."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return sum(int(line) for line in said.split()) << 20


def storm(backend: str, kernels: int, benches: int, salt: int) -> dict[str, Any]:
    """Run it and say how it went."""
    model, indices = choose(list_devices((backend,)), backend, None)

    async def open_fleet(_: str) -> PooledFleet:
        compilers = [ThreadCompiler(model, number) for number in range(2)]
        return PooledFleet(
            model,
            compilers,
            [_StormBench(backend, indices[number % len(indices)]) for number in range(benches)],
        )

    before, there, began = device_bytes(), left_behind(), time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        spec = write_storm(folder, backend, kernels, salt)
        path = folder / "run"
        RunDirectory.create(path, load_experiment(spec), spec.read_text()).close()

        async def drive() -> None:
            async for _ in SearchRun(RunProcess(path, open_fleet)).progress():
                pass

        asyncio.run(drive())
        view = RunView.open(path)
        history = History.of(view.experiment, view.entries())
    return {
        **judged(history, salt),
        "seconds": time.monotonic() - began,
        "left_behind": [one for one in left_behind() if one not in there],
        "leaked_bytes": max(0, device_bytes() - before),
    }


def judged(history: History, salt: int) -> dict[str, Any]:
    """The winner, what became of each kind of kernel, and what a failure of each kind cost."""
    codes: dict[str, set[str]] = defaultdict(set)
    for trial in history.trials.values():
        outcome = trial.outcome
        said = outcome.code if isinstance(outcome, Rejected) else type(outcome).__name__.lower()
        codes[fault_of(_case(trial.configuration), salt)].add(str(said))
    general = summarise(history).general
    winner = _case(general.configuration) if general else None
    costs = dict(_costs(history, salt))
    return {
        "finished": history.finished,
        "trials": len(history.trials),
        "winner": winner,
        "winner_is_right": winner is not None and fault_of(winner, salt) == "right",
        "outcomes": {kind: sorted(found) for kind, found in sorted(codes.items())},
        "seconds_lost": {kind: round(most, 2) for kind, most in costs.items()},
    }


def _case(configuration: Configuration) -> int:
    return int(configuration.as_dict()["CASE"])


def _costs(history: History, salt: int) -> Iterator[tuple[str, float]]:
    """The most that one failure of each kind cost: its own time, and that of starting anew."""
    by_bench: dict[str, list[Any]] = defaultdict(list)
    for trial in history.trials.values():
        if trial.bench:
            by_bench[trial.bench].append(trial)
    usual = min(trial.device_seconds for trials in by_bench.values() for trial in trials)
    most: dict[str, float] = {}
    for trials in by_bench.values():
        for trial in trials:
            kind = fault_of(_case(trial.configuration), salt)
            most[kind] = max(most.get(kind, 0.0), trial.device_seconds - usual)
    yield from most.items()


def is_well(report: dict[str, Any], allowed_seconds: float = ALLOWED_SECONDS) -> bool:
    """Whether everything holds that must; a hang may cost so much beyond its deadlines."""
    deadline = 2 * DEADLINES.launch  # of a launch, and of the first one, which may run yet
    right = report["outcomes"].get("right", [])
    others = [
        code for kind, found in report["outcomes"].items() if kind != "right" for code in found
    ]
    return bool(
        report["finished"]
        and report["winner_is_right"]
        and right == ["measured"]
        and "measured" not in others
        and not report["left_behind"]
        and report["leaked_bytes"] < 64 << 20
        and report["seconds_lost"].get("hangs", 0.0) <= deadline + allowed_seconds
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the report as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--benches", type=int, default=3)
    parser.add_argument("--backend", choices=("opencl", "cuda"), default="opencl")
    parser.add_argument("--salt", type=int, default=SALT)
    given = parser.parse_args(arguments)
    report = storm(given.backend, given.kernels, given.benches, given.salt)
    print(json.dumps({**report, "well": is_well(report)}, indent=1))
    return 0 if is_well(report) else 1


if __name__ == "__main__":
    sys.exit(main())
