"""The command that continues a run, in the words of the place where the run is."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster.settings import Settings
from tuner.errors import RunInterrupted


def resume_command(run: Path, options: Sequence[str] = ()) -> str:
    """The command line that continues a run with these options.

    The run directory of a submitted job is on the cluster, so that another job must continue it.
    """
    words = "submit --resume" if Settings.read().in_job else "resume"
    return f"kernelwright {words} {shlex.join([str(run), *options])}"


@contextmanager
def interrupt_note(run: Path, options: Sequence[str] = ()) -> Iterator[None]:
    """Add to Ctrl-C, or to the exit after a signal, a note that says how to continue the run."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as interrupt:
        again = resume_command(run, options)
        interrupt.add_note(f"everything measured is kept; continue with: {again}")
        raise


@contextmanager
def resume_hint(run: Path) -> Iterator[None]:
    """Add to a :class:`RunInterrupted` how to continue the run."""
    try:
        yield
    except RunInterrupted as interrupted:
        raise type(interrupted)(
            f"{interrupted}; everything finished is kept; continue with: {resume_command(run)}"
        ) from interrupted
