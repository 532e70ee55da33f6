"""What Ray exports of a run: the names that the dashboard asks for, and what was counted."""

import os
import re
import subprocess
import sys

import pytest

from tests.cluster.conftest import free_ports
from tests.cluster.kernels import ROOT

DRIVER = """
import sys, time, urllib.request
import ray
from cluster.jobs.ray_metrics import DriverMetrics
from tests.cluster.test_watch import FACTS
from tuner.journal.facts import BenchLost

port = int(sys.argv[1])
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False,
         _metrics_export_port=port)
metrics = DriverMetrics("a run")
half = len(FACTS) // 2
for fact in FACTS[:half]:
    metrics.counts.apply(fact)
metrics.publish(1.5)
for fact in (*FACTS[half:], BenchLost(bench="b", node="n", reason="died", benches=0)):
    metrics.counts.apply(fact)
metrics.publish(2.5, now=True)
until = time.monotonic() + 60
while time.monotonic() < until:
    time.sleep(0.5)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
            text = reply.read().decode()
    except OSError:
        continue
    if "kernelwright_benches_lost" in text:
        print(text)
        break
"""


@pytest.mark.slow
def test_ray_exports_what_was_counted_under_the_names_of_the_dashboard():
    told = subprocess.run(
        [sys.executable, "-c", DRIVER, str(free_ports(1)[0])],
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "RAY_enable_metrics_collection": "1",
            "RAY_metrics_report_interval_ms": "500",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    found = {}
    for line in told.stdout.splitlines():
        if match := re.fullmatch(r"ray_kernelwright_(\w+)\{(.*)\} (\S+)", line):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
            assert labels["run"] == "a run"
            found[match[1], labels.get("outcome", "")] = float(match[3])
    assert found["trials_total", "measured"] == 2, told.stderr
    assert found["trials_total", "rejected"] == 1
    assert found["best_speedup", ""] == 2.5
    assert found["benches", ""] == 0
    assert found["benches_lost_total", ""] == 1
    assert found["busy_seconds_total", ""] == pytest.approx(0.3, abs=0.01)
