"""The folder of a campaign: its plan, what came of each run, and the run directories.

Layout: ``campaign.json``; ``runs/NAME``, ordinary run directories; ``output/NAME.txt``, what each
run printed; and, made from these, ``report.md`` and ``report.csv``. What a run found is in its own
directory alone. One process at a time works on a campaign, by a lease as for runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cluster.campaigns.plan import Campaign, PlannedRun
from tuner.errors import EnvironmentProblem
from tuner.files import UnreadableFile, first_problem, make_folder, read_bounded, write_whole
from tuner.lease import Lease, read_tenure

FILE = "campaign.json"
VERSION = 1
_FILE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run's last process ended: exit code and last line; and the seconds of all of them."""

    code: int
    words: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The contents of ``campaign.json``.

    ``created`` is in ISO 8601, UTC; ``fleet`` and ``device`` are as the user gave them; ``spent``
    seconds of the campaign's budget.
    """

    version: int = VERSION
    campaign: Campaign
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    fleet: str | None = None
    device: str | None = None
    spent: float = 0.0
    ended: Mapping[str, Ended] = field(default_factory=dict)


_RECORDS = TypeAdapter(Record)


class CampaignFolder:
    """A campaign held by this process, until :meth:`close`."""

    def __init__(self, path: Path, record: Record) -> None:
        """Hold a folder that exists; use :meth:`create` or :meth:`open`."""
        self.path = path.absolute()
        self.record = record
        if (held := read_tenure(self.path)) is not None and held.alive:
            raise EnvironmentProblem(
                f"{held} works on the campaign {path}: wait for it, or interrupt it there"
            )
        try:
            self._lease = Lease(self.path)
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {path}: {error.strerror}") from None

    @classmethod
    def create(cls, path: Path, record: Record) -> "CampaignFolder":
        """Make a new folder, readable by the owner alone.

        Raises:
            EnvironmentProblem: something is there already, or the place cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        except FileExistsError:
            raise EnvironmentProblem(
                f"{path} is there already: continue it with `kernelwright campaign {path}`, or "
                "name another with --output"
            ) from None
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot make {path}: {error.strerror}; name another folder with --output"
            ) from None
        made = cls(path, record)
        for name in ("runs", "output"):
            make_folder(path / name)
        made.save(record)
        return made

    @classmethod
    def open(cls, path: Path) -> "CampaignFolder":
        """Hold a folder again.

        Raises:
            EnvironmentProblem: its record cannot be read, or another process works on it.
        """
        held = cls(path, read_record(path))
        held.record = read_record(path)  # as it is now that no other process writes it
        return held

    def run_path(self, run: PlannedRun) -> Path:
        """The directory of a run."""
        return self.path / "runs" / run.name

    def output_path(self, run: PlannedRun) -> Path:
        """The file of what a run printed."""
        return self.path / "output" / f"{run.name}.txt"

    def save(self, record: Record) -> None:
        """Write the record."""
        self._lease.check()
        self.record = record
        write_whole(self.path / FILE, _RECORDS.dump_json(record, indent=1).decode() + "\n")

    def note(self, run: PlannedRun, ended: Ended, spent: float) -> None:
        """Keep how a run ended, and the seconds of the budget that are spent."""
        ended_now = {**self.record.ended, run.name: ended}
        self.save(replace(self.record, ended=ended_now, spent=spent))

    def close(self) -> None:
        """Let go of the folder; closing twice does nothing."""
        self._lease.release()


def is_campaign(path: Path) -> bool:
    """Whether a folder is that of a campaign."""
    return (path / FILE).is_file()


def read_record(path: Path) -> Record:
    """The record of a campaign's folder.

    Raises:
        EnvironmentProblem: it cannot be read, or another version wrote it.
    """
    file = path / FILE
    try:
        record = _RECORDS.validate_json(read_bounded(file, _FILE_BYTES) or "")
    except UnreadableFile as error:
        raise EnvironmentProblem(f"{file} {error}") from None
    except ValidationError as error:
        raise EnvironmentProblem(
            f"{file} cannot be understood ({first_problem(error)}): restore it from a copy"
        ) from None
    if record.version != VERSION:
        raise EnvironmentProblem(
            f"{file} is of version {record.version}, and this kernelwright reads {VERSION}: go on "
            "with the one that wrote it"
        )
    return record
