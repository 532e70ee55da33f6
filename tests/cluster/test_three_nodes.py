"""Faults on three real Ray nodes: separate ``ray start`` processes on this host, with a token.

The head drives and compiles; each of the two other nodes has a GPU that is not there, and PoCL.
Each fault strikes a run that has finished a few trials: none of those may be lost or repeated, and
the run has to end as if nothing had been, if need be after a resume. ``RECOVERY_LOG`` names a file
to which each test appends its row of the table in ``docs/clusters.md``.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.conftest import free_ports
from tests.cluster.kernels import ROOT, SPEC, TEMPLATE, write_experiment
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE = 240.0
TRIALS = 24
STRUCK_AFTER = 9
"""Finished trials: the second batch is on its way."""

DRIVE = """
import asyncio, sys
from pathlib import Path

import ray

from cluster.jobs.ray_driver import RemoteRun
from tuner.errors import KernelwrightError

async def follow():
    async for progress in RemoteRun(Path(sys.argv[1]), gpus=True).progress():
        print(progress, flush=True)

ray.init(address=sys.argv[2], namespace="kernelwright", log_to_driver=False)
try:
    asyncio.run(follow())
except KernelwrightError as problem:
    print("error:", problem, flush=True)
    sys.exit(problem.exit_code)
"""


class Cluster:
    """``ray start`` processes, each with all that it started in a process group of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kw3"))  # sockets need a short name
        token = self.folder / "token"
        token.write_text("0123456789abcdef" * 4)
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
        }
        self.port = free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.head = self._start("--head", f"--port={self.port}", "--num-cpus=1", "--num-gpus=0")
        self.workers = [self.add() for _ in range(2)]

    def add(self) -> "subprocess.Popen[bytes]":
        """One more node with a GPU."""
        return self._start(f"--address={self.address}", "--num-cpus=2", "--num-gpus=1")

    def _start(self, *options: str) -> "subprocess.Popen[bytes]":
        names = ("dashboard-agent-listen", "metrics-export", "runtime-env-agent")
        ports = free_ports(len(names))
        words = [f"--{name}-port={port}" for name, port in zip(names, ports, strict=True)]
        if options[0] == "--head":
            words += ["--include-dashboard=false", f"--temp-dir={self.folder}"]
        log = (self.folder / f"node{len(self.nodes)}.log").open("wb")
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        node = subprocess.Popen(
            [*start, *options, *words, "--disable-usage-stats"],
            env=self.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.nodes.append(node)
        until(
            lambda: node.poll() is not None or b"Ray runtime started" in Path(log.name).read_bytes()
        )
        assert node.poll() is None, Path(log.name).read_text()
        return node

    def kill(self, node: "subprocess.Popen[bytes]") -> None:
        """SIGKILL for a node and all its processes at once."""
        for number in (node.pid, *below(node.pid)):
            kill(number)
        node.wait()

    def process(self, word: str, nodes: "list[subprocess.Popen[bytes]] | None" = None) -> int:
        """The number of a process of these nodes whose command line begins with a word."""
        for node in nodes or self.nodes:
            for number in below(node.pid):
                with suppress(OSError):
                    line = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")[0].decode()
                    if line.rpartition("/")[2].startswith(word):
                        return number
        raise AssertionError(f"no process of {word}")

    def close(self) -> None:
        """Everything goes."""
        for node in self.nodes:
            if node.poll() is None:
                self.kill(node)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def nodes():
    """Three nodes, for one fault."""
    cluster = Cluster()
    yield cluster
    cluster.close()


def below(number: int) -> list[int]:
    """The numbers of all processes that descend from one."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, open_ = [], [number]
    while open_:
        more = children.get(open_.pop(), [])
        found += more
        open_ += more
    return found


def kill(number: int) -> None:
    """SIGKILL, if it still lives."""
    with suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


def until(holds, seconds=PATIENCE):
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def begin(folder):
    """A run directory of 24 trials, which nobody works on yet."""
    text = SPEC.replace("trials: 6,", f"trials: {TRIALS},").replace("seconds: 60", "seconds: 600")
    template = TEMPLATE.replace("[1, 2, 4]", str([*range(1, 13)])).replace(
        "[16, 64]", "[16, 32, 64, 128]"
    )
    spec = write_experiment(folder / "spec", spec=text, template=template)
    RunDirectory.create(folder / "run", load_experiment(spec), text).close()
    return folder / "run"


def finished(run):
    """What was measured, in order."""
    return [fact for fact in RunView.open(run).facts() if fact.kind == "trial.finished"]


class Follower:
    """A process that drives a run to its end, as the command does."""

    def __init__(self, cluster, run):
        self.log = run.with_suffix(f".log{time.monotonic_ns()}")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVE, str(run), cluster.address],
                cwd=ROOT,
                env=cluster.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self):
        """Its exit code, and what it said."""
        code = self.process.wait(PATIENCE)
        return code, self.log.read_text()


def struck(run, follower, fault):
    """The trials that were finished when the fault struck, and when that was."""
    until(lambda: follower.process.poll() is not None or len(finished(run)) >= STRUCK_AFTER)
    assert follower.process.poll() is None, follower.log.read_text()
    fault()
    return finished(run), time.time()


def check(run, before, at, row, said):
    """Nothing is lost or repeated; note the seconds until the next trial after the fault."""
    view = RunView.open(run)
    entries = [one for one in view.entries() if one.fact.kind == "trial.finished"]
    facts = [one.fact for one in entries]
    assert facts[: len(before)] == before
    assert sorted(fact.trial for fact in facts) == list(range(TRIALS))
    assert sum(fact.kind == "run.finished" for fact in view.facts()) == 1
    lost = [fact for fact in view.facts() if fact.kind == "work.lost"]
    later = [one.at - at for one in entries[len(before) :] if one.at > at]
    if log := os.environ.get("RECOVERY_LOG"):
        lines = said.splitlines()
        words = next((w for w in lines if w.startswith("error:") or " lost (" in w), "nothing")
        with Path(log).open("a") as stream:
            seconds = f"{min(later, default=0.0):.1f} s"
            stream.write(f"| {row} | {len(lost)} | {seconds} | {words} |\n")


FAULTS = {
    "bench": lambda nodes: kill(nodes.process("ray::BenchActor")),
    "compile actor": lambda nodes: kill(nodes.process("ray::CompileActor")),
    "raylet of a GPU node": lambda nodes: kill(nodes.process("raylet", nodes.workers[:1])),
    "a whole GPU node": lambda nodes: nodes.kill(nodes.workers[0]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_goes_on_by_itself(nodes, tmp_path, fault):
    run = begin(tmp_path)
    follower = Follower(nodes, run)
    before, at = struck(run, follower, lambda: FAULTS[fault](nodes))
    code, said = follower.end()
    assert code == 0, said
    check(run, before, at, fault, said)


def test_a_driver_that_is_killed_says_so_and_the_run_is_resumed(nodes, tmp_path):
    run = begin(tmp_path)
    follower = Follower(nodes, run)
    before, at = struck(run, follower, lambda: kill(nodes.process("ray::DriverActor")))
    code, said = follower.end()
    assert code != 0
    assert "error: the driver actor died" in said
    again = Follower(nodes, run)
    assert again.end()[0] == 0
    check(run, before, at, "driver", said)


def test_without_any_gpu_node_it_waits_and_goes_on_with_a_new_one(nodes, tmp_path):
    run = begin(tmp_path)
    nodes.kill(nodes.workers.pop())
    follower = Follower(nodes, run)
    before, at = struck(run, follower, lambda: nodes.kill(nodes.workers[0]))
    until(lambda: "none is left" in follower.log.read_text())
    nodes.add()
    code, said = follower.end()
    assert code == 0, said
    check(run, before, at, "the only GPU node, another one added", said)


def test_everything_is_killed_and_a_copy_is_resumed_on_another_cluster(nodes, tmp_path):
    run = begin(tmp_path)
    follower = Follower(nodes, run)

    def fault():
        for node in nodes.nodes:
            nodes.kill(node)
        follower.process.send_signal(signal.SIGKILL)

    before, at = struck(run, follower, fault)
    follower.process.wait()
    copy = tmp_path / "elsewhere"
    shutil.copytree(run, copy)
    other = Cluster()
    try:
        code, said = Follower(other, copy).end()
    finally:
        other.close()
    assert code == 0, said
    check(copy, before, at, "everything, resumed on another cluster from a copy", said)
