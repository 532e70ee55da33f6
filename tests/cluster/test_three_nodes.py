"""Faults on three real Ray nodes: separate ``ray start`` processes on this host, with a token.

The head drives and compiles; each of the two other nodes has a GPU that is not there, and PoCL.
Each fault strikes a run that has finished a few trials: none of those may be lost or repeated, and
the run has to end as if nothing had been, if need be after a resume. Each test prints its row of
the table in ``docs/clusters.md``, with the seconds until the run recovered. All rows of this file
five times, with the rows appended to a file, on a machine that does nothing else (an hour on two
cores)::

    FAULT_TIMES=5 RECOVERY_LOG=faults.md pytest -m slow tests/cluster/test_three_nodes.py

Tests of other files that use the fixture ``fault_time`` are repeated in the same way.
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

from tests.cluster import faults
from tests.cluster.conftest import free_ports
from tests.cluster.faults import (
    PATIENCE,
    begin,
    below,
    finished,
    finished_count,
    kill,
    note,
    processes,
    recovery,
    until,
)
from tests.cluster.kernels import ROOT, command, write_experiment
from tuner.engine.retries import ATTEMPTS
from tuner.run_directory import RunView
from tuner.trial import Measured

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("fault_time"),
]

STARTS = 3
"""How often a node is started at most."""

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

    def __init__(self, *options: str, mounted: Path | None = None, **variables: str) -> None:
        """Start three nodes with these options and variables of Ray.

        ``mounted`` is a folder that the head alone sees as a file system of its own.
        """
        self._options, self._mounted = options, mounted
        self.folder = Path(tempfile.mkdtemp(prefix="kw3"))  # sockets need a short name
        token = self.folder / "token"
        token.write_text("0123456789abcdef" * 4)
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            **variables,
        }
        self.port = free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        try:
            self.head = self._start("--head", f"--port={self.port}", "--num-cpus=1", "--num-gpus=0")
            self.repair()
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> "list[subprocess.Popen[bytes]]":
        """The nodes with a GPU that live."""
        return [node for node in self.nodes if node is not self.head and node.poll() is None]

    def repair(self) -> None:
        """Have two nodes with a GPU, each whole."""
        for node in self.workers:
            if not processes("raylet", node.pid):
                self.kill(node)
        for node in self.workers[2:]:
            self.kill(node)
        while len(self.workers) < 2:
            self.add()

    def add(self) -> "subprocess.Popen[bytes]":
        """One more node with a GPU."""
        return self._start(f"--address={self.address}", "--num-cpus=2", "--num-gpus=1")

    def _start(self, *options: str) -> "subprocess.Popen[bytes]":
        """A node that is up: Ray gives a start up after 30 s, which a busy machine may need."""
        for _ in range(STARTS):
            log = self.folder / f"node{len(self.nodes)}.log"
            node = self._begin(log, options)
            if node.poll() is None:
                return node
            with suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
        raise AssertionError(log.read_text())

    def _begin(self, log: Path, options: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        """A node that is up, or has ended."""
        names = ("dashboard-agent-listen", "metrics-export", "runtime-env-agent")
        ports = free_ports(len(names))
        words = [f"--{name}-port={port}" for name, port in zip(names, ports, strict=True)]
        if options[0] == "--head":
            words += ["--include-dashboard=false", f"--temp-dir={self.folder}"]
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        if options[0] == "--head" and self._mounted:
            script = 'mount --bind "$0" "$0" && exec "$@"'
            start = ["unshare", "-rm", "sh", "-c", script, str(self._mounted), *start]
        with log.open("wb") as output:
            node = subprocess.Popen(
                [*start, *options, *self._options, *words, "--disable-usage-stats"],
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.nodes.append(node)
        until(lambda: node.poll() is not None or b"Ray runtime started" in log.read_bytes())
        return node

    def kill(self, node: "subprocess.Popen[bytes]") -> None:
        """SIGKILL for a node and all its processes at once."""
        for number in (node.pid, *below(node.pid)):
            kill(number)
        node.wait()

    def process(self, word: str, nodes: "list[subprocess.Popen[bytes]] | None" = None) -> int:
        """The number of a process of these nodes whose command line begins with a word."""
        return next(one for node in nodes or self.nodes for one in processes(word, node.pid))

    def in_head(self, *words: object) -> None:
        """Run a command that sees the files as the head does."""
        name = f"--target={self.head.pid}"
        enter = ["nsenter", name, "--user", "--mount", "--preserve-credentials"]
        subprocess.run([*enter, *map(str, words)], check=True)

    def close(self) -> None:
        """Everything goes."""
        for node in self.nodes:
            if node.poll() is None:
                self.kill(node)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def clusters():
    """The cluster of the last fault, if there was one: three nodes take a minute to start."""
    found = []
    yield found
    for cluster in found:
        cluster.close()


@pytest.fixture
def nodes(clusters):
    """Three nodes, for one fault; those that an earlier one killed are replaced."""
    if clusters and clusters[0].head.poll() is not None:
        clusters.pop().close()
    if clusters:
        clusters[0].repair()
    else:
        clusters.append(Cluster())
    return clusters[0]


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
    until(lambda: follower.process.poll() is not None or finished_count(run) >= STRUCK_AFTER)
    assert follower.process.poll() is None, follower.log.read_text()
    fault()
    return finished(run), time.time()


def check(run, before, at, row, said):
    """Nothing is lost or repeated; note the seconds until the next trial after the fault."""
    faults.check(run, before)
    note(row, run, recovery(run, at) or 0.0, said.splitlines())


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
    before, at = struck(run, follower, lambda: kill(nodes.process("ray::Driver")))
    code, said = follower.end()
    assert code != 0
    assert "error: the driver actor died" in said
    again = Follower(nodes, run)
    assert again.end()[0] == 0
    check(run, before, at, "driver", said)


def test_a_token_that_is_missing_is_told_once(nodes, tmp_path):
    environment = {**nodes.environment, "RAY_ADDRESS": nodes.address}
    del environment["RAY_AUTH_MODE"], environment["RAY_AUTH_TOKEN_PATH"]
    words = command("run", write_experiment(tmp_path / "spec"), "--run-dir", tmp_path / "run")
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 3
    *by_ray, said = done.stderr.decode().splitlines()
    assert "it requires its token: set RAY_AUTH_MODE=token" in said
    assert len(by_ray) <= 1, by_ray


def test_a_second_driver_is_refused_and_the_first_goes_on(nodes, tmp_path):
    run = begin(tmp_path)
    follower = Follower(nodes, run)
    until(lambda: (run / "lease.json").exists())
    refused, why = Follower(nodes, run).end()
    before, at = finished(run), time.time()
    assert (refused, "is in use by process" in why) == (3, True), why
    code, said = follower.end()
    assert code == 0, said
    check(run, before, at, "nothing; a second driver on the same run directory", why)


def test_without_any_gpu_node_it_waits_and_goes_on_with_a_new_one(nodes, tmp_path):
    run = begin(tmp_path)
    nodes.kill(nodes.workers[1])
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
        for node in [nodes.head, *nodes.workers]:
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


def test_a_run_directory_that_becomes_read_only_is_named_and_nothing_is_lost(tmp_path):
    run = begin(tmp_path)
    allowed = ["unshare", "-rm", "mount", "--bind", str(run), str(run)]
    if subprocess.run(allowed, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets no user mount a folder")
    nodes = Cluster(mounted=run)
    try:
        follower = Follower(nodes, run)

        def fault():
            nodes.in_head("mount", "--bind", "-o", "ro", run, run)

        before, at = struck(run, follower, fault)
        _, said = follower.end()
        refused, why = Follower(nodes, run).end()
        nodes.in_head("umount", run)
        code, _ = Follower(nodes, run).end()
    finally:
        nodes.close()
    assert "Traceback" not in said
    assert (refused, "Read-only file system" in why) == (3, True), why
    assert code == 0
    check(run, before, at, "nothing; the run directory becomes read-only", said + why)


HOG = """
import sys

