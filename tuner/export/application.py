"""The change that puts a run's tuned kernels into an application's source: files and their diff."""

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from tuner.errors import SpecError
from tuner.experiment.model import Launch
from tuner.export import example, manifest, record
from tuner.export.bundle import Export, export_files
from tuner.export.insertion import insert
from tuner.export.measured import measured_kernel
from tuner.export.original import kernel_name, original_launch
from tuner.export.regions import digest, without_regions
from tuner.export.tuned_file import render_tuned
from tuner.journal.history import History

_FIRST = re.compile(r"// Written by `kernelwright apply` \((\w+)\)[^\n]*\n")
_EXPORTED = re.compile(r"/\* [\w.-]+(?:: kernels tuned for |, \w+: )")
_NO_END = "\n\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file's text before (``None``: no such file) and after; ``path`` is relative, with ``/``."""

    path: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Application:
    """The changed files, the application's source last, and ``notes`` on what is left to do."""

    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]

    def diff(self) -> str:
        """A unified diff, for `patch -p1` and `git apply`."""
        return "".join(line for change in self.changes for line in _diff(change))


def apply_run(
    history: History, run: str, path: str, text: str, existing: Callable[[str], str | None]
) -> Application:
    """The change that puts a run's tuned kernels into a source.

    Args:
        history: the run.
        run: its name, for people.
        path: the source, relative to the root of the application.
        text: its text, line ends as they are.
        existing: the text of another file of the application, ``None`` if there is none.

    Raises:
        NothingValid: nothing was confirmed, or the original serves every shape.
        SpecError: the source is not what was measured, or cannot be changed; the message has the
            place.
    """
    if history.experiment.kernel.language == "cuda":
        return _cuda(history, run, path, text, existing)
    return _sources(history, run, path, text, existing)


def _cuda(
    history: History, run: str, path: str, text: str, existing: Callable[[str], str | None]
) -> Application:
    experiment = history.experiment
    name = kernel_name(experiment)
    clean = without_regions(text, path, name)
    entry = original_launch(experiment).entry
    kernel = measured_kernel(clean, path, experiment, entry, run, existing)
    source = PurePosixPath(path)
    stem = re.sub(r"[^\w.+-]", "_", source.stem)
    stem = stem if stem == name else f"{stem}_{name}"
    beside = source.with_name(f"{stem}_tuned.cuh")
    tuned = render_tuned(Export.of(history), file=beside.name, around=kernel.source, run=run)
    inserted = insert(clean, path, kernel, tuned, beside.name, run)
    before = existing(str(beside))
    _check_ours(str(beside), before)
    first = f"// Written by `kernelwright apply` ({digest([tuned.text])}), which replaces it.\n"
    changes = (
        FileChange(str(beside), before, first + tuned.text),
        FileChange(path, text, inserted.text),
    )
    return Application(changes, (*inserted.notes, *tuned.notes))


def _check_ours(path: str, before: str | None) -> None:
    """Refuse to replace a file that `apply` did not write, or that was edited since."""
    if before is None:
        return
    first = _FIRST.match(before)
    if first is None or digest([before[first.end() :]]) != first[1]:
        what = "was edited since `apply` wrote it" if first else "was not written by `apply`"
        raise SpecError(f"{path} {what}: move it away, then apply again")


def _sources(
    history: History, run: str, path: str, text: str, existing: Callable[[str], str | None]
) -> Application:
    """The sources and the header of the export, beside a source that stays as it is."""
    experiment = history.experiment
    launches = [step for step in experiment.kernel.steps if isinstance(step, Launch)]
    for entry in dict.fromkeys(launch.entry or experiment.kernel.entry for launch in launches):
        measured_kernel(text, path, experiment, entry, run, existing)
    files = export_files(history)
    changes = []
    others = {example.NAME, manifest.NAME, record.NAME, *dict(experiment.kernel.headers)}
    for name in files.keys() - others:
        beside = str(PurePosixPath(path).with_name(name))
        before = existing(beside)
        if before not in (None, files[name]) and not _EXPORTED.match(before or ""):
            raise SpecError(f"{beside} is not of an export: move it away, then apply again")
        changes.append(FileChange(beside, before, files[name]))
    header = next(name for name in files if name.endswith(".h"))
    note = (
        f"{path} and its launches stay: OpenCL programs are built and launched by the "
        f"application's host code. Let that code choose file, options and sizes with {header}"
    )
    return Application(tuple(sorted(changes, key=lambda one: one.path)), (note,))


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _diff(change: FileChange) -> Iterator[str]:
    before, after = _lines(change.before or ""), _lines(change.after)
    old = "/dev/null" if change.before is None else f"a/{change.path}"
    for line in difflib.unified_diff(before, after, old, f"b/{change.path}"):
        yield line if line.endswith("\n") else line + _NO_END
