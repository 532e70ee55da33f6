"""``watch``: runs followed from their directories, in the terminal or as a page."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import typer
from rich.console import Console
from rich.live import Live

from cluster.watching.follower import RunFollower, RunPicture
from cluster.watching.terminal import table
from tuner.errors import EnvironmentProblem, SpecError
from tuner.run_directory import begun

LOOK_SECONDS = 1.0
"""Between two looks at the run directories."""

PLAIN_SECONDS = 10.0
"""Between two tables where the output is no terminal."""


def watch(run_dirs: Sequence[Path], *, web: bool, port: int) -> None:
    """Show runs until all are finished; Ctrl-C ends it before. ``web`` serves them on ``port``.

    Raises:
        SpecError: a directory holds no run.
        EnvironmentProblem: a directory cannot be read, or the port is taken.
    """
    run_dirs = list({path.absolute(): path for path in run_dirs}.values())
    for path in run_dirs:
        _check(path)
    if web:
        _serve(run_dirs, port)
        return
    followers = [RunFollower(path) for path in run_dirs]
    terminal = sys.__stdout__  # sys.stdout would escape what moves the cursor
    with suppress(KeyboardInterrupt):
        if terminal is not None and terminal.isatty():
            _show_live(followers, _Console(file=terminal))
        else:
            _print_tables(followers, _Console(file=sys.stdout))


class _Console(Console):
    """A console that leaves a closed reader to the command line."""

    def on_broken_pipe(self) -> None:
        """Raise what was caught, rather than to end without the command line's exit code."""
        raise


def _check(path: Path) -> None:
    try:
        found = begun(path)
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {path}: {error.strerror}") from None
    if not found:
        raise SpecError(
            f"{path} is not a run directory: name the folder that `kernelwright run` made, by "
            "default in runs/"
        )


def _serve(run_dirs: Sequence[Path], port: int) -> None:
    from cluster.watching.server import WatchServer

    with WatchServer(run_dirs, port) as server, suppress(KeyboardInterrupt):
        typer.echo(f"kernelwright: {server.address} shows the runs; Ctrl-C ends it")
        server.serve_forever()


def _show_live(followers: Sequence[RunFollower], console: Console) -> None:
    with Live(console=console, auto_refresh=False) as live:
        for pictures, _ in _looks(followers):
            live.update(table(pictures, time.time()), refresh=True)


def _print_tables(followers: Sequence[RunFollower], console: Console) -> None:
    due = 0.0
    for pictures, over in _looks(followers):
        if over or time.monotonic() >= due:
            console.print(table(pictures, time.time()))
            due = time.monotonic() + PLAIN_SECONDS


def _looks(followers: Sequence[RunFollower]) -> Iterator[tuple[list[RunPicture], bool]]:
    """The runs once a second, and whether all are finished, until they are."""
    over = False
    while not over:
        pictures = [follower.look() for follower in followers]
        over = all(picture.over for picture in pictures)
        yield pictures, over
        if not over:
            time.sleep(LOOK_SECONDS)
