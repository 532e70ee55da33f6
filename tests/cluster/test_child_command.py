"""A run in a child process ends in order when its parent is killed and its pipe has no reader."""

import re
import subprocess
import sys
import time

import pytest

from cluster.commands.results import is_running
from tests.cluster.kernels import ROOT, SPEC, kernelwright, write_experiment
from tuner.run_directory import RunView, begun

PARENT = """
import asyncio, sys, threading, time
from asyncio.subprocess import PIPE, STDOUT

from cluster import child_command

async def follow():
    words = (*child_command.kernelwright_command(), *sys.argv[1:])
    await (await child_command.begin(words, output=PIPE, errors=STDOUT)).wait()

for _ in range(8):  # a killed process loses its threads one after the other
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
asyncio.run(follow())
"""


@pytest.mark.slow
def test_a_run_ends_with_its_killed_parent_and_is_resumed(tmp_path):
    run = tmp_path / "run"
    spec = write_experiment(tmp_path / "spec", spec=SPEC.replace("trials: 6,", "trials: 60,"))
    words = ["run", str(spec), "--fleet", "local", "--run-dir", str(run)]
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *words], cwd=ROOT)

    def finished():
        facts = RunView.open(run).facts() if begun(run) else ()
        return [fact for fact in facts if fact.kind == "trial.finished"]

    until = time.monotonic() + 120
    while not finished():
        assert time.monotonic() < until
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    while is_running(run):
        assert time.monotonic() < until
        time.sleep(0.05)
    told = (run / "log.txt").read_text()
    assert "ends by" not in told, "what ended it is said in words"
    before = RunView.open(run).facts()
    assert before[-1].kind != "run.finished"
    again = kernelwright("resume", run)
    assert again.returncode == 0, again.stderr
    assert re.search("outcome=(improved|no_gain)", again.stdout)
    assert RunView.open(run).facts()[: len(before)] == before
