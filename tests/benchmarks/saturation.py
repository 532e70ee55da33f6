"""How many benches one driver keeps busy, by wall clock: real driver, journal and search.

Usage: python -m tests.benchmarks.saturation [--benches 1 8 64] [--strategy gp] [--per-bench 300]
       [--seconds 0.02] [--profile FILE] [--json FILE]

Only the workers are stubs: a compile worker answers at once, a bench ``--seconds`` after it is
free, whatever the driver does meanwhile. Efficiency is trials × seconds ÷ (benches × time of the
search), so a bench that waits for the driver counts against it. ``cpu_ms`` is what all threads of
this process used for a trial while it searched, the stubs' part (about 0.1 ms) included.
"""

import argparse
import asyncio
import cProfile
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: as in a run

from cluster.fleets.pool import PooledFleet
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from tests.benchmarks.overhead import BASELINE_NS, GPU, cost
from tuner.engine.progress import RunProgress
from tuner.engine.work import BenchSetup, ConfirmWork, ExamineWork, MeasureWork
from tuner.experiment.load import load_experiment
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Sample,
    Span,
    TrialFinished,
    WinnersExamined,
)
from tuner.journal.search_clock import SearchClock
from tuner.plan import Binary, Build
from tuner.run_directory import RunDirectory, RunView
from tuner.trial import Full, Measured

BENCHES = (1, 8, 16, 32, 64, 128, 256)
TRIAL_SECONDS = 0.02
PER_BENCH = 300

SPEC = """\
version: 1
name: scale
kernel:
  language: cuda
  source: scale.cu
  entry: scale
  launch: {{grid: ["ceil_div(n, 256)"], block: [256]}}
arguments:
  - {{name: out, kind: out, dtype: float32, shape: [n]}}
  - {{name: x, kind: in, dtype: float32, shape: [n]}}
  - {{name: n, kind: scalar, dtype: int32, value: n}}
shapes: {{domain: ["1 <= n", "n <= 100000"], tune: [{{n: 1000}}, {{n: 4096}}]}}
template:
  source: template.cu
  entry: scale
  parameters: {{B: [32, 64, 128, 256], U: {ten}, V: {ten}, W: {ten}, X: {more}}}
  launch: {{grid: ["ceil_div(n, B)"], block: [B]}}
search: {{strategy: {strategy}, trials: {trials}, seconds: 1000000}}
confirm: {{top: 1, processes: 2}}
"""
"""100,000 configurations, with about as many values of each parameter as templates have."""

KERNEL = """\
extern "C" __global__ void scale(float* out, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 3.0f * x[i];
}
"""


def full(time_ns: float, shape: int) -> Full:
    """A cell as a bench reports it."""
    return Full(median_ns=time_ns, mad_ns=0.0, samples=100, baseline_ns=BASELINE_NS[shape])


class StubCompiler:
    """Compiles in no time."""

    def __init__(self, number: int) -> None:
        self.name = f"compiler{number}"

    async def ready(self) -> None:
        """At once."""

    async def compile(self, builds: tuple[Build, ...]) -> tuple[Binary, ...]:
        """Code that is another for every build."""
        return tuple(
            Binary(
                build=str(number),
                code=repr(build.defines).encode(),
                usage=(),
                symbols=(),
                compile_seconds=0.0,
            )
            for number, build in enumerate(builds)
        )

    async def close(self) -> None:
        """Nothing is held."""


