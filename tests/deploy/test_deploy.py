"""The files under deploy/ parse and fit their schemas; the Slurm script resumes what it left."""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import typer
import yaml

from cluster.cli.main import app
from cluster.watching.metrics import OF_A_DRIVER

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SBATCH = DEPLOY / "slurm" / "kernelwright.sbatch"
COMMANDS = set(typer.main.get_command(app).commands)

STUBS = {
    "scontrol": 'echo "$*" >>"$CALLED"; [ "$1" != show ] || echo node1',
    "ray": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "hostname": "echo 192.0.2.7 192.0.2.8",
    # Drops its own options, which all have an equals sign, and runs the rest.
    "srun": 'while case "$1" in --*) true;; *) false;; esac; do shift; done; exec "$@"',
    "kernelwright": """
echo "$*" >>"$CALLED"
run="$KERNELWRIGHT_RUNS/slurm-$SLURM_JOB_ID"
case "$1" in
  run) mkdir "$run"; until [ -e "$run/stop" ]; do sleep 0.01; done; exit 130 ;;
  resume) touch "$run/over" ;;
  stop) touch "$run/stop" ;;
  status) [ -e "$run/over" ] && echo '{"state": "finished"}' || echo '{"state": "interrupted"}' ;;
esac""",
}


@pytest.fixture
def slurm(tmp_path):
    """Starts the script as Slurm would, with stand-ins for its commands."""
    for name, body in STUBS.items():
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(f"#!/bin/sh\n{body}\n")
        stub.chmod(0o755)
    given = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CALLED": str(tmp_path / "called"),
        "KERNELWRIGHT_RUNS": str(tmp_path / "runs"),
        "SLURM_JOB_ID": "71",
        "SLURM_JOB_NODELIST": "node1",
        "SLURM_JOB_NUM_NODES": "1",
    }

    def start():
        words = ["bash", SBATCH, "spec.yaml", "--seconds", "60"]
        return subprocess.Popen(words, env=given, cwd=tmp_path)

    return tmp_path, start


def called(folder: Path) -> list[str]:
    return (folder / "called").read_text().splitlines()


def test_before_its_time_limit_the_job_leaves_the_run_is_queued_again_and_resumes(slurm):
    folder, start = slurm
    run = folder / "runs" / "slurm-71"
    first = start()
    until = time.monotonic() + 30
    while not run.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    first.send_signal(signal.SIGUSR1)
    assert first.wait(30) == 130
    assert called(folder) == [
        "show hostnames node1",
        f"run spec.yaml --run-dir {run} --seconds 60",
        f"stop --now {run}",
        f"status {run} --json",
        "requeue 71",
    ]
    (folder / "called").unlink()
    assert start().wait(30) == 0
    assert called(folder) == ["show hostnames node1", f"resume {run}", f"status {run} --json"]
    assert not list((folder / "runs").glob(".token*"))


def test_the_slurm_script_asks_for_a_signal_and_to_be_queued_again():
    text = SBATCH.read_text()
    assert subprocess.run(["bash", "-n", SBATCH], check=False).returncode == 0
    assert {"--requeue", "--signal=B:USR1@180"} <= set(re.findall(r"^#SBATCH (\S+)", text, re.M))


def test_the_cluster_s_file_fits_ray_s_schema_and_guards_it_with_a_token():
    import jsonschema
    import ray

    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    config = yaml.safe_load((DEPLOY / "ray" / "cluster.yaml").read_text())
    jsonschema.validate(config, json.loads(schema.read_text()))
    starts = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    starts = [one for one in starts if "ray start" in one]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in one for one in starts)
    assert len(config["provider"]["worker_ips"]) == config["max_workers"]
    env = yaml.safe_load((DEPLOY / "ray" / "runtime_env.yaml").read_text())
    ray.runtime_env.RuntimeEnv(**env)


def test_the_ray_job_has_gpus_for_its_workers_alone_and_a_token():
    job = yaml.safe_load((DEPLOY / "kuberay" / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    (group,) = cluster["workerGroupSpecs"]
    (worker,) = group["template"]["spec"]["containers"]
    assert "nvidia.com/gpu" not in head["resources"]["limits"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    claims = {v["name"] for v in cluster["headGroupSpec"]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in head["volumeMounts"]} == claims
    script = shlex.split(job["spec"]["entrypoint"])[-1]
    assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_images_install_extras_that_exist_and_do_not_run_as_root(kind):
    import tomllib

    text = (DEPLOY / "docker" / f"Dockerfile.{kind}").read_text()
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert text.rindex("USER tuner") > text.rindex("RUN ")


def test_every_command_that_deploy_names_exists():
    files = [p for p in DEPLOY.rglob("*") if p.is_file() and "experiments" not in p.parts]
    text = "\n".join(path.read_text() for path in files)
    named = set(re.findall(r"(?:kernelwright|-m cluster) ([a-z]+)\b", text))
    named -= {"of", "on"}
    assert named >= {"run", "resume", "stop", "status"}
    assert named <= COMMANDS


def test_the_dashboard_shows_every_metric_of_a_driver_and_no_other():
    board = json.loads((DEPLOY / "grafana" / "kernelwright.json").read_text())
    panels = board["panels"]
    variables = board["templating"]["list"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    known = {f"ray_{metric.name}": {"run", *metric.labels} for metric in OF_A_DRIVER}
    named = set()
    for query in (*asked, variables[1]["query"]["query"]):
        (metric,) = re.findall(r"\bray_\w+", query)
        named.add(metric)
        labels = {
            word for group in re.findall(r"by \(([^)]*)\)", query) for word in group.split(", ")
        }
        labels |= set(re.findall(r"(\w+)=~?\"", query))
        assert labels <= known[metric], query
        assert metric.endswith("_total") or "rate(" not in query, "a gauge has no rate"
    assert named == set(known)
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(covered) == len(set(covered)), "panels overlap"
    assert {x for x, _ in covered} == set(range(24))
