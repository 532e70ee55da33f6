"""``doctor``: what this machine and each node of the cluster offer, and what is missing."""

import json
import sys
from collections.abc import Iterator

import typer

from cluster.commands.find_spec import bundled_names
from cluster.jobs.cluster_survey import Node, Survey, survey
from cluster.jobs.node_report import READY, REPORT, NodeReport, node_report
from cluster.settings import Settings
from tuner.backends.registry import backends
from tuner.errors import EnvironmentProblem
from tuner.printable import counted
from workers.devices.discover import Found


def doctor(*, as_json: bool) -> None:
    """Print devices and packages here and on the nodes of the cluster that a run would join.

    Raises:
        EnvironmentProblem: there is no device.
    """
    settings = Settings.read()
    here = node_report(settings)
    cluster = Survey(cluster="RAY_ADDRESS is not set: a run starts its own Ray")
    if settings.ray_address:
        cluster = survey(settings)
    if as_json:
        typer.echo(json.dumps(_as_dict(settings, here, cluster), indent=2))
    else:
        for label, words in (*_lines(here), ("ray", cluster.cluster), *_nodes(here, cluster)):
            typer.echo(f"{label:<12} {words}")
        typer.echo(f"{'experiments':<12} {', '.join(bundled_names())}")
    reports = [here, *(node.report for node in cluster.nodes if node.report)]
    if not any(one.device for report in reports for one in report.devices):
        extras = (
            f"`pip install '.[{backend.extra}]'` in a clone of kernelwright for {backend.offers}"
            for backend in backends()
        )
        raise EnvironmentProblem(f"no device found: {', '.join(extras)}")


def _lines(report: NodeReport) -> Iterator[tuple[str, str]]:
    """This machine in full."""
    yield "kernelwright", report.version
    yield "python", f"{report.python} in {sys.prefix}"
    yield "processors", str(report.cpus)
    open_ = "; ".join(report.sandbox)
    yield "sandbox", f"leaves open: {open_}" if open_ else "complete"
    for label, found in (
        ("compiler", report.compilers),
        ("checkers", report.checkers),
        ("profiler", report.profilers),
    ):
        for backend, words in found.items():
            yield label, f"{backend}: {words}"
    for name, version in report.packages.items():
        yield "package", f"{name} {version or 'is not installed'}"
    yield "runs", report.runs
    for one in report.devices:
        yield "device", _device(one)


def _nodes(here: NodeReport, cluster: Survey) -> Iterator[tuple[str, str]]:
    """Each node of the cluster in a line, and a line for each thing that is amiss there."""
    for node in cluster.nodes:
        if node.report is None:
            yield "node", f"{node.address}: {node.problem}"
            continue
        report = node.report
        devices = ", ".join(_device(one) for one in report.devices if one.device) or "no device"
        extent = f"{counted(report.cpus, 'processor')}, {counted(node.gpus, 'GPU')} of Ray"
        yield "node", f"{node.address} ({report.host}): {extent}; {devices}"
        for problem in _amiss(here, node, report):
            yield "", problem


def _amiss(here: NodeReport, node: Node, report: NodeReport) -> Iterator[str]:
    """What differs from this machine, and what keeps the node from its work."""
    for what, there, wanted in (
        ("Kernelwright", report.version, here.version),
        ("Python", report.python.rpartition(".")[0], here.python.rpartition(".")[0]),
        ("Ray", report.packages.get("ray"), here.packages.get("ray")),
    ):
        if there != wanted:
            yield f"{what} is {there or 'missing'} there and {wanted} here"
    gpus = sum(one.device is not None and one.backend in _GPU_ONLY for one in report.devices)
    if node.gpus > gpus:
        yield f"Ray counts {node.gpus} GPUs, and {gpus} can be used"
    for one in report.devices:
        if one.problem and (node.gpus or one.backend not in _GPU_ONLY):
            yield _device(one)
    for backend, words in report.compilers.items():
        if words != READY:
            yield f"{backend} does not compile there: {words}"
    yield from (f"{name}: {words}" for name, words in report.profilers.items())
    if not report.runs.endswith(" is writable"):
        yield report.runs
    if not report.ray_token:
        yield "Ray asks for no token there: who reaches its ports can run code as its user"


_GPU_ONLY = frozenset(backend.name for backend in backends() if backend.gpu_only)


def _as_dict(settings: Settings, here: NodeReport, cluster: Survey) -> dict[str, object]:
    nodes = [
        {
            "address": node.address,
            "gpus": node.gpus,
            "problem": node.problem or None,
            "report": node.report and _flat(node.report),
        }
        for node in cluster.nodes
    ]
    return {
        **_flat(here),
        "ray_address": settings.ray_address,
        "ray": cluster.cluster,
        "nodes": nodes,
        "experiments": bundled_names(),
    }


def _flat(report: NodeReport) -> dict[str, object]:
    """A report as JSON data, with the names of its devices instead of all their limits."""
    plain: dict[str, object] = REPORT.dump_python(report, mode="json")
    return {**plain, "devices": [_device_dict(one) for one in report.devices]}


def _device_dict(one: Found) -> dict[str, object]:
    if one.device is None:
        return {"backend": one.backend, "problem": one.problem}
    return {
        "backend": one.backend,
        "index": one.index,
        "name": one.device.name,
        "arch": one.device.arch,
        "driver": one.device.driver,
    }


def _device(one: Found) -> str:
    if one.device is None:
        return f"{one.backend}: {one.problem}"
    return f"{one.backend}:{one.index} {one.device.name} ({one.device.driver})"
