"""The run directory: the files of a run, its one writer, and how a run is opened.

Layout: ``run.json`` (format version, name, time), ``spec.yaml`` (as the user wrote it),
``spec.resolved.yaml`` (the same with all sources inlined, which a resume reads),
``environment/NNN.json`` (one for each distinct environment), ``journal.jsonl`` (the truth),
``secret`` (the seed of the inputs, readable by the owner alone), ``lock`` and ``lease.json``
(:mod:`tuner.lease`); and what can be rebuilt from these: ``status.json``, ``results.jsonl``,
``results.csv``, ``export/``. Knows nothing of what the facts in the journal mean.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tuner.errors import EnvironmentProblem, SpecError
from tuner.experiment.contents import Seconds
from tuner.experiment.load import dump_resolved, load_resolved
from tuner.experiment.longest import LONGEST_SECONDS
from tuner.experiment.model import Experiment
from tuner.files import UnreadableFile, check_text, inside, make_folder, read_bounded, write_whole
from tuner.journal.facts import Entry, Fact, TrialProposed
from tuner.journal.file import Journal, read_journal
from tuner.journal.references import check_references
from tuner.lease import Lease

FORMAT = 4
"""To be raised with every change after which what was written before cannot be gone on with."""

INFO, SPEC, JOURNAL = "run.json", "spec.resolved.yaml", "journal.jsonl"
STATUS, RESULTS = "status.json", "results.jsonl"
MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What ``run.json`` says; ``created`` is in ISO 8601, UTC.

    ``run`` is the folder's name when it was made; ``fleet`` names where the run was begun, and is
    to go on, if that was said; ``spec`` is a digest of the resolved spec, which the journal's
    trials are about; ``origin`` the path of the spec that was given, empty for a round's search;
    ``seconds`` the budget that replaces ``search.seconds``, if a resume gave one.
    """

    format: int
    run: str
    experiment: str
    created: str
    fleet: str | None = None
    spec: str = ""
    origin: str = ""
    seconds: Seconds | None = None


@dataclass(frozen=True, slots=True)
class _Status:
    """What of ``status.json`` is read again: how many facts the journal surely held."""

    facts: int = 0


_STATUS = TypeAdapter(_Status)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run directory as anyone may read it, also while the run goes on."""

    path: Path
    info: RunInfo
    experiment: Experiment

    @classmethod
    def open(cls, path: Path) -> "RunView":
        """Open a run for reading.

        Raises:
            SpecError: there is no run.
            EnvironmentProblem: a part of it is gone or not understood, or its spec was changed.
        """
        if not begun(path):
            raise SpecError(
                f"{path} is not a run directory: name the folder that `kernelwright run` made, by "
                "default in runs/"
            )
        text, resolved = _read(path / INFO), _read(path / SPEC)
        if text is None or resolved is None:
            gone = path / (INFO if text is None else SPEC)
            raise EnvironmentProblem(
                f"{gone} is gone, though something was measured there: restore it from a copy, or "
                f"move {path} away"
            )
        try:
            info = TypeAdapter(RunInfo).validate_json(text)
        except ValidationError as error:
            what = error.errors(include_url=False)[0]["msg"]
            raise EnvironmentProblem(
                f"{path / INFO} cannot be understood ({what}): restore it from a copy"
            ) from None
        if info.format != FORMAT:
            raise EnvironmentProblem(
                f"{path} was begun by another version of kernelwright (its run format is "
                f"{info.format}, this version's {FORMAT}): go on with that one, or begin a new run"
            )
        if info.spec not in ("", _digest(resolved)):
            raise EnvironmentProblem(
                f"{path / SPEC} is not what the run was begun with, which its trials are about: "
                "restore it from a copy, or begin a new run with the changed one"
            )
        return cls(path, info, _with_seconds(load_resolved(resolved), info.seconds))

    def entries(self) -> list[Entry]:
        """The journal so far; raises :class:`EnvironmentProblem` if it is damaged."""
        journal, told = self.path / JOURNAL, _told(self.path)
        entries = read_journal(journal) if journal.exists() else []
        _check_whole(self.path, entries, told)
        check_references(journal, self.experiment, entries)
        return entries

    def status_facts(self) -> int:
        """How many of the journal's facts ``status.json`` was made from; 0 without one."""
        return _told(self.path)[STATUS]

    def facts(self) -> list[Fact]:
        """The journal's facts so far; raises as :meth:`entries` does."""
        return [entry.fact for entry in self.entries()]


