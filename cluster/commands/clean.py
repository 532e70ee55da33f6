"""``clean``: removes what other commands can make again from finished runs.

The journal, the specs, the seed, the models' replies and the log stay. So does ``status.json``,
which tells how much the journal held, and what the user put into ``export/``.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import typer

from cluster.commands import report
from cluster.commands.results import TRIALS, exported, is_over
from cluster.runs.run_layout import searches_begun
from cluster.runs.search_run import EXPORT
from tuner.errors import EnvironmentProblem, NothingValid
from tuner.files import inside
from tuner.report.tables import TABLES
from tuner.run_directory import RunDirectory

DERIVED = (*TABLES, *report.FILES)
"""What is removed of a run and of each search in it, besides the files of its export."""

UNFINISHED = ".*.part"
"""Files that a killed process had not finished."""


def clean(runs: Sequence[Path], *, dry_run: bool) -> None:
    """Remove derived files from finished runs, and print each with its size.

    Raises:
        EnvironmentProblem: a run has not finished, or a process holds it; nothing is removed.
    """
    runs = list({run.absolute(): run for run in runs}.values())
    for run in runs:
        if not is_over(run):
            raise EnvironmentProblem(
                f"{run} has not finished: `kernelwright resume {run}` continues it; nothing is "
                "removed"
            )
    removed = 0
    for run in runs:
        # Holding it keeps writers away. A directory with links in it is refused.
        with closing(RunDirectory.open(run)):
            for path in sorted(_derived(run)):
                size = path.stat().st_size
                removed += size
                typer.echo(f"{size:>12,}  {path}")
                if not dry_run:
                    _remove(path, run)
    verb = "would be removed" if dry_run else "removed"
    typer.echo(
        f"{removed:>12,}  bytes {verb}; `report RUN --html` and `export RUN` make them again"
    )


def _derived(run: Path) -> Iterator[Path]:
    for folder in (run, *searches_begun(run)):
        yield from (path for name in DERIVED if (path := folder / name).exists())
        yield from _exported(folder)
        yield from folder.glob(UNFINISHED)


def _exported(folder: Path) -> Iterator[Path]:
    """The files in a run's ``export/`` that the command of this name makes."""
    place = folder / EXPORT
    if not place.is_dir():
        return
    names = tuple(TRIALS.values())
    with suppress(NothingValid):
        names = (*names, *exported(folder))
    yield from (path for name in names if (path := inside(place, name)).is_file())


def _remove(path: Path, run: Path) -> None:
    """Remove a file, and the folders of the run that are empty then."""
    try:
        path.unlink()
    except OSError as error:
        raise EnvironmentProblem(f"cannot remove {path}: {error.strerror}") from None
    for folder in path.parents:
        if EXPORT not in folder.relative_to(run).parts:
            break
        with suppress(OSError):  # it is not empty
            folder.rmdir()
