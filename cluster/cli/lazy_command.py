"""Commands whose code is imported when they run, so that ``--help`` answers at once."""

import gc
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from itertools import chain
from typing import ParamSpec

import typer

from cluster.settings import Settings
from tuner.backends.registry import backends
from workers.backends.registry import preloaded_modules
from workers.forking import begin_server

_CHILDREN = (
    "workers.devices.discover",
    "workers.compilers.child",
    "workers.bench.child",
    "workers.reference",
)
"""What every run on this machine forks; first what looks for devices."""

P = ParamSpec("P")


def command(
    group: typer.Typer,
    target: str,
    name: str | None = None,
    *,
    runs_application: bool = False,
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a function's signature and docstring a command that calls ``cluster.commands.TARGET``.

    Args:
        group: which commands it belongs to.
        target: the command's module and function, imported when the command runs.
        name: what the user types; the function's name by default.
        runs_application: the words after the first that is no option are another command line.
    """
    context = {"allow_interspersed_args": False} if runs_application else None

    def register(declared: Callable[P, None]) -> Callable[P, None]:
        @wraps(declared)
        def call(*arguments: P.args, **options: P.kwargs) -> None:
            module, _, function = target.partition(".")
            if "fleet" in options:
                _begin_looking(options)
            run = getattr(import_module(f"cluster.commands.{module}"), function)
            if not gc.isenabled():  # main disabled it
                gc.freeze()  # modules last: to look through them stops all threads for 0.1 s
                gc.enable()
            run(*arguments, **options)

        return group.command(name, context_settings=context)(call)

    return register


def _begin_looking(options: Mapping[str, object]) -> None:
    """Begin what other processes can do while this one imports a command: it takes as long.

    Devices of this machine are looked for, unless a cluster has them, and children begun for what
    a run does here. On Ray its actors have children of their own.
    """
    local, spec = options["fleet"] == "local", options.get("spec")
    if not local and (spec is None or Settings.read().ray_address is not None):
        return
    packages = (preloaded_modules(one.name) for one in backends())
    begin_server([*(_CHILDREN if local else _CHILDREN[:1]), *chain.from_iterable(packages)])
    if isinstance(spec, str) and not options.get("target"):
        from cluster.commands.find_spec import begin_looking_for_devices

        begin_looking_for_devices(spec)