import numpy
import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

class Hog:
    def fill(self):
        self.held = []
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    self.held.append(ray.get(ray.put(numpy.zeros(size, numpy.uint8))))
            except (ObjectStoreFullError, OutOfDiskError):
                pass

ray.init(address=sys.argv[1], log_to_driver=False)
hogs = []
for node in ray.nodes():
    where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    hogs.append(ray.remote(num_cpus=0, scheduling_strategy=where)(Hog).remote())
ray.get([hog.__ray_ready__.remote() for hog in hogs])
print("ready", flush=True)
sys.stdin.readline()
ray.get([hog.fill.remote() for hog in hogs])
print("full", flush=True)
sys.stdin.read()
"""
"""Fills the object store of every node with objects in use, which Ray cannot move to a disk.

Begins when it is sent a line, and frees them when its stdin is closed.
"""


def test_full_object_stores_delay_a_run_and_are_named(tmp_path):
    # Binaries go through the store at any size, and nothing may be written in place of it.
    nodes = Cluster(
        f"--object-store-memory={80 << 20}",
        RAY_max_direct_call_object_size="1024",
        RAY_local_fs_capacity_threshold="0.0",
    )
    hog = subprocess.Popen(
        [sys.executable, "-c", HOG, nodes.address],
        env=nodes.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def fault():
        hog.stdin.write(b"fill\n")
        hog.stdin.flush()
        assert hog.stdout.readline() == b"full\n"
        until(lambda: (run / "journal.jsonl").read_bytes().count(b"work.lost") > ATTEMPTS)
        hog.communicate()

    try:
        assert hog.stdout.readline() == b"ready\n"
        run = begin(tmp_path)
        follower = Follower(nodes, run)
        before, at = struck(run, follower, fault)
        code, said = follower.end()
    finally:
        hog.kill()
        nodes.close()
    assert code == 0, said
    check(run, before, at, "room in the object stores of all nodes", said)
    lost = [fact.reason for fact in RunView.open(run).facts() if fact.kind == "work.lost"]
    assert any("object store and local disk are full" in reason for reason in lost), lost
    assert all(isinstance(fact.outcome, Measured) for fact in finished(run))
