"""``clean``: removes what other commands can make again from finished runs.

The journal, the specs, the seed, the models' replies and the log stay. So does ``status.json``,
which tells how much the journal held.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import typer

from cluster.commands import report
from cluster.commands.results import is_over
from cluster.runs.run_layout import searches_begun
from cluster.runs.search_run import EXPORT
from tuner.errors import EnvironmentProblem
from tuner.run_directory import RunDirectory

DERIVED = (EXPORT, *report.TABLES, *report.FILES)
"""What is removed of a run and of each search in it: `export` and `report --html` make it again."""

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
                size = _size(path)
                removed += size
                typer.echo(f"{size:>12,}  {path}")
                if not dry_run:
                    _remove(path)
    verb = "would be removed" if dry_run else "removed"
    typer.echo(
        f"{removed:>12,}  bytes {verb}; `report RUN --html` and `export RUN` make them again"
    )


def _derived(run: Path) -> Iterator[Path]:
    for folder in (run, *searches_begun(run)):
        yield from (path for name in DERIVED if (path := folder / name).exists())
        yield from folder.glob(UNFINISHED)


def _size(path: Path) -> int:
    """Bytes of a file, or of the files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _remove(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        raise EnvironmentProblem(f"cannot remove {path}: {error.strerror}") from None
