"""The tools of ``kernelwright mcp``: a coding agent runs Kernelwright, and writes its templates.

Owns what each tool passes to the command line, and the runs that it began. A tool that measures is
a command in a child process, so every check and budget is the command's own. Files are named
relative to one folder, and none outside it is read or written for a name that the agent gives. All
that is awaited by polling is a file that another process writes.
"""

import asyncio
import secrets
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from agents.llm.mailbox import answer, pending, request_name
from agents.llm.port import Reply, Request
from agents.settings import MAILBOX, agent_settings
from cluster import child_command
from cluster.commands.find_spec import bundled_names
from cluster.commands.results import is_over, is_running
from kernelwright import __version__
from tuner.errors import KernelwrightError, NothingValid, SpecError
from tuner.run_directory import RunView, begun

INSTRUCTIONS = """\
Kernelwright tunes CUDA and OpenCL kernels. Write a spec (init), check it (validate), then run it.
With model="agent" the run asks you for templates: call brief, answer with submit, and repeat until
status says finished; then call report. A figure counts only if report calls it confirmed.
Runs end when this server ends, and can be resumed. Paths are relative to the server's folder.
"""

AGENT = "agent"
"""The model of a run that asks the caller of ``brief`` and ``submit``."""

LONGEST_WAIT = 300.0
"""Seconds that ``brief`` waits at most; clients give up on calls that take much longer."""

_POLL_SECONDS = 0.2
_END_SECONDS = 30.0
"""How long a run may take to end in order when the server does."""

_LINES = 20
"""Last lines of a run's output that ``status`` shows."""


@dataclass(slots=True)
class _Run:
    """A run in a child process, and the last lines that it printed."""

    child: Process
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    reading: "asyncio.Task[None] | None" = None

    async def read(self) -> None:
        """Keep the last lines until the process closes its output."""
        assert self.child.stdout
        while True:
            try:
                line = await self.child.stdout.readline()
            except ValueError:  # longer than the stream's buffer: it is not kept
                continue
            if not line:
                return
            self.lines.append(line.decode("utf-8", "replace").rstrip())

    async def ended(self) -> str:
        """Wait for the end; return the last lines."""
        await self.child.wait()
        if self.reading:
            await self.reading
        return "\n".join(self.lines)


