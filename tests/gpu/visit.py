"""One visit to a machine with an NVIDIA GPU: everything that only such a machine can tell.

``OUT=folder python -m tests.gpu.visit [STEP …]`` runs the named steps, or all. Each has its own
time-out and its own log in ``$OUT``; what a step prints last is shown, and the exit code says
whether all went well. Steps joined by ``+`` run side by side: whoever times holds the device, and
the others compile and make oracles meanwhile. Runs need no Ray and are kept under ``$OUT/runs``.
With ``PEER``, a command that prints its own figure, ``throughput`` runs that beside us. With
``PART=1/2`` another device takes the other half of ``seeds`` and ``false_alarms``.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = "tests/gpu/data"
TAIL_LINES = 25
OWN_STEP = ("test_sequences", "test_mechanical")
"""Tests that bench whole experiments: a step of their own."""
APART = ("test_exploits", "test_honest_kernels", "test_sharing", "test_two_gpus", *OWN_STEP)
"""What the step that runs all other tests leaves to steps of its own."""
RUNS_LOADED = ("runs/silu", "runs/rmsnorm", "runs/merge")
"""Runs whose kernels are launched from an application, and timed there."""
RUNNING: list[int] = []
"""Process groups of the steps."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command, run from the repository's root, and how many seconds it may take."""

    seconds: float
    command: tuple[str, ...]


def python(*words: str) -> tuple[str, ...]:
    """This interpreter with these words."""
    return (sys.executable, *words)


def out(name: str) -> str:
    """A path in the folder that comes back."""
    return str(Path(os.environ["OUT"]) / name)


def tests(*words: str) -> tuple[str, ...]:
    """Tests of this folder, each outcome named."""
    return python("-m", "pytest", *words, "-q", "-rA", "-p", "no:cacheprovider")


def run(spec: str, name: str, *more: str) -> tuple[str, ...]:
    """A whole run of one experiment without Ray."""
    folder = out(f"runs/{name}")
    return python("-m", "cluster", "run", spec, "--fleet", "local", "--run-dir", folder, *more)


def throughput(name: str, *more: str) -> tuple[str, ...]:
    """The benchmark of configurations a second, its run and figures kept."""
    words = ("--out", out(f"runs/{name}"), "--json", out(f"{name}.json"))
    return python("-m", "tests.benchmarks.throughput", *words, *more)


def answer(spec: str, name: str, *more: str) -> tuple[str, ...]:
    """How long a whole run takes to a confirmed answer, in one line, and where the time went."""
    return python("-m", "tests.benchmarks.answer_time", "--out", out(f"runs/{name}"), spec, *more)


