"""A launcher under a tool, as its parent sees it: begun early, it waits for its jobs.

To import the driver's package takes longer than to launch a kernel, and needs no device.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from workers.backends.registry import preloaded_modules
from workers.checkers import launcher
from workers.checkers.tool import Tool
from workers.child_environment import module_environment, private_environment
from workers.process_tree import kill_group, kill_tagged, tree_tag

SECONDS = 90.0
"""A tool is stopped after this."""
_POLL_SECONDS = 0.05
_MAX_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A tool's log of one process, ``None`` where it wrote none, and how it failed, if it did."""

    log: str | None
    problem: str


class WatchedLauncher:
    """One launcher, started at once. Ends with :meth:`launch`, :meth:`close` or ``abort``."""

    def __init__(self, tool: Tool, backend: str, index: int, abort: threading.Event) -> None:
        self.tool = tool
        self._abort = abort
        self._mark = tree_tag()
        environment = module_environment(os.environ) | self._mark
        environment |= private_environment(backend, tool.log.parent)
        environment["XDG_CACHE_HOME"] = str(tool.log.parent)
        words = ("-P", "-m", launcher.__name__, str(index))
        self._output = tool.log.with_name(f"{tool.log.name}.out")
        with self._output.open("wb") as stream:
            self._process = subprocess.Popen(
                [*tool.command, sys.executable, *words, *preloaded_modules(backend)],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._input = self._process.stdin

    def launch(self, jobs: Sequence[Path]) -> Launched:
        """Have it launch these jobs, one after the other, and wait for its end."""
        with contextlib.suppress(BrokenPipeError):  # the exit code says more
            self._input.write("".join(f"{path}\n" for path in jobs).encode())
        self._end_input()
        ends = time.monotonic() + SECONDS
        try:
            while (
                self._process.poll() is None
                and time.monotonic() < ends
                and not self._abort.is_set()
            ):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_POLL_SECONDS)
            code = self._process.poll()
        finally:
            self.close()
        problem = ""
        if code != 0:
            lines = self._output.read_text(errors="replace").strip().splitlines()
            ending = f"stopped after {SECONDS:.0f} s" if code is None else f"exit {code}"
            problem = ": ".join([ending, *(line[:_MAX_CHARACTERS] for line in lines[-1:])])
        log = self.tool.log
        return Launched(
            log=log.read_text(errors="replace") if log.exists() else None, problem=problem
        )

    def close(self) -> None:
        """End it and its descendants, if it has not ended."""
        kill_group(self._process.pid)
        self._process.wait()
        kill_tagged(self._mark)
        self._end_input()

    def _end_input(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._input.close()


class Launchers:
    """The launchers of one device's tools, some of them begun before their jobs are known.

    They log to ``folder``, and end if ``abort`` is set.
    """

    def __init__(self, backend: str, index: int, folder: Path, abort: threading.Event) -> None:
        self.folder = folder
        self._device = backend, index, abort
        self._place: TemporaryDirectory[str] | None = None
        self._begun: dict[str, WatchedLauncher] = {}

    def begin(self, tools: Callable[[Path], Sequence[Tool]]) -> None:
        """Begin one for each tool that takes all winners together, unless that was done before.

        ``tools`` log to the path that it is given.
        """
        if self._place is not None:
            return
        self._place = TemporaryDirectory(dir=self.folder)
        self._begun = {
            tool.name: WatchedLauncher(tool, *self._device)
            for tool in tools(Path(self._place.name, "ahead"))
            if tool.together
        }

    def launch(self, tool: Tool, jobs: Sequence[Path]) -> Launched:
        """Have a tool's launcher do these jobs: the one that was begun, or another."""
        return (self._begun.pop(tool.name, None) or WatchedLauncher(tool, *self._device)).launch(
            jobs
        )

    def close(self) -> None:
        """End those that have launched nothing."""
        for one in self._begun.values():
            one.close()
        self._begun.clear()
        if self._place is not None:
            self._place.cleanup()
            self._place = None