class StubBench:
    """Takes so many seconds for each trial, one after the other, from when it has it."""

    waits_for = ""

    def __init__(self, number: int, seconds: float) -> None:
        self.name, self.node = f"bench{number}", "here"
        self._seconds = seconds
        self._free = 0.0

    async def ready(self) -> str:
        """At once."""
        return self.name

    async def prepare(self, setup: BenchSetup) -> BaselinePrepared:
        """At once."""
        return BaselinePrepared(result=tuple(map(full, BASELINE_NS, range(len(BASELINE_NS)))))

    async def measure(self, work: MeasureWork) -> AsyncIterator[TrialFinished]:
        """One outcome after the other."""
        for candidate in work.candidates:
            began = max(self._free, time.monotonic())
            self._free = began + self._seconds
            await asyncio.sleep(self._free - time.monotonic())
            wall = time.time() - time.monotonic()
            shapes = range(len(BASELINE_NS))
            cells = [full(cost(candidate.configuration, shape), shape) for shape in shapes]
            yield TrialFinished(
                trial=candidate.trial,
                outcome=Measured(cells=tuple(cells)),
                device_seconds=self._seconds,
                span=Span(worker=self.name, began=wall + began, ended=wall + self._free),
            )

    async def confirm(self, work: ConfirmWork) -> ConfirmationSampled:
        """At once; nothing differs."""
        samples = [
            Sample(trial=trial, shape=shape, cache=cache, median_ns=BASELINE_NS[shape])
            for trial in (-1, *work.trials)
            for shape in range(len(BASELINE_NS))
            for cache in ("cold", "hot")
        ]
        return ConfirmationSampled(
            work=work.id, process=work.process, scope=work.scope, samples=tuple(samples)
        )

    async def examine(self, work: ExamineWork) -> WinnersExamined:
        """At once; without a finding."""
        return WinnersExamined(work=work.id, trials=work.trials)

    async def close(self) -> None:
        """Nothing is held."""


def write_experiment(folder: Path, strategy: str, trials: int) -> Path:
    """The experiment on disk: a large space, and a kernel that no one compiles."""
    ten, more = list(range(10)), list(range(25))
    spec = SPEC.format(strategy=strategy, trials=trials, ten=ten, more=more)
    for name, text in {
        "scale.cu": KERNEL,
        "template.cu": KERNEL.replace("3.0f", "(float)(3 + 0 * (U + V + W + X))"),
        "spec.yaml": spec,
    }.items():
        (folder / name).write_text(text)
    return folder / "spec.yaml"


def measure(
    benches: int,
    *,
    strategy: str = "gp",
    per_bench: int = PER_BENCH,
    seconds: float = TRIAL_SECONDS,
    profile: Path | None = None,
) -> dict[str, Any]:
    """One row of the table: a whole run, in a run directory of its own."""
    trials = benches * per_bench

    async def open_fleet(_: str) -> PooledFleet:
        compilers = [StubCompiler(number) for number in range(max(2, benches // 4))]
        return PooledFleet(GPU, compilers, [StubBench(n, seconds) for n in range(benches)])

    used = 0.0

    async def drive(path: Path) -> None:
        nonlocal used
        before = time.process_time()
        async for update in SearchRun(RunProcess(path, open_fleet)).progress():
            now = time.process_time()
            if isinstance(update, RunProgress) and update.phase == "search":
                used += now - before
            before = now

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        spec = write_experiment(Path(folder), strategy, trials)
        RunDirectory.create(path, load_experiment(spec), spec.read_text()).close()
        profiler = cProfile.Profile() if profile else None
        if profiler is None:
            asyncio.run(drive(path))
        else:
            profiler.runcall(asyncio.run, drive(path))
            profiler.dump_stats(str(profile))
        clock = SearchClock()
        for entry in RunView.open(path).entries():
            clock.apply(entry)
    return {
        "benches": benches,
        "trials": trials,
        "per_second": trials / clock.searched,
        "efficiency": trials * seconds / benches / clock.searched,
        "cpu_ms": 1e3 * used / trials,
    }


def main(arguments: list[str] | None = None) -> None:
    """Print a table; write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benches", type=int, nargs="+", default=BENCHES)
    parser.add_argument("--strategy", default="gp")
    parser.add_argument("--per-bench", type=int, default=PER_BENCH)
    parser.add_argument("--seconds", type=float, default=TRIAL_SECONDS)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    rows = []
    print("benches  trials  trials/s  efficiency  CPU ms/trial")
    for benches in given.benches:
        row = measure(
            benches,
            strategy=given.strategy,
            per_bench=given.per_bench,
            seconds=given.seconds,
            profile=given.profile,
        )
        rows.append(row)
        print(
            f"{benches:7}  {row['trials']:6}  {row['per_second']:8.1f}  "
            f"{row['efficiency']:10.3f}  {row['cpu_ms']:12.2f}",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
