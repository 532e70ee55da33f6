"""``doctor`` on a cluster: each node, what is amiss there, and words whatever Ray does."""

import json
import os
import subprocess
from dataclasses import replace

import pytest

from cluster.jobs.cluster_survey import Node, Survey, read_survey
from cluster.jobs.node_report import READY, NodeReport
from kernelwright import __version__
from tests.cluster.kernels import ROOT, command, kernelwright
from tests.tuner.engine.driving import GPU
from workers.backends.cuda.ncu import counters_refused
from workers.devices.discover import Found

WELL = NodeReport(
    host="node7",
    version=__version__,
    python="3.11.7",
    cpus=64,
    packages={"ray": "2.60.0"},
    devices=(Found(backend="cuda", index=0, device=GPU),),
    compilers={"cuda": READY},
    sandbox=(),
    runs="/home/x/kernelwright-runs is writable",
    ray_token=True,
)


@pytest.fixture
def told(monkeypatch):
    """What doctor prints of a cluster with these nodes, and as JSON."""

    def told(*nodes):
        monkeypatch.setenv("RAY_ADDRESS", "head:6379")
        found = Survey(cluster="head:6379: it has nodes", nodes=nodes)
        monkeypatch.setattr("cluster.commands.doctor.survey", lambda _: found)
        monkeypatch.setattr("cluster.commands.doctor.node_report", lambda _: WELL)
        return kernelwright("doctor").stdout, json.loads(kernelwright("doctor", "--json").stdout)

    return told


def test_each_node_is_a_line_and_what_is_amiss_another(told):
    bad = replace(
        WELL,
        host="node8",
        version="0.0.1",
        packages={"ray": None},
        devices=(Found(backend="cuda", index=-1, problem="no NVIDIA driver"),),
        compilers={"cuda": "NVRTC is missing"},
        profilers={"cuda": "not allowed"},
        runs="/home/x: cannot be created (read-only)",
        ray_token=False,
    )
    text, data = told(
        Node(address="10.0.0.7", gpus=1, report=WELL),
        Node(address="10.0.0.8", gpus=2, report=bad),
        Node(address="10.0.0.9", gpus=8, problem="No module named 'cluster'"),
    )
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("node"))
    assert "10.0.0.7 (node7): 64 processors, 1 GPU of Ray; cuda:0" in lines[start]
    assert lines[start + 1].startswith("node         10.0.0.8 (node8)")
    for words in (
        f"Kernelwright is 0.0.1 there and {__version__} here",
        "Ray is missing there and 2.60.0 here",
        "Ray counts 2 GPUs, and 0 can be used",
        "cuda: no NVIDIA driver",
        "cuda does not compile there: NVRTC is missing",
        "cuda: not allowed",
        "/home/x: cannot be created (read-only)",
        "Ray asks for no token there",
    ):
        assert f"             {words}" in text
    assert "node         10.0.0.9: No module named 'cluster'" in lines
    assert [node["problem"] for node in data["nodes"]] == [None, None, "No module named 'cluster'"]
    assert data["nodes"][1]["report"]["compilers"] == {"cuda": "NVRTC is missing"}


def test_a_client_that_ray_kills_is_told_in_a_line():
    trace = "*** SIGABRT received at time=1 ***\n    @ 0x7f ray::core::CoreWorkerProcess\n"
    ended = subprocess.CompletedProcess([], -6, "", trace)
    words = read_survey("cannot use head:6379", ended).cluster
    assert words.startswith("cannot use head:6379: Ray's client was killed by SIGABRT: is there a")
    assert "0x7f" not in words
    exited = subprocess.CompletedProcess([], 1, "", "")
    assert "ended with status 1" in read_survey("x", exited).cluster


@pytest.mark.parametrize(
    ("parameters", "capabilities", "refused"),
    [
        ("RmProfilingAdminOnly: 1\n", "0000000000000000", True),
        ("RmProfilingAdminOnly: 1\n", "0000000000200000", False),
        ("RmProfilingAdminOnly: 0\n", "0000000000000000", False),
        (None, "0000000000000000", False),
    ],
)
def test_whether_counters_may_be_read_is_the_drivers_word(
    tmp_path, parameters, capabilities, refused
):
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    if parameters:
        (tmp_path / "params").write_text(parameters)
    assert (counters_refused(tmp_path / "params", status) is not None) == refused


@pytest.mark.slow
def test_without_a_raylet_on_this_machine_it_ends_in_words():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0})
    address = cluster.address
    try:
        cluster.head_node.kill_raylet()
        result = subprocess.run(
            command("doctor"),
            cwd=ROOT,
            env=os.environ | {"RAY_ADDRESS": address},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        cluster.shutdown()
    assert result.returncode == 0, result.stderr
    assert f"\nray          cannot use {address}: " in result.stdout
    assert "is there a Ray node on this machine?" in result.stdout
    for sign in ("Traceback", "SIGABRT received", "ray::", "@ 0x"):
        assert sign not in result.stdout + result.stderr