class Tools:
    """What an agent can call, in the folder ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._runs: dict[Path, _Run] = {}

    async def validate(self, spec: str, target: str | None = None, fast: bool = False) -> str:
        """Check a spec: all errors with their lines, or its search space and estimated time.

        Compiles the baseline and some configurations and calls the reference, unless fast.
        target is an architecture such as sm_90, where this machine has no GPU.
        """
        options = [f"--target={target}"] if target else []
        options += ["--fast"] if fast else []
        return await _command("validate", self._spec(spec), *options, "--json")

    async def init(self, kernel: str, output: str, entry: str | None = None) -> str:
        """Write a spec for a kernel file (.cu, .cl) to output; guesses are marked '# guess'.

        entry names the kernel if the file has several. Read and correct every guess.
        """
        path = self._inside(output)
        options = [f"--entry={entry}"] if entry else []
        await _command("init", str(self._inside(kernel)), f"--output={path}", *options)
        return path.read_text(encoding="utf-8")

    async def run(
        self,
        spec: str,
        model: str = "auto",
        seconds: float | None = None,
        trials: int | None = None,
        fleet: Literal["local", "ray"] = "local",
    ) -> str:
        """Begin a run in the background; return its name for the other tools.

        model is who writes templates: agent (you, through brief and submit), auto, replay, none or
        a LiteLLM model id. seconds and trials replace the spec's budget.
        """
        name = f"{Path(spec).stem}-{secrets.token_hex(4)}"
        folder = self._inside(f"runs/{name}")
        if model == AGENT:
            model = f"{MAILBOX}{folder}.mailbox"
        elif model.startswith(MAILBOX):
            raise ToolError(f"model={model}: write {AGENT} to answer the run yourself")
        options = [] if seconds is None else [f"--seconds={seconds}"]
        options += [] if trials is None else [f"--trials={trials}"]
        where = (f"--model={model}", f"--fleet={fleet}", f"--run-dir={folder}")
        await self._begin(folder, "run", self._spec(spec), *options, *where)
        return f"runs/{name}"

    async def resume(self, run: str) -> str:
        """Continue a run that was interrupted, in the background."""
        folder = self._inside(run)
        with _as_tool_errors():
            if is_over(folder):
                raise SpecError(f"{run} has finished; call report")
            if self._is_running(folder):
                raise SpecError(f"{run} is running")
        await self._begin(folder, "resume", str(folder))
        return f"{run} goes on"

    async def status(self, run: str) -> str:
        """The state of a run as JSON, and the last lines that it printed."""
        folder = self._inside(run)
        mine = self._runs.get(folder)
        if mine is not None and not begun(folder):
            raise ToolError(await mine.ended())  # refused, and its folder is removed
        told = await _command("status", str(folder), "--json")
        return told if mine is None else "\n".join([told, *mine.lines])

    async def stop(self, run: str, now: bool = False) -> str:
        """Ask a run to confirm what it found, then end; with now to end at once."""
        return await _command("stop", str(self._inside(run)), *(["--now"] if now else []))

    async def report(self, run: str) -> str:
        """The result of a run as text: speedups with intervals, and why others were rejected."""
        return await _command("report", str(self._inside(run)))

    async def trial(
        self,
        spec: str,
        values: Mapping[str, int | bool | str],
        shape: Mapping[str, int | str] | None = None,
    ) -> str:
        """Compile, check and time one configuration of the spec's template; return JSON."""
        options = [f"--set={name}={value}" for name, value in values.items()]
        if shape:
            options.append("--shape=" + ",".join(f"{name}={size}" for name, size in shape.items()))
        return await _command("trial", self._spec(spec), *options, "--json")

    async def brief(self, run: str, wait_seconds: float = 0.0) -> str:
        """What a run with model agent asks you now, and the name of the request.

        wait_seconds (at most 300) is how long to wait for a request while the run works.
        """
        folder = self._inside(run)
        # In this order, since a NaN is not smaller.
        until = time.monotonic() + min(LONGEST_WAIT, wait_seconds)
        with _as_tool_errors():
            mailbox = self._mailbox(folder)
            while (request := next(pending(mailbox), None)) is None:
                if not self._is_running(folder):
                    raise NothingValid(f"nothing is asked: {run} is not running; call status")
                if time.monotonic() >= until:
                    raise NothingValid(f"nothing is asked yet: {run} is measuring; call again")
                await asyncio.sleep(_POLL_SECONDS)
        return _as_text(request)

    async def submit(self, run: str, request: str, text: str) -> str:
        """Answer a request of brief: text is the whole reply, in the form that the brief asks for.

        The run checks it as it checks any model's; what it refuses it asks again, with the reason.
        """
        with _as_tool_errors():
            mailbox = self._mailbox(self._inside(run))
            asked = {request_name(one): one for one in pending(mailbox)}
            if request not in asked:
                waiting = ", ".join(asked) or "none"
                raise SpecError(f"no request {request!r} waits for a reply; waiting: {waiting}")
            answer(mailbox, asked[request], Reply(text=text, model=AGENT))
        return "sent; call brief again for what is asked next"

    async def close(self) -> None:
        """End the runs that were begun here, in order; what they measured is kept."""
        await child_command.end([run.child for run in self._runs.values()], _END_SECONDS)
        for run in self._runs.values():
            await run.ended()

    async def _begin(self, folder: Path, *words: str) -> None:
        """Start a command that works on a run directory, and wait until it does."""
        child = await child_command.begin(_words(*words), output=PIPE, errors=STDOUT)
        run = self._runs[folder] = _Run(child)
        run.reading = asyncio.create_task(run.read())
        while not (begun(folder) and is_running(folder)):
            if child.returncode is not None:
                raise ToolError(await run.ended())
            await asyncio.sleep(_POLL_SECONDS)

    def _is_running(self, folder: Path) -> bool:
        """Whether a process works on a run, or a child of this one is about to."""
        mine = self._runs.get(folder)
        return (mine is not None and mine.child.returncode is None) or is_running(folder)

    def _inside(self, name: str) -> Path:
        """The path of a file or folder, which must be in the server's folder."""
        try:
            path = (self._root / name).resolve()
            path.exists()  # raises where a name is too long
        except (ValueError, OSError, RuntimeError) as error:  # a NUL, too long, a circle
            raise ToolError(f"{name!r} is no path: {error}") from None
        if not path.is_relative_to(self._root) or path == self._root:
            raise ToolError(f"{name} is outside {self._root}, the folder of this server")
        return path

    def _spec(self, name: str) -> str:
        """The path of a spec, or the name of a bundled experiment."""
        path = self._inside(name)
        return name if name in bundled_names() and not path.exists() else str(path)

    def _mailbox(self, folder: Path) -> Path:
        """The mailbox of a run, which must be in the server's folder.

        Raises:
            SpecError: it has none.
        """
        settings = agent_settings(RunView.open(folder).experiment)
        if settings is None or not settings.model.startswith(MAILBOX):
            raise SpecError(f"{folder.name} asks no agent: begin a run with model={AGENT}")
        return self._inside(settings.model.removeprefix(MAILBOX))


@contextmanager
def _as_tool_errors() -> Iterator[None]:
    try:
        yield
    except (KernelwrightError, OSError) as error:
        raise ToolError(str(error)) from None


def _as_text(request: Request) -> str:
    complaint = f"\nyour last reply was refused: {request.complaint}" if request.complaint else ""
    turns = "".join(f"\n\n[{one.role}]\n{one.content}" for one in request.messages)
    return f"request: {request_name(request)}{complaint}{turns}"


def _words(*words: str) -> tuple[str, ...]:
    """The command line; raises :class:`ToolError` for a word that none can have."""
    if hidden := next((word for word in words if "\0" in word), None):
        raise ToolError(f"{hidden!r} has a NUL character: remove it")
    return (*child_command.kernelwright_command(), *words)


async def _command(*words: str) -> str:
    """The output of a command; its messages too where it fails, as an error of the tool."""
    child = await child_command.begin(_words(*words), output=PIPE, errors=PIPE)
    try:
        out, err = (text.decode("utf-8", "replace") for text in await child.communicate())
    finally:
        await child_command.end([child])  # where the client gave up on the call
    if child.returncode:
        raise ToolError("\n".join(filter(None, (out.strip(), err.strip()))))
    return out


def make_server(root: Path) -> MCPServer[None]:
    """The server of the tools; leaving its lifespan ends the runs that were begun."""
    tools = Tools(root)

    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await tools.close()

    server = MCPServer[None](
        "kernelwright",
        version=__version__,
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        log_level="WARNING",
    )
    for tool in (
        tools.init,
        tools.validate,
        tools.run,
        tools.resume,
        tools.status,
        tools.stop,
        tools.report,
        tools.trial,
        tools.brief,
        tools.submit,
    ):
        server.add_tool(tool)
    return server
