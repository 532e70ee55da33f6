"""Runs that share this machine's GPUs through Ray, and the processes on them."""

import asyncio
import os
from pathlib import Path

import pytest

from cluster.fleets.claim import Share
from cluster.runs.placement import Placement
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView
from workers.backends.cuda.device import open_device
from workers.backends.cuda.nvml import occupants

pytestmark = pytest.mark.gpu

SPEC = Path(__file__).parent / "data" / "silu_space" / "cuda.yaml"


def begin(path):
    experiment = load_experiment(SPEC)
    text = SPEC.read_text()
    RunDirectory.create(path, experiment, text).close()
    return path


def test_two_runs_of_one_gpu_each_both_end(tmp_path, ray_here):
    from cluster.jobs.ray_driver import RemoteRun

    async def follow(run):
        remote = RemoteRun(run, Placement(share=Share(gpus=1, wait=True)))
        return [str(update) async for update in remote.progress()]

    async def both():
        return await asyncio.gather(*map(follow, runs))

    runs = [begin(tmp_path / name) for name in "ab"]
    said = asyncio.run(both())
    benches = []
    for run in runs:
        facts = RunView.open(run).facts()
        assert facts[-1].kind == "run.finished"
        benches += {fact.bench for fact in facts if fact.kind == "bench.joined"}
    waited = [words for update in said for words in update if words.startswith("waiting for 1 GPU")]
    print(benches, waited)
    if ray_here.cluster_resources()["GPU"] >= 2:
        assert len(set(benches)) == 2
        assert not waited
    else:
        assert waited


def test_a_process_on_a_gpu_is_found_by_the_uuid_of_the_device(tmp_path):
    pynvml = pytest.importorskip("pynvml")
    device = open_device(0)
    pynvml.nvmlInit()
    bus = device.identity.split("-")
    handle = pynvml.nvmlDeviceGetHandleByPciBusId(f"{bus[1]}:{bus[2]}:{bus[3]}".encode())
    pids = sorted(one.pid for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    for pid in pids:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"Name:\tother\nUid:\t{os.getuid() + 1}\n")
    print(device.identity, pids)
    assert [one.pid for one in occupants(device.identity, tmp_path)] == pids
    assert occupants(device.identity) == (), "this test alone works on the GPU"
