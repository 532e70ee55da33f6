"""What continues a run: the command, in the words of where the run is, and the time it gets."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from cluster.interruptible import interrupt_noted
from cluster.runs.run_layout import searches_begun
from cluster.settings import Settings
from tuner.engine.progress import ENDLESS
from tuner.errors import RunInterrupted
from tuner.journal.history import History
from tuner.journal.timeline import timeline
from tuner.run_directory import RunDirectory, RunView


def resume_command(run: Path, options: Sequence[str] = ()) -> str:
    """The command line that continues a run with these options.

    The run directory of a submitted job is on the cluster, so that another job must continue it.
    """
    words = "submit --resume" if Settings.read().in_job else "resume"
    return f"kernelwright {words} {shlex.join([str(run), *options])}"


def interrupt_note(run: Path, options: Sequence[str] = ()) -> AbstractContextManager[None]:
    """Add to Ctrl-C, or to the exit after a signal, a note that says how to continue the run."""
    kept = "everything measured is kept; continue with: "
    return interrupt_noted(lambda: kept + resume_command(run, options))


@contextmanager
def resume_hint(run: Path, options: Sequence[str] = ()) -> Iterator[None]:
    """Add to a :class:`RunInterrupted` how to continue the run."""
    try:
        yield
    except RunInterrupted as interrupted:
        raise type(interrupted)(
            f"{interrupted}; everything finished is kept; continue with: "
            f"{resume_command(run, options)}"
        ) from interrupted


def allow_seconds(run: Path, seconds: float) -> None:
    """Give a run so many seconds from now on, instead of the rest of its budget.

    The search of a round that has begun keeps its share of that, if it is less.

    Raises:
        EnvironmentProblem: another process holds the run, or it cannot be written.
    """
    view, rounds = RunView.open(run), searches_begun(run)
    if view.experiment.agents is None:
        _set_seconds(run, _spent(view) + seconds)
        return
    done = timeline([RunView.open(path).entries() for path in (run, *rounds)])
    _set_seconds(run, done.seconds - done.waiting + seconds)
    for search in map(RunView.open, rounds):
        budget, most = search.experiment.search.seconds, _spent(search) + seconds
        if most < budget < ENDLESS:
            _set_seconds(search.path, most)


def _spent(view: RunView) -> float:
    return History.of(view.experiment, view.entries()).clock.spent


def _set_seconds(run: Path, seconds: float) -> None:
    with closing(RunDirectory.open(run)) as directory:
        directory.set_seconds(seconds)
