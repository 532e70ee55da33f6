"""``doctor``: this machine's devices, packages and cluster, and what is missing."""

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

import typer

from cluster.commands.find_spec import bundled_names
from cluster.settings import Settings, environment_for_ray
from tuner.backends.registry import backends
from tuner.device import Device
from tuner.errors import EnvironmentProblem
from workers.backends.registry import adapter_of
from workers.confinement import unprotected
from workers.devices.discover import Found, list_devices

PACKAGES = ("kernelwright", "ray", "numpy", "hyperopt", "litellm")


def doctor(*, as_json: bool) -> None:
    """Print devices and packages, and try to join the cluster that a run would join.

    Raises:
        EnvironmentProblem: there is no device.
    """
    found = list_devices()
    settings = Settings.read()
    cluster = _cluster(settings)
    sandbox = "; ".join(unprotected())
    checkers = {one.backend: _checkers(one.device) for one in found if one.device}
    packages = {name: _version(name) for name in PACKAGES}
    for backend in backends():
        names = (*backend.distributions, *backend.optional_distributions)
        packages |= {name: _version(name) for name in names}
    if as_json:
        report = {
            "python": platform.python_version(),
            "cpus": len(os.sched_getaffinity(0)),
            "ray_address": settings.ray_address,
            "ray": cluster,
            "sandbox": unprotected(),
            "checkers": checkers,
            "packages": packages,
            "devices": [_as_dict(one) for one in found],
            "experiments": bundled_names(),
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        typer.echo(f"python       {platform.python_version()} in {sys.prefix}")
        typer.echo(f"processors   {len(os.sched_getaffinity(0))}")
        typer.echo(f"ray          {cluster}")
        typer.echo(f"sandbox      {f'leaves open: {sandbox}' if sandbox else 'complete'}")
        for backend_name, words in checkers.items():
            typer.echo(f"checkers     {backend_name}: {words}")
        for name, version in packages.items():
            typer.echo(f"package      {name} {version or 'is not installed'}")
        for one in found:
            typer.echo(f"device       {_line(one)}")
        typer.echo(f"experiments  {', '.join(bundled_names())}")
    if not any(one.device for one in found):
        extras = (
            f"`pip install '.[{backend.extra}]'` in a clone of kernelwright for {backend.offers}"
            for backend in backends()
        )
        raise EnvironmentProblem(f"no device found: {', '.join(extras)}")


def _cluster(settings: Settings) -> str:
    """The cluster that a run would join, or why it cannot."""
    if settings.ray_address is None:
        return "RAY_ADDRESS is not set: a run starts its own Ray"
    try:
        with environment_for_ray(settings):
            from cluster import ray_driver

            with ray_driver.connected(settings):
                return f"{settings.ray_address}: {ray_driver.extent()}"
    except EnvironmentProblem as problem:
        return str(problem)


def _checkers(device: Device) -> str:
    """The memory and race checkers for a device, or how to get one."""
    adapter = adapter_of(device.backend)
    names = [tool.name for tool in adapter.checkers(device, Path())]
    return ", ".join(names) or adapter.checkers_missing


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _as_dict(one: Found) -> dict[str, object]:
    if one.device is None:
        return {"backend": one.backend, "problem": one.problem}
    return {
        "backend": one.backend,
        "index": one.index,
        "name": one.device.name,
        "arch": one.device.arch,
        "driver": one.device.driver,
    }


def _line(one: Found) -> str:
    if one.device is None:
        return f"{one.backend}: {one.problem}"
    return f"{one.backend}:{one.index} {one.device.name} ({one.device.driver})"
