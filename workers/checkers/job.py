"""A job of the launcher: a candidate's cell on one shape, as a file."""

from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter

from tuner.plan import Build, CellPlan
from workers.devices.port import StagedBuffer, StagedNull, StagedValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``adapter`` is the module of the backend's adapter.

    ``code`` is the path of the compiled build, for devices that load what was timed; ``symbols``
    maps entries to their names in it.
    """

    adapter: str
    index: int
    build: Build
    code: str
    symbols: tuple[tuple[str, str], ...]
    cell: CellPlan
    buffers: tuple[StagedBuffer, ...]
    values: tuple[StagedValue, ...]
    nulls: tuple[StagedNull, ...]


@cache
def _adapter() -> TypeAdapter[Job]:
    """Built when it is first used: few processes use it, and all would wait for it."""
    return TypeAdapter(Job)


def encode_job(job: Job) -> bytes:
    """A job as JSON."""
    return _adapter().dump_json(job)


def decode_job(text: bytes) -> Job:
    """The job in a JSON text."""
    return _adapter().validate_json(text)