class RunDirectory:
    """A run directory held by its one writer, until :meth:`close`."""

    def __init__(self, view: RunView, lease: Lease) -> None:
        """Wrap a directory that is held; use :meth:`create` or :meth:`open`."""
        self.path = view.path
        self.info = view.info
        self.experiment = view.experiment
        self._lease = lease
        self.took_over = lease.took_over
        """The dead process that held the directory before; empty if none did."""
        try:
            self.secret = _secret(view.path / "secret")
        except EnvironmentProblem:
            self.close()
            raise

    @classmethod
    def create(
        cls,
        path: Path,
        experiment: Experiment,
        spec_text: str,
        *,
        secret: int | None = None,
        fleet: str | None = None,
        origin: str = "",
    ) -> "RunDirectory":
        """Make a new run directory, complete or not at all, and hold it.

        ``secret`` is the seed of the inputs, a fresh one by default; ``fleet`` where it is begun;
        ``origin`` the path of the spec.

        Raises:
            EnvironmentProblem: something is there already, the place cannot be written, or a path
                is not UTF-8.
        """
        path = path.absolute()
        check_text(path)
        check_text(origin)
        now, resolved = datetime.now(UTC), dump_resolved(experiment)
        info = RunInfo(
            format=FORMAT,
            run=path.name,
            experiment=experiment.name,
            created=now.isoformat(timespec="seconds"),
            fleet=fleet,
            spec=_digest(resolved),
            origin=origin,
        )
        building: Path | None = None
        lease: Lease | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            building = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            lease = Lease(building)
            (building / "environment").mkdir()
            (building / INFO).write_bytes(TypeAdapter(RunInfo).dump_json(info) + b"\n")
            (building / "spec.yaml").write_text(spec_text)
            (building / SPEC).write_text(resolved, encoding="utf-8")
            with os.fdopen(
                os.open(building / "secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
            ) as stream:
                stream.write(f"{secrets.randbits(63) if secret is None else secret:x}\n")
            building.rename(path)
        except OSError as error:
            if lease:
                lease.release()
            if building:
                shutil.rmtree(building, ignore_errors=True)
            if error.errno != errno.ENAMETOOLONG and path.exists():
                found = f"{path} is there already"
                raise EnvironmentProblem(
                    f"{found}: go on with `kernelwright resume {path}`, or name another folder "
                    "with --run-dir"
                    if begun(path)
                    else f"{found} and is no run directory: move it away"
                ) from None
            raise EnvironmentProblem(
                f"cannot make the run directory {path}: {error.strerror}; name another with "
                "--run-dir"
            ) from None
        return cls(RunView(path, info, experiment), lease)

    @classmethod
    def open(cls, path: Path, *, job: str = "") -> "RunDirectory":
        """Hold an existing run, to go on with it or to rewrite what is derived.

        A dead process's lease is taken over. ``job`` is the batch job that this process belongs to.

        Raises:
            EnvironmentProblem: there is no run, another process holds it, or it cannot be written.
        """
        view = RunView.open(path.absolute())
        _refuse_links(view.path)
        try:
            lease = Lease(view.path, job)
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {view.path}: {error.strerror}") from None
        return cls(view, lease)

    def set_seconds(self, seconds: float) -> None:
        """Give the run this budget instead of ``search.seconds``, now and whenever it is opened.

        Raises:
            EnvironmentProblem: it cannot be written, or another process holds the directory now.
        """
        self.info = replace(self.info, seconds=min(seconds, LONGEST_SECONDS))
        self.write(INFO, TypeAdapter(RunInfo).dump_json(self.info).decode() + "\n")
        self.experiment = _with_seconds(self.experiment, self.info.seconds)

    def journal(self) -> Journal:
        """The journal, opened for writing.

        Raises:
            EnvironmentProblem: it cannot be read or written, is damaged, or has lost trials.
        """
        journal = Journal(self.path / JOURNAL, self._lease.check)
        try:
            _check_whole(self.path, journal.entries, _told(self.path))
            check_references(journal.path, self.experiment, journal.entries)
        except EnvironmentProblem:
            journal.close()
            raise
        return journal

    def record_environment(self, environment: Mapping[str, object]) -> str:
        """Keep a description of where the run is running, and return its digest.

        ``environment`` holds what makes times incomparable when it changes (device model, driver,
        compiler) and nothing else; it is JSON data. The same description is kept once.
        """
        text = json.dumps(environment, indent=2, sort_keys=True) + "\n"
        folder = self.path / "environment"
        kept = sorted(folder.glob("*.json"))
        if not any(_read(file) == text for file in kept):
            self.write(f"environment/{len(kept):03d}.json", text)
        return _digest(text)

    def write(self, name: str, text: str) -> Path:
        """Replace a file of the directory as a whole, so that no reader sees half of it.

        Raises:
            EnvironmentProblem: it cannot be written, or another process holds the directory now.
        """
        self._lease.check()
        target = inside(self.path, name)
        make_folder(target.parent)
        write_whole(target, text)
        return target

    def close(self) -> None:
        """Let go of the directory; closing twice does nothing."""
        self._lease.release()


def _with_seconds(experiment: Experiment, seconds: float | None) -> Experiment:
    if seconds is None:
        return experiment
    return replace(experiment, search=replace(experiment.search, seconds=seconds))


def _refuse_links(path: Path) -> None:
    """Refuse a run directory with a link in it: what is written there would go elsewhere."""
    for folder, folders, files in os.walk(path):
        for place in (Path(folder, name) for name in (*folders, *files)):
            if place.is_symlink():
                raise EnvironmentProblem(
                    f"{place} is a link, which no run makes: remove it, or put what it leads to "
                    "in its place"
                )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def begun(path: Path) -> bool:
    """Whether a run lies there: all that :meth:`RunDirectory.create` makes, or what it measured."""
    return (path / JOURNAL).exists() or all((path / name).exists() for name in (INFO, SPEC))


def _told(path: Path) -> dict[str, int]:
    """How many trials were in the journal when the results were written, and how many facts."""
    told = {RESULTS: 0, STATUS: 0}
    with suppress(EnvironmentProblem):
        told[RESULTS] = (_read(path / RESULTS) or "").count("\n")
    with suppress(EnvironmentProblem, ValidationError):
        told[STATUS] = _STATUS.validate_json(_read(path / STATUS) or "{}").facts
    return told


def _check_whole(path: Path, entries: Sequence[Entry], told: Mapping[str, int]) -> None:
    """Refuse a journal that holds less than the files that were made from it."""
    trials = sum(isinstance(entry.fact, TrialProposed) for entry in entries)
    for name, known, things in ((RESULTS, trials, "trials"), (STATUS, len(entries), "facts")):
        if told[name] > known:
            raise EnvironmentProblem(
                f"{path / JOURNAL} tells of {known} {things}, and {name}, which was made from it, "
                f"of {told[name]}: it was cut or replaced; restore it from a copy, or move "
                f"{RESULTS} and {STATUS} beside it away to go on from what is left"
            )


def _secret(file: Path) -> int:
    """The seed of a run's inputs, as :meth:`RunDirectory.create` wrote it."""
    try:
        text, what = read_bounded(file, MAX_FILE_BYTES), "is damaged"
    except UnreadableFile as error:
        text, what = "", str(error)
    if text is not None and re.fullmatch(r"[0-9a-f]{1,16}\n?", text):
        return int(text, 16)
    raise EnvironmentProblem(
        f"{file}, which holds the seed of the run's inputs, {'is gone' if text is None else what}: "
        "restore it from a copy, or begin a new run"
    )


def _read(file: Path) -> str | None:
    try:
        return read_bounded(file, MAX_FILE_BYTES)
    except UnreadableFile as error:
        raise EnvironmentProblem(f"{file} {error}") from None
