"""One Ray for the whole session."""

import os
import random
import shutil
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.kernels import SLOW_KERNEL, SPEC, kernelwright, write_experiment

START_SECONDS = 180
"""How long a start of Ray may take."""

# Before anything imports ray, which reads it then. Only tests do without the token.
os.environ["RAY_AUTH_MODE"] = "disabled"
# No processes before they are wanted, and no statistics: two cores have enough to do.
os.environ |= {
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A dead node is noticed after five seconds, not fifteen, but one that starts is left alone.
    "RAY_health_check_initial_delay_ms": "15000",
    "RAY_health_check_period_ms": "1000",
    # A start takes longer than Ray's 30 and 60 s where other tests load the machine.
    "RAY_gcs_server_port_wait_time_s": str(START_SECONDS),
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(START_SECONDS),
}
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


PORTS = range(20_000, 32_768)
"""Below those that Linux gives to connections, and to other Rays, before this one listens."""


def free_ports(count):
    """Ports that nobody listens on, all different."""
    found = []
    while len(found) < count:
        port = random.choice(PORTS)
        with socket.socket() as one, suppress(OSError):
            one.bind(("", port))
            found += [port] if port not in found else []
    return found


def start_ray(*, dashboard=False):
    """A head with two cores; with its dashboard it takes jobs."""
    from ray.cluster_utils import Cluster

    # Another Ray on this machine has its dashboard and its agents on the usual ports.
    ports = (
        "dashboard_port",
        "dashboard_agent_listen_port",
        "metrics_agent_port",
        "runtime_env_agent_port",
    )
    cluster = Cluster()
    cluster.add_node(
        wait=False,
        num_cpus=2,
        num_gpus=0,
        include_dashboard=dashboard,
        include_log_monitor=False,
        no_monitor=True,
        **dict(zip(ports, free_ports(len(ports)), strict=True)),
    )
    cluster.wait_for_nodes(timeout=START_SECONDS)
    return cluster


def drain(cluster, node_id, seconds=120):
    """What ``ray drain-node`` does: the node is taken away after so many seconds at most."""
    from ray._raylet import GcsClient
    from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION

    deadline = int((time.time() + seconds) * 1000)
    told = GcsClient(address=cluster.address).drain_node(
        node_id, DRAIN_NODE_REASON_PREEMPTION, "preempted", deadline
    )
    assert told[0], told


@pytest.fixture(params=range(int(os.environ.get("FAULT_TIMES", "1"))))
def fault_time(request):
    """Which of so many times the test of a fault is run."""


@pytest.fixture(scope="session")
def ray_cluster():
    """The one Ray of this process, which has joined it."""
    import ray

    cluster = start_ray()
    ray.init(address=cluster.address, namespace="kernelwright", log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def two_gpus(ray_cluster):
    """One more node, with two GPUs that are not there."""
    ray_cluster.add_node(wait=False, num_cpus=2, num_gpus=2)
    ray_cluster.wait_for_nodes(timeout=START_SECONDS)
    return ray_cluster


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """The directory of a run with more trials than configurations, and what its command said."""
    folder = tmp_path_factory.mktemp("finished")
    spec = write_experiment(
        folder / "spec",
        spec=SPEC.replace("trials: 6,", "trials: 60,").replace("processes: 2", "processes: 4"),
        kernel=SLOW_KERNEL,
    )
    result = kernelwright("run", spec, "--fleet", "local", "--run-dir", folder / "run")
    assert result.returncode == 0, result.stderr
    return folder / "run", result


@pytest.fixture(scope="session")
def finished_rounds(tmp_path_factory):
    """The directory of a run of two rounds over a simulated fleet, and its pictures."""
    from tests.cluster.test_agent_run import begin, follow

    path = begin(tmp_path_factory.mktemp("rounds") / "run")
    return path, follow(path)


@pytest.fixture
def run(finished_rounds, tmp_path):
    """A copy of it, to be changed."""
    return shutil.copytree(finished_rounds[0], tmp_path / "run")
