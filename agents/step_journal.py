"""The steps of the loop, journalled by key and looked up before they are taken.

Owns the one mechanism behind resume, replay and never paying twice: a step that was recorded is
never taken again, and what it cost counts again as if it had been. Knows nothing of what a step
does.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Protocol, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from agents.llm.port import Reply, Role, StepKey
from agents.llm.replay import Exchange
from tuner.errors import SpecError
from tuner.files import (
    UnreadableFile,
    first_problem,
    make_folder,
    read_bounded,
    write_whole,
)

T = TypeVar("T")

LIMIT_BYTES = 64 * 1024 * 1024


class StepJournal(Protocol):
    """Where the records of steps are kept: all of one, or none of it."""

    def find(self, key: StepKey) -> str | None:
        """The record of a step, or ``None`` if it was never taken to its end."""
        ...

    def record(self, key: StepKey, text: str) -> None:
        """Keep a step's record for good before returning."""
        ...


class StepFiles:
    """A journal of steps in a folder, one file each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        make_folder(directory)

    def find(self, key: StepKey) -> str | None:
        """The record of a step; raises ``SpecError`` if its file must not be believed."""
        path = self._directory / f"{key}.json"
        try:
            return read_bounded(path, LIMIT_BYTES)
        except UnreadableFile as error:
            raise SpecError(f"{path}: {error}; delete it to take this step again") from error

    def record(self, key: StepKey, text: str) -> None:
        """Write a step's record; raises ``EnvironmentProblem`` if that is impossible."""
        write_whole(self._directory / f"{key}.json", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What came of asking a model: the request's digest, and the reply."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    request: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    reply: Reply


ASKED: TypeAdapter[Asked] = TypeAdapter(Asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What all steps so far cost, over every process that took part in the run."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0

    def after(self, reply: Reply) -> "Spent":
        """With one more call."""
        return replace(
            self,
            calls=self.calls + 1,
            input_tokens=self.input_tokens + reply.usage.input_tokens,
            output_tokens=self.output_tokens + reply.usage.output_tokens,
            cost_usd=self.cost_usd + reply.cost_usd,
        )


class Steps:
    """Takes steps, or recalls them, and keeps account.

    Args:
        journal: Holds the records.
        now: Seconds on a clock that never goes back.
    """

    def __init__(self, journal: StepJournal, now: Callable[[], float]) -> None:
        self._journal = journal
        self._now = now
        self.spent = Spent()

    def recall(self, key: StepKey, form: TypeAdapter[T]) -> T:
        """The recorded result of a step.

        Raises:
            SpecError: there is no record, or it is damaged.
        """
        text = self._journal.find(key)
        if text is None:
            raise SpecError(f"there is no record of step {key}")
        return self._recalled(key, form, text)

    async def take(self, key: StepKey, form: TypeAdapter[T], act: Callable[[], Awaitable[T]]) -> T:
        """The recorded result of the step, else that of ``act``, recorded before it is used.

        Raises:
            SpecError: the record is damaged.
        """
        text = self._journal.find(key)
        if text is None:
            began = self._now()
            result = await act()
            row = {
                "version": 1,
                "seconds": max(0.0, self._now() - began),
                "result": form.dump_python(result, mode="json"),
            }
            text = json.dumps(row, ensure_ascii=False)
            self._journal.record(key, text)
        return self._recalled(key, form, text)

    def _recalled(self, key: StepKey, form: TypeAdapter[T], text: str) -> T:
        """The result that a record holds, once what it cost is accounted for."""
        seconds, result = _read(key, form, text)
        spent = self.spent.after(result.reply) if isinstance(result, Asked) else self.spent
        self.spent = replace(spent, seconds=spent.seconds + seconds)
        return result


def recorded_exchanges(directory: Path) -> tuple[Exchange, ...]:
    """Every exchange with a model that a folder of steps holds, in order: a transcript's body."""
    files = StepFiles(directory)
    found = []
    for path in directory.glob("r*-d*-*-a*.json"):
        parts = path.stem.split("-")
        if len(parts) != 4 or parts[2] not in (Role.PLANNING, Role.GENERATION):
            continue
        if not all(part[1:].isdecimal() for part in (parts[0], parts[1], parts[3])):
            continue
        key = StepKey(
            round=int(parts[0][1:]),
            draft=int(parts[1][1:]),
            role=Role(parts[2]),
            attempt=int(parts[3][1:]),
        )
        asked = _read(key, ASKED, files.find(key) or "")[1]
        found.append(Exchange(step=key, request=asked.request, reply=asked.reply))
    order = list(Role)
    return tuple(
        sorted(
            found,
            key=lambda e: (e.step.round, order.index(e.step.role), e.step.draft, e.step.attempt),
        )
    )


def _read(key: StepKey, form: TypeAdapter[T], text: str) -> tuple[float, T]:
    try:
        row = json.loads(text)
        if row["version"] != 1:
            raise ValueError(f"version {row['version']} is not known")
        return float(row["seconds"]), form.validate_json(json.dumps(row["result"]))
    except ValidationError as error:
        raise SpecError(
            f"the record of step {key} has another form than this version of kernelwright gives it "
            f"({first_problem(error)}): go on with the version that wrote it, or begin a new run"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        first = str(error).partition("\n")[0][:300]
        raise SpecError(
            f"the record of step {key} is damaged ({first}); delete it to take this step again"
        ) from error
