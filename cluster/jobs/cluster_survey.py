"""A report of each node of a Ray cluster, made by a process of its own.

Joining a cluster may end a process inside Ray's C++ code, with a trace and without an exception.
The process prints JSON; :func:`survey` runs it and turns any other end into words.
"""

import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cluster.jobs.job_client import check_reachable
from cluster.jobs.node_report import REPORT, NodeReport, node_report
from cluster.ray_problems import ray_problem
from cluster.settings import Settings, environment_for_ray, show_gpus
from tuner.errors import EnvironmentProblem

NODE_SECONDS = 60.0
"""How long a node may take for its report, the start of a worker included."""

SURVEY_SECONDS = 240.0
"""How long the whole survey may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster, with the GPUs that Ray counts: its report, or why there is none."""

    address: str
    gpus: int
    report: NodeReport | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The nodes that are alive, and in words what the cluster has, or why it cannot be joined."""

    cluster: str
    nodes: tuple[Node, ...] = ()


_SURVEY = TypeAdapter(Survey)


def survey(settings: Settings) -> Survey:
    """The survey of the cluster that a run would join, made by another process."""
    where = f"cannot use {settings.ray_address}"
    try:
        check_reachable(settings.ray_address or "")
        done = subprocess.run(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=SURVEY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Survey(cluster=f"{where}: no answer within {SURVEY_SECONDS:.0f} s")
    except OSError as error:
        return Survey(cluster=f"{where}: {error}")
    return read_survey(where, done)


def read_survey(where: str, done: subprocess.CompletedProcess[str]) -> Survey:
    """What the other process printed, or how it ended instead."""
    with suppress(ValidationError):
        return _SURVEY.validate_json(done.stdout)
    code = done.returncode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return Survey(cluster=f"{where}: Ray's client {how}: is there a Ray node on this machine?")


def _survey(settings: Settings) -> Survey:
    """The survey, made by this process."""
    with environment_for_ray(settings):
        from cluster.jobs import ray_driver

        try:
            with ray_driver.connected(settings):
                return Survey(
                    cluster=f"{settings.ray_address}: {ray_driver.extent()}", nodes=_nodes()
                )
        except EnvironmentProblem as problem:
            return Survey(cluster=str(problem))


def _nodes() -> tuple[Node, ...]:
    """Each node's report, asked for at once; a task takes no processor from a run."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = [node for node in ray.nodes() if node["Alive"]]
    asked = [
        ray.remote(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )(_reported).remote()
        for node in alive
    ]
    ray.wait(asked, num_returns=len(asked), timeout=NODE_SECONDS)
    found = []
    for node, answer in zip(alive, asked, strict=True):
        report, problem = None, ""
        try:
            report = REPORT.validate_json(ray.get(answer, timeout=0))
        except ray.exceptions.GetTimeoutError:
            problem = f"no answer within {NODE_SECONDS:.0f} s"
        except Exception as error:  # whatever is missing on that node
            problem = ray_problem(getattr(error, "cause", None) or error)[:300]
        found.append(
            Node(
                address=node["NodeManagerAddress"],
                gpus=int(node["Resources"].get("GPU", 0)),
                report=report,
                problem=problem,
            )
        )
    return tuple(found)


def _reported() -> bytes:
    """What a node's task answers."""
    show_gpus()
    settings = replace(Settings.read(), in_job=True)  # for the folder where jobs make their runs
    return REPORT.dump_json(node_report(settings))


def main() -> None:
    """Print the survey."""
    sys.stdout.buffer.write(_SURVEY.dump_json(_survey(Settings.read())))