def steps() -> dict[str, Step]:
    """Every step by name, in order."""
    bundled = "deploy/experiments"
    peer = ("--peer", os.environ["PEER"]) if "PEER" in os.environ else ()
    replay, template = ("--model", "replay"), ("--model", "none")
    share = ("--jobs", "6", "--part", os.environ.get("PART", "1/1"), "--seconds")
    return {
        "machine": Step(60, ("nvidia-smi",)),
        "doctor": Step(90, python("-m", "cluster", "doctor")),
        "validate": Step(180, python("-m", "cluster", "validate", "fused_add_rmsnorm")),
        "device": Step(
            180,
            tests(
                "tests/gpu",
                *(f"--ignore=tests/gpu/{one}.py" for one in APART),
            ),
        ),
        "sequences": Step(300, tests(*map("tests/gpu/{}.py".format, OWN_STEP), "-s")),
        "sharing": Step(400, tests("tests/gpu/test_sharing.py", "-s")),  # best on two GPUs
        "exploits": Step(300, tests("tests/gpu/test_exploits.py", "-s")),
        "seeds": Step(
            330, python("-m", "tests.exploits.seeds", "10", "tests/gpu/exploits", *share, "300")
        ),
        "false_alarms": Step(
            180, python("-m", "tests.benchmarks.false_alarms", "10", "cuda", *share, "150")
        ),
        "honest": Step(590, tests("tests/gpu/test_honest_kernels.py")),
        "storm": Step(500, python("-m", "tests.benchmarks.storm", "--backend", "cuda")),
        "starts": Step(90, python("-m", "tests.benchmarks.child_start", "--backend", "cuda")),
        "record": Step(400, python("-m", "tests.gpu.record", out("h100.json.gz"))),
        "baselines": Step(180, python("-m", "tests.gpu.measure", "baselines")),
        "faults": Step(240, run(f"{DATA}/faults/cuda.yaml", "faults")),
        "throughput": Step(300, throughput("throughput", *peer)),
        "verification": Step(
            300,
            python("-m", "tests.benchmarks.verification_cost", f"{DATA}/silu_space/cuda.yaml"),
        ),
        "child": Step(60, python("-m", "tests.gpu.child_cost")),
        "confirmation": Step(200, python("-m", "tests.benchmarks.confirmation_cost")),
        "two_gpus": Step(
            300,
            throughput(
                "two_gpus",
                f"{DATA}/silu_space/large.yaml",
                "--fleet",
                "ray",
                "--benches",
                "2",
                "--against-one",
            ),
        ),
        "two_faults": Step(180, tests("tests/gpu/test_two_gpus.py", "-s")),
        "campaign": Step(  # with two GPUs, two runs side by side
            450,
            python("-m", "cluster", "campaign", f"{DATA}/campaign.yaml", "-o", out("campaign")),
        ),
        "silu": Step(500, run(f"{bundled}/silu_and_mul/cuda.yaml", "silu", *template)),
        "rmsnorm": Step(500, run(f"{bundled}/fused_add_rmsnorm/cuda.yaml", "rmsnorm", *template)),
        "silu_shipped": Step(
            500, run(f"{bundled}/silu_and_mul/cuda_shipped.yaml", "silu_shipped", *template)
        ),
        "rmsnorm_shipped": Step(
            500,
            run(f"{bundled}/fused_add_rmsnorm/cuda_shipped.yaml", "rmsnorm_shipped", *template),
        ),
        "merge": Step(500, run(f"{bundled}/merge_attn_states_lse/cuda.yaml", "merge", *template)),
        "loader": Step(  # after the three runs above, in the same visit
            300,
            python("-m", "tests.gpu.loader_time", *map(out, RUNS_LOADED)),
        ),
        "loop_silu": Step(500, run(f"{bundled}/silu_and_mul/cuda.yaml", "loop_silu", *replay)),
        "loop_rmsnorm": Step(
            500, run(f"{bundled}/fused_add_rmsnorm/cuda.yaml", "loop_rmsnorm", *replay)
        ),
        "loop_merge": Step(
            500, run(f"{bundled}/merge_attn_states_lse/cuda.yaml", "loop_merge", *replay)
        ),
        "answer_space": Step(120, answer(f"{DATA}/silu_space/cuda.yaml", "answer_space")),
        "answer_one": Step(90, answer(f"{DATA}/silu_space/one.yaml", "answer_one")),
        "answer_public": Step(150, answer(f"{DATA}/silu_space/public.yaml", "answer_public")),
        "answer_four": Step(
            400, answer(f"{DATA}/silu_space/one.yaml", "answer_four", "--runs", "4")
        ),
        "answer_rounds": Step(
            300, answer(f"{bundled}/silu_and_mul/cuda.yaml", "answer_rounds", *replay)
        ),
        "loop_silu_shipped": Step(
            300, run(f"{bundled}/silu_and_mul/cuda_shipped.yaml", "loop_silu_shipped", *replay)
        ),
        "loop_rmsnorm_shipped": Step(
            300,
            run(f"{bundled}/fused_add_rmsnorm/cuda_shipped.yaml", "loop_rmsnorm_shipped", *replay),
        ),
        "loop_merge_shipped": Step(
            300,
            run(
                f"{bundled}/merge_attn_states_lse/cuda_shipped.yaml", "loop_merge_shipped", *replay
            ),
        ),
        "applications": Step(590, python("-m", "tests.gpu.applications", out("applications"))),
        "templates": Step(550, python("-m", "tests.gpu.measure", "templates")),
    }


def memory_in_use() -> str:
    """Of every GPU, as the driver tells it; nothing that has ended may hold any."""
    query = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader")
    try:
        told = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    except OSError:
        return "unknown"
    return ", ".join(told.splitlines())


def kill(group: int) -> None:
    """End a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def give_up(*_: object) -> None:
    """On a signal to stop: end every step, then this process."""
    for group in RUNNING:
        kill(group)
    os._exit(1)


def carry_out(name: str, step: Step, log: Path) -> tuple[int | None, float]:
    """Run a step to its end or its time-out; its exit code, ``None`` if it was killed."""
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        RUNNING.append(process.pid)
        try:
            code: int | None = process.wait(step.seconds)
        except subprocess.TimeoutExpired:
            code = None
        kill(process.pid)  # what it left behind would disturb the next step
        process.wait()
    seconds = time.monotonic() - began
    outcome = "killed at its time-out" if code is None else f"exit {code}"
    print(f"== {name}: {outcome} after {seconds:.1f} s", flush=True)
    for line in log.read_text(errors="replace").splitlines()[-TAIL_LINES:]:
        print(f"   {line}", flush=True)
    return code, seconds


def main() -> int:
    """Carry out the steps that the command line names."""
    signal.signal(signal.SIGTERM, give_up)
    out = Path(os.environ["OUT"])
    out.mkdir(parents=True, exist_ok=True)
    known = steps()
    groups = [word.split("+") for word in sys.argv[1:] or known]
    if unknown := [name for group in groups for name in group if name not in known]:
        print(f"no such step: {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    summary = {}
    for group in groups:
        with ThreadPoolExecutor(len(group)) as pool:
            ended = pool.map(lambda name: carry_out(name, known[name], out / f"{name}.log"), group)
            for name, (code, seconds) in zip(group, ended, strict=True):
                summary[name] = {"exit": code, "seconds": round(seconds, 1)}
        print(f"   device memory in use now: {memory_in_use()}", flush=True)
        (out / "summary.json").write_text(json.dumps(summary, indent=1))
    return int(any(step["exit"] != 0 for step in summary.values()))


if __name__ == "__main__":
    sys.exit(main())
