"""``ray job submit`` from a checkout where nothing is installed."""

import shutil
import subprocess

from tests.cluster.kernels import ROOT, write_experiment
from tuner.run_directory import RunView

PACKAGES = ("agents", "cluster", "deploy", "tuner", "workers")


def test_a_submitted_job_needs_no_installation(tmp_path, ray_cluster):
    checkout = tmp_path / "checkout"
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "kernelwright.py", checkout)
    write_experiment(checkout / "mine")
    run = tmp_path / "run"
    address = f"http://{ray_cluster.head_node.address_info['webui_url']}"
    submit = ["ray", "job", "submit", "--address", address, "--working-dir", str(checkout), "--"]
    job = ["python", "-m", "cluster", "run", "mine/spec.yaml", "--run-dir", str(run)]
    result = subprocess.run(
        [*submit, *job], capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "kernelwright: outcome=" in result.stdout
    assert [fact.kind for fact in RunView.open(run).facts()][-1] == "run.finished"
