"""A job of the launcher: a candidate's cell on one shape, as a file."""

from dataclasses import dataclass

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


JOB = TypeAdapter(Job)
