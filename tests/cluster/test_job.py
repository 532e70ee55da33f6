"""Jobs: submitted by a command or by hand, followed over lost connections, left and stopped."""

import asyncio
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import closing, suppress

import pytest

from cluster.jobs.job_client import JobServer
from tests.cluster.conftest import drain, start_ray
from tests.cluster.faults import note
from tests.cluster.kernels import (
    ROOT,
    SPEC,
    TEMPLATE,
    command,
    kernelwright,
    write_experiment,
)
from tuner.run_directory import RunView

PACKAGES = ("agents", "cluster", "deploy", "tuner", "workers")

NOTICE_SECONDS = 30
"""How long before a node is taken away Ray is told of it, on the clouds that tell it."""


@pytest.fixture(scope="module")
def address():
    """The address of the job server of a Ray that takes jobs."""
    cluster = start_ray(dashboard=True)
    yield job_server(cluster)
    cluster.shutdown()


def job_server(cluster):
    """Its address."""
    return f"http://{cluster.head_node.address_info['webui_url']}"


class Proxy:
    """Passes connections on to an address, and can cut them all."""

    def __init__(self, address):
        host, _, port = address.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._held = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
                self._held += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source, target):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def cut(self):
        """Reset every connection."""
        for one in self._held:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._held.clear()

    def close(self):
        self._server.close()
        self.cut()


@pytest.mark.slow
def test_a_submitted_job_needs_no_installation_and_ends_with_the_code_of_its_run(tmp_path, address):
    run = tmp_path / "run"
    spec = write_experiment(tmp_path / "mine")
    result = kernelwright("submit", "--address", address, spec, "--run-dir", run)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"submitted: ray job submit .* -- python -m cluster run", result.stderr)
    assert f"run directory {run}" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("kernelwright: outcome=")
    assert [fact.kind for fact in RunView.open(run).facts()][-1] == "run.finished"


async def followed(cut_after, whole):
    """What is read of a job that has ended: its stream closes early, its whole log is a reply."""
    from aiohttp import web

    async def info(request):
        words = "done\npages\nof logs"
        kind = {"type": "SUBMISSION", "status": "SUCCEEDED", "entrypoint": "", "message": words}
        return web.json_response({**kind, "submission_id": "job", "driver_exit_code": 0})

    async def tail(request):
        stream = web.WebSocketResponse()
        await stream.prepare(request)
        await stream.send_str("one\ntwo\nthree\n"[:cut_after])
        await stream.close()
        return stream

    async def logs(request):
        return web.Response(status=500) if whole is None else web.json_response({"logs": whole})

    async def version(request):
        return web.json_response({"version": "1", "ray_version": "2.50.0", "ray_commit": ""})

    app = web.Application()
    app.add_routes(
        [
            web.get("/api/version", version),
            web.get("/api/jobs/", info),
            web.get("/api/jobs/job", info),
            web.get("/api/jobs/job/logs", logs),
            web.get("/api/jobs/job/logs/tail", tail),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    told = []
    server = await asyncio.to_thread(JobServer, f"http://127.0.0.1:{port}")
    read = [text async for text in server.follow("job", told.append)]
    await runner.cleanup()
    return "".join(read), told


@pytest.mark.slow
def test_a_log_that_is_cut_is_read_to_its_end_or_said_to_be_lost():
    whole = "one\ntwo\nthree\n"
    assert asyncio.run(followed(len(whole), whole)) == (whole, [])
    assert asyncio.run(followed(5, whole)) == (whole, [])
    assert asyncio.run(followed(5, None)) == (whole[:5], ["the end of its log is lost. done"])
    assert asyncio.run(followed(5, ""))[1] == ["the end of its log is lost. done"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("no/such.yaml",), 2, "no such file: no/such.yaml"),
        (("silu_and_mul", "--address", "http://head:8265"), 2, "--address belongs before"),
        (("--follow", "job", "--seconds", "3"), 2, "takes no more options"),
        (("--resume", "--follow", "job"), 2, "give one of them"),
        (("--address", "head:6379", "silu_and_mul"), 2, "not the address of Ray's job server"),
        (("--address", "http://127.0.0.1:1", "silu_and_mul"), 3, "Connection refused"),
    ],
)
def test_what_cannot_be_submitted_is_told_in_one_message(words, code, told):
    result = kernelwright("submit", *words)
    assert result.returncode == code, result.stderr
    assert told in result.stderr
    assert "bug" not in result.stderr


