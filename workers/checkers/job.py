"""A job of the launcher: a candidate's cell on one shape, as a file."""

from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter

from tuner.plan import Build, CellPlan
from workers.devices.port import Staged


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a launcher launches once.

    ``code`` is the path of the compiled build, for devices that load what was timed; ``symbols``
    maps entries to their names in it.
    """

    build: Build
    code: str
    symbols: tuple[tuple[str, str], ...]
    cell: CellPlan
    arguments: tuple[Staged, ...]


@cache
def job_format() -> TypeAdapter[Job]:
    """A job as JSON. Built when it is first used: few processes use it, and all would wait."""
    return TypeAdapter(Job)
