"""Whole runs on a real Ray: GPUs that are not there, workers killed, a submitted job."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.interruptible import until_done
from cluster.runs.resuming import resume_hint
from cluster.runs.run_layout import round_path
from cluster.runs.run_process import RunProcess
from cluster.runs.search_run import SearchRun
from cluster.settings import Settings
from kernelwright import tune
from tests.agents.llm.server import KEY, answers, completion, fails, serving
from tests.cluster import faults
from tests.cluster.conftest import free_ports
from tests.cluster.kernels import FAMILY, ROOT, SPEC, command, write_experiment
from tests.cluster.test_network_models import DRAFT, SUGGESTION, fenced
from tuner.errors import EnvironmentProblem, RunInterrupted
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView
from tuner.trial import Measured

SESSIONS = Path(tempfile.gettempdir()) / "ray"


def begin(folder: Path) -> Path:
    """A new run directory, with time for all trials on a busy machine."""
    text = SPEC.replace("seconds: 60", "seconds: 600")
    spec = write_experiment(folder / "spec", spec=text)
    RunDirectory.create(folder / "run", load_experiment(spec), text).close()
    return folder / "run"


def facts(run: Path, kind: str):
    return [fact for fact in RunView.open(run).facts() if fact.kind == kind]


@pytest.mark.slow
@pytest.mark.usefixtures("two_gpus")
def test_two_gpus_one_journal_and_a_bench_killed_in_between(tmp_path, monkeypatch):
    from cluster.fleets.actors import ActorBench
    from cluster.fleets.ray import open_ray_fleet

    run = begin(tmp_path)
    opened, processes = [], []
    ready = ActorBench.ready

    async def recorded(bench):
        processes.append(await ready(bench))
        return processes[-1]

    monkeypatch.setattr(ActorBench, "ready", recorded)

    async def opener(backend):
        opened.append(await open_ray_fleet(backend, gpus=True))
        return opened[0]

    async def follow():
        killed = False
        async for progress in SearchRun(RunProcess(run, opener)).progress():
            if progress.finished and not killed:
                killed = True
                os.kill(int(processes[0].rpartition("/")[2]), signal.SIGKILL)
        assert killed

    asyncio.run(follow())
    assert opened[0].bench_slots == 2
    finished = facts(run, "trial.finished")
    assert sorted(fact.trial for fact in finished) == list(range(6))
    assert all(isinstance(fact.outcome, Measured) for fact in finished)
    assert len(facts(run, "run.finished")) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("two_gpus")
def test_the_one_bench_comes_back_though_others_hold_every_core(tmp_path, monkeypatch):
    import ray

    from cluster.fleets import ray as fleets
    from cluster.fleets.actors import ActorBench

    class Others:
        def here(self):
            return True

    def hold(**resources):
        other = ray.remote(**resources)(Others).remote()
        assert ray.get(other.here.remote(), timeout=60)
        return other

    run, processes = begin(tmp_path), []
    others = [hold(num_gpus=1, num_cpus=1), hold(num_cpus=2)]  # one core is left, for the bench
    ready = ActorBench.ready

    async def recorded(bench):
        process = await ready(bench)
        if process not in processes:
            processes.append(process)
        return process

    monkeypatch.setattr(ActorBench, "ready", recorded)

    async def opener(backend):
        fleet = await fleets.open_ray_fleet(backend, gpus=True)
        assert (fleet.bench_slots, ray.available_resources().get("CPU", 0)) == (1, 0)
        return fleet

    async def follow():
        async for progress in SearchRun(RunProcess(run, opener)).progress():
            if progress.finished and len(processes) == 1:
                os.kill(int(processes[0].rpartition("/")[2]), signal.SIGKILL)
                processes.append("killed")

    try:
        asyncio.run(follow())
    finally:
        for other in others:
            ray.kill(other)
    _, killed, *again = processes
    assert (killed, len(again)) == ("killed", 1)
    finished = facts(run, "trial.finished")
    assert sorted(fact.trial for fact in finished) == list(range(6))
    assert all(isinstance(fact.outcome, Measured) for fact in finished)
    assert facts(run, "work.lost")


@pytest.mark.parametrize(
    ("job", "words"),
    [({}, "resume"), ({"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}, "submit --resume")],
)
def test_a_driver_that_ray_killed_for_want_of_memory_is_no_bug_and_can_be_resumed(
    monkeypatch, job, words
):
    from ray.exceptions import OutOfMemoryError

    from cluster.jobs.ray_driver import driver_lost

    for name, value in job.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EnvironmentProblem) as problem, resume_hint(Path("runs/a")):
        raise driver_lost(OutOfMemoryError("1 worker was killed\nmore"))
    told = str(problem.value)
    assert (problem.value.exit_code, told.count("\n")) == (3, 0)
    assert "OutOfMemoryError: 1 worker was killed" in told
    assert told.endswith(f"continue with: kernelwright {words} runs/a")


def test_a_driver_whose_node_lacks_the_package_is_told_so():
    from ray.exceptions import ActorDiedError, RayTaskError

    from cluster.jobs.ray_driver import driver_lost

    trace = "RuntimeError: failed to import\nModuleNotFoundError: No module named 'cluster'"
    problem = driver_lost(ActorDiedError(RayTaskError("Driver", trace, ImportError())))
    assert type(problem) is EnvironmentProblem, "there is nothing to be continued"
    assert "No module named 'cluster': the Python that runs Ray there lacks it" in str(problem)
    assert "`kernelwright submit`" in str(problem)


def test_a_ray_that_is_gone_is_told_in_one_line(monkeypatch):
    from cluster.jobs import ray_driver

    monkeypatch.setattr(ray_driver, "address", lambda: f"127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(EnvironmentProblem, match=r"lost the Ray at 127\.0\.0\.1:\d+: .*refused"):
        ray_driver.gpus()


@pytest.mark.slow
def test_the_doctor_joins_the_cluster_that_a_run_would(ray_cluster):
    told = subprocess.run(
        command("doctor"),
        cwd=ROOT,
        env=os.environ | {"RAY_ADDRESS": ray_cluster.address},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    extent = rf"^ray +{ray_cluster.address}: nodes: \d, processors: \d, "
    assert re.search(extent, told.stdout, re.M)
    node = r"^node +[\d.]+ \(.*\): \d+ processors, 0 GPUs of Ray; opencl:0"
    assert re.search(node, told.stdout, re.M)


def test_a_second_interrupt_while_ray_starts_waits_until_it_has_started(monkeypatch):
    from cluster.jobs import own_ray

    begun, leaves = [], threading.Event()

    @contextmanager
    def slow(_settings):
        assert leaves.wait(faults.PATIENCE)
        begun.append("up")
        yield
        begun.append("ended")

    def interrupted_once(future):
        if not leaves.is_set():
            leaves.set()
            raise KeyboardInterrupt
        until_done(future)

    monkeypatch.setattr(own_ray, "connected", slow)
    monkeypatch.setattr(own_ray, "until_done", interrupted_once)
    with pytest.raises(KeyboardInterrupt), own_ray.started(Settings.read({})):
        raise KeyboardInterrupt
    assert begun[:1] == ["up"]
    faults.until(lambda: begun == ["up", "ended"])


def test_a_ray_that_dies_while_it_starts_is_given_up(monkeypatch):
    from cluster.jobs import own_ray

    ends = threading.Event()

    @contextmanager
    def hanging(_settings):
        assert ends.wait(faults.PATIENCE)
        yield

    monkeypatch.setattr(own_ray, "connected", hanging)
    monkeypatch.setattr(own_ray, "ended_while_starting", lambda _: "gcs_server")
    monkeypatch.setattr(own_ray, "check_unused", lambda: None)  # another test may use Ray
    with (
        pytest.raises(RunInterrupted, match="its process gcs_server ended"),
        own_ray.started(Settings.read({})) as starting,
    ):
        starting.wait()
    with pytest.raises(EnvironmentProblem, match=r"an earlier Ray .*: restart the program"):
        own_ray.check_free()
    ends.set()
    faults.until(lambda: "ray" not in [thread.name for thread in threading.enumerate()])
    own_ray.check_free()


def test_a_process_of_an_earlier_ray_is_not_taken_for_one_that_starts(tmp_path):
    from cluster.fleets.head_calls import ended_while_starting, ray_children

    program = tmp_path / "raylet"
    program.symlink_to("/bin/true")
    with subprocess.Popen([program]) as earlier:
        os.waitid(os.P_PID, earlier.pid, os.WEXITED | os.WNOWAIT)
        known = ray_children()
        assert (ended_while_starting(known), ended_while_starting({})) == ("", "raylet")


def test_a_ray_that_died_while_it_started_says_why(tmp_path, monkeypatch):
    from cluster.fleets.head_calls import died_while_starting

    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert "raylet ended while Ray started; on a busy machine" in str(died_while_starting("raylet"))
    logs = tmp_path / "ray" / f"session_1_{os.getpid()}" / "logs"
    logs.mkdir(parents=True)
    (logs / "raylet.err").write_text("[C] (raylet) a.cc:3: Check failed: has_value() Timed out\n*")
    told = str(died_while_starting("raylet"))
    assert "ended while Ray started (has_value() Timed out); on a busy machine try again" in told
    assert "Ray ends it within a minute" not in told
    assert "Ray ends it within a minute" in str(died_while_starting("gcs_server"))


@pytest.mark.parametrize("address", [None, "10.0.0.1:6379"])
def test_a_program_that_uses_ray_is_told_so_before_there_is_a_run_directory(
    tmp_path, monkeypatch, address
):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr("cluster.jobs.ray_driver.check_reachable", lambda _: None)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    spec = write_experiment(tmp_path / "spec")
    with pytest.raises(EnvironmentProblem, match=r"already uses Ray, .* or use fleet='local'"):
        tune(spec, fleet="ray", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_ray_of_its_own_leaves_the_heap_of_a_program_unfrozen_and_the_program_may_use_ray(
    tmp_path,
):
    spec, run = write_experiment(tmp_path / "spec"), tmp_path / "run"
    program = (
        "import gc, sys, threading, ray, kernelwright\n"
        "kernelwright.tune(sys.argv[1], fleet='ray', trials=1, run_dir=sys.argv[2])\n"
        "print(gc.get_freeze_count())\n"
        "[thread.join() for thread in threading.enumerate() if thread.name == 'ray']\n"
        "ray.init(address='local', include_dashboard=False, num_cpus=1)\n"
        "kernelwright.tune(sys.argv[1], fleet='ray', run_dir=sys.argv[2] + '2')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", program, spec, run],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "0\n", done.stderr
    assert "EnvironmentProblem: this program already uses Ray" in done.stderr
    assert not (tmp_path / "run2").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_ray_starts_it_says_how_to_continue(tmp_path, number):
    spec, run = write_experiment(tmp_path / "spec"), tmp_path / "run"
    process = subprocess.Popen(
        command("run", spec, "--fleet", "ray", "--run-dir", run),
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        stderr=subprocess.PIPE,
        text=True,
    )
    faults.until(lambda: faults.processes("gcs_server", process.pid))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (128 + number, False), errors
    assert errors.endswith(
        "kernelwright: interrupted; everything measured is kept; continue with: "
        f"kernelwright resume {run}\n"
    )


@pytest.mark.slow
def test_interrupted_on_a_ray_of_its_own_it_can_be_resumed_and_leaves_no_process(tmp_path):
    run = faults.begin(tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    process = subprocess.Popen(
        command("resume", run),
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    faults.until(lambda: faults.finished_count(run) or process.poll() is not None)
    begun = faults.below(process.pid)
    assert len(faults.processes("ray::", process.pid)) > 2
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (130, False), errors
    assert f"kept; continue with: kernelwright resume {run}\n" in errors
    faults.until(lambda: not any(Path(f"/proc/{one}").exists() for one in begun))


@pytest.mark.slow
def test_a_ray_of_its_own_ends_with_the_run_and_no_file_of_theirs_holds_a_key(tmp_path):
    run = tmp_path / "run"
    sessions = set(SESSIONS.glob("session_*"))
    ours = ("RAY_ADDRESS", "RAY_AUTH_MODE")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    secrets = {"SOME_API_KEY": "secret-of-the-user", "OPENAI_API_KEY": KEY}
    with serving(
        fails(429, f"slow down, {KEY}", retry_after="0"),
        answers(completion(f"{KEY}\n{fenced(SUGGESTION)}")),
        answers(completion(fenced(DRAFT, FAMILY))),
    ) as server:
        agents = f"agents: {{rounds: 1, base_url: '{server.url}'}}\n"
        text = SPEC.replace("template: template.yaml\n", agents)
        spec = write_experiment(tmp_path / "spec", spec=text)
        result = subprocess.run(
            command(
                *("run", spec, "--run-dir", run, "--model", "openai/gpt-4o-mini"),
                *("--allow-endpoint", "127.0.0.1"),
            ),
            cwd=ROOT,
            env=environment | secrets,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert set(server.authorizations) == {f"Bearer {KEY}"}
    assert result.returncode == 0, result.stderr
    assert facts(round_path(run, 1), "run.finished")
    assert "kernelwright: outcome=" in result.stdout.splitlines()[-1]
    new = set(SESSIONS.glob("session_*")) - sessions
    assert new
    written = [path for folder in (run, *new) for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 20
    held = [result.stdout.encode(), result.stderr.encode(), *(p.read_bytes() for p in written)]
    assert not any(secret.encode() in data for secret in secrets.values() for data in held)