@pytest.mark.slow
def test_ray_job_submit_by_hand_needs_no_installation(tmp_path, address):
    checkout = tmp_path / "checkout"
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "kernelwright.py", checkout)
    write_experiment(checkout / "mine")
    run = tmp_path / "run"
    submit = ["ray", "job", "submit", "--address", address, "--working-dir", str(checkout), "--"]
    job = ["python", "-m", "cluster", "run", "mine/spec.yaml", "--run-dir", str(run)]
    result = subprocess.run(
        [*submit, *job], capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "kernelwright: outcome=" in result.stdout
    assert [fact.kind for fact in RunView.open(run).facts()][-1] == "run.finished"


def started(words):
    """A command as a process whose lines are read as they come."""
    return subprocess.Popen(
        command(*words), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def read_until(process, pattern):
    """The lines up to one in which the pattern is found."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return "".join(lines)
    raise AssertionError("".join(lines))


def endless(folder):
    """A spec of a run that goes on for minutes."""
    text = SPEC.replace("trials: 6, seconds: 60", "trials: 5000, seconds: 600")
    wide = TEMPLATE.replace("[1, 2, 4]", str(list(range(1, 100))))
    return write_experiment(folder, spec=text, template=wide)


def check_resumed(run, words):
    """Resume a run by a command, and stop it: what it knew before is kept."""
    known = RunView.open(run).facts()
    process = started(words)
    read_until(process, r"search: [1-9]\d*/")
    while len(RunView.open(run).facts()) <= len(known) + 2:
        time.sleep(0.1)
    assert kernelwright("stop", run).returncode == 0
    ended, _ = process.communicate(timeout=120)
    assert process.returncode == 0, ended
    assert RunView.open(run).facts()[: len(known)] == known


@pytest.mark.slow
@pytest.mark.usefixtures("fault_time")
def test_a_job_on_a_node_that_is_drained_ends_with_143_and_is_resumed_elsewhere(tmp_path):
    run, cluster = tmp_path / "run", start_ray(dashboard=True)
    try:
        spec = endless(tmp_path / "spec")
        submit = ["submit", "--address", job_server(cluster), spec, "--run-dir", run]
        process = started(submit)
        read_until(process, r"search: [1-9]\d*/")
        began = time.monotonic()
        drain(cluster, cluster.head_node.node_id, NOTICE_SECONDS)
        said = process.stdout.read()
        took = time.monotonic() - began
    finally:
        cluster.shutdown()
    assert process.wait() == 143, said
    assert "this node of the Ray cluster is being drained; continue with: " in said
    assert f"kernelwright submit --resume {run}" in said
    assert took < NOTICE_SECONDS
    note("the only node is drained, the job submitted", run, took, said.splitlines())
    check_resumed(run, ["resume", run, "--fleet", "local"])


@pytest.mark.slow
def test_a_job_survives_its_follower_and_a_lost_connection_and_is_resumed_by_another(
    tmp_path, address
):
    spec = endless(tmp_path / "spec")
    run = tmp_path / "run"
    process = started(["submit", "--address", address, spec, "--run-dir", run])
    job = re.search(r"job (scale-\S+)", read_until(process, r"search: [1-9]\d*/"))[1]
    process.send_signal(signal.SIGINT)
    left, _ = process.communicate(timeout=30)
    assert process.returncode == 130, left
    assert f"job {job} goes on; follow it with: kernelwright submit" in left

    with closing(Proxy(address)) as proxy:
        process = started(["submit", "--address", proxy.address, "--follow", job])
        before = read_until(process, r"search: [1-9]\d*/")
        proxy.cut()
        after = read_until(process, "lost the connection")
        after += read_until(process, r"search: [1-9]\d*/")
        subprocess.run(
            ["ray", "job", "stop", "--no-wait", "--address", address, job], check=True, timeout=60
        )
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 143, rest
    whole = before + after + rest
    assert whole.count("run directory") == 1, "nothing is printed twice"
    assert f"continue with: kernelwright submit --resume {run}" in whole

    check_resumed(run, ["submit", "--address", address, "--resume", run])

    missing = kernelwright("submit", "--address", address, "--resume", tmp_path / "none")
    assert missing.returncode == 2, missing.stdout
    assert "is not a run directory" in missing.stdout


@pytest.mark.slow
def test_a_run_is_fetched_from_the_cluster_and_again_for_what_came_since(
    tmp_path, address, finished_run
):
    run, _ = finished_run
    here = tmp_path / "here"
    first = kernelwright("fetch", "--address", address, run, "--output", here)
    assert first.returncode == 0, first.stderr
    assert RunView.open(here).facts() == RunView.open(run).facts()
    (here / "report.html").unlink()
    again = kernelwright("fetch", "--address", address, run, "--output", here)
    assert re.match("1 of [0-9]+ files fetched", again.stdout), again.stderr
    report = kernelwright("report", here)
    assert report.returncode == 0, report.stderr
    missing = kernelwright("fetch", "--address", address, "no-such-job", "--output", tmp_path / "x")
    assert missing.returncode == 2
    assert "kernelwright-runs/no-such-job is not a run directory on the cluster" in missing.stderr
