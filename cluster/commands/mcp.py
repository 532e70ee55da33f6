"""``mcp``: serves the tools of :mod:`cluster.mcp_server` over stdin and stdout."""

from importlib.util import find_spec
from pathlib import Path

from tuner.errors import EnvironmentProblem, SpecError


def mcp(folder: Path) -> None:
    """Serve until stdin or stdout is closed; runs that were begun end then, and can be resumed.

    Raises:
        SpecError: there is no such folder.
        EnvironmentProblem: the extra ``mcp`` is not installed.
    """
    if not folder.is_dir():
        raise SpecError(f"{folder} is no folder: name the one that specs and runs are in")
    if find_spec("mcp") is None:
        raise EnvironmentProblem(
            "this command needs the package mcp: pip install '.[mcp]' in a clone of Kernelwright"
        )
    from cluster.mcp_server import make_server

    try:
        make_server(folder).run()
    except* BrokenPipeError:  # the client closed its end while a call was answered
        pass
