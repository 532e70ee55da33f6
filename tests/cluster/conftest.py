"""One Ray for the whole session: a head, and two nodes with a GPU that is not there."""

import os
import sys
from pathlib import Path

import pytest

# Before anything imports ray, which reads it then. Only tests do without the token.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="session")
def ray_cluster():
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": True},
    )
    for _ in range(2):
        cluster.add_node(num_cpus=1, num_gpus=1)
    ray.init(address=cluster.address, namespace="kernelwright", log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
