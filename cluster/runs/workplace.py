"""Where a run executes: in this process, on a Ray cluster, or on a Ray started for it.

Only on a cluster that others started does the run need a driver actor. A Ray that is started here
ends with this process, which drives the run itself. Owns what is noticed before Ray is started, and
when that is. Shows no progress.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from cluster.cli.console import Update, say
from cluster.commands.find_spec import machine_has_gpu
from cluster.fleets.local import choose, open_local_fleet
from cluster.fleets.target import open_target_fleet
from cluster.runs.agent_run import open_run
from cluster.runs.placement import Placement
from cluster.runs.run_process import FleetOpener, RunProcess
from cluster.settings import Settings, environment_for_ray, take_keys
from tuner.device import Backend
from tuner.engine.session import StopReason
from tuner.search.hyperopt_proposer import import_hyperopt
from workers.devices.discover import list_devices


class Running(Protocol):
    """A run in this process, or in a driver actor of a cluster."""

    def stop(self, reason: StopReason) -> None:
        """Ask the run to end."""
        ...

    def progress(self) -> AsyncIterator[Update]:
        """Run to the end, yielding progress."""
        ...


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a run executes: whether a GPU is there, and how to start on a run directory.

    ``check`` raises :class:`EnvironmentProblem` if a backend surely has no device there.
    """

    has_gpu: Callable[[], bool]
    check: Callable[[Backend], None]
    start: Callable[[Path], Running]


def workplace(where: Placement, settings: Settings) -> AbstractContextManager[Workplace]:
    """This process, or Ray. A cluster is joined at once; a local Ray is started when needed.

    A target is compiled for in this process.
    """
    if where.fleet == "local" or where.target is not None:
        return _here(where, settings)
    return _on_cluster(where, settings) if settings.ray_address else _on_own_ray(where, settings)


@contextmanager
def _here(where: Placement, settings: Settings) -> Iterator[Workplace]:
    target = where.target
    opener: FleetOpener = partial(
        open_local_fleet, wanted=where.device, cache=settings.cache, share=where.share
    )
    if target is not None:
        opener = partial(open_target_fleet, target=target, cache=settings.cache)
    asking = replace(where.access, keys=take_keys())
    # It takes as long as looking for devices, which another process does meanwhile.
    threading.Thread(target=import_hyperopt, name="import").start()
    yield Workplace(
        lambda: target is not None or machine_has_gpu(),
        _check_machine if target is None else lambda _: None,
        lambda folder: open_run(RunProcess(folder, opener, settings.job), asking),
    )


@contextmanager
def _on_cluster(where: Placement, settings: Settings) -> Iterator[Workplace]:
    with environment_for_ray(settings) as keys:
        from cluster.jobs import ray_driver

        def start(folder: Path) -> Running:
            return ray_driver.RemoteRun(
                folder, where, keys=keys, cache=settings.cache, job=settings.job
            )

        with ray_driver.connected(settings):
            yield Workplace(ray_driver.has_gpu, ray_driver.check_gpu, start)


@contextmanager
def _on_own_ray(where: Placement, settings: Settings) -> Iterator[Workplace]:
    def check(backend: Backend) -> None:
        # Imported now, while other processes look for devices.
        from cluster.jobs import own_ray

        _check_machine(backend)
        own_ray.check_free()

    def start(folder: Path) -> Running:
        from cluster.jobs import own_ray, own_run, ray_driver

        say("starting Ray on this machine (about five seconds)")
        ray = stack.enter_context(own_ray.started(settings))
        # It takes a second, and Ray needs longer. Ctrl-C must not leave half of it imported.
        threading.Thread(target=import_hyperopt, name="import").start()
        ray.wait()
        # No other run uses a Ray that was started for this one: it keeps its GPUs.
        alone = replace(where, share=replace(where.share, keep=True))
        driver = ray_driver.Driver(folder, alone, keys=keys, cache=settings.cache, job=settings.job)
        return own_run.OwnRun(folder, driver)

    with ExitStack() as stack:
        keys = stack.enter_context(environment_for_ray(settings))
        yield Workplace(machine_has_gpu, check, start)


def _check_machine(backend: Backend) -> None:
    """Fail before Ray is started, and before there is a run directory, where there is no device."""
    choose(list_devices((backend,)), backend, None)
