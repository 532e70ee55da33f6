"""The loop's steps, recorded by name and looked up before they are taken.

A recorded step is never taken again, and what it cost is counted as if it had been taken now. So a
resumed run ends like an undisturbed one, and no model call is paid for twice. Knows nothing of what
a step does.
"""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Protocol, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from agents.llm.port import Reply, Role, StepKey
from agents.llm.replay import Exchange
from tuner.errors import EnvironmentProblem, JournalUnwritable, SpecError
from tuner.files import UnreadableFile, first_problem, make_folder, read_bounded, write_whole
from tuner.printable import counted

T = TypeVar("T")

LIMIT_BYTES = 64 * 1024 * 1024
_CALL = re.compile(rf"r([0-9]+)-d([0-9]+)-({'|'.join(Role)})-a([0-9]+)")


class StepJournal(Protocol):
    """Where the records of steps are kept. A record is kept whole or not at all."""

    def find(self, name: str) -> str | None:
        """The record of a step; ``None`` if the step never finished."""
        ...

    def record(self, name: str, text: str) -> None:
        """Write a step's record to durable storage."""
        ...


class StepFiles:
    """A step journal in a folder: one file per step, ``briefs/r1`` in a subfolder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        make_folder(directory)

    def find(self, name: str) -> str | None:
        """The record of a step; raises ``SpecError`` if its file cannot be read."""
        path = self._directory / f"{name}.json"
        try:
            return read_bounded(path, LIMIT_BYTES)
        except UnreadableFile as error:
            raise SpecError(f"{path}: {error}; delete it to take this step again") from error

    def record(self, name: str, text: str) -> None:
        """Write a step's record; raises ``JournalUnwritable`` if that fails."""
        path = self._directory / f"{name}.json"
        try:
            make_folder(path.parent)
            write_whole(path, text)
        except EnvironmentProblem as error:
            raise JournalUnwritable(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """A model's reply and the digest of the request."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    request: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    reply: Reply


CALLS: TypeAdapter[CallRecord] = TypeAdapter(CallRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTotals:
    """Calls to models, their tokens and US dollars, and the seconds that steps took."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{counted(self.calls, 'call')}, {self.input_tokens} tokens "
            f"read, {self.output_tokens} written, {self.cost_usd:.4f} USD"
        )

    def after(self, reply: Reply) -> "CallTotals":
        """The totals with one more call."""
        return replace(
            self,
            calls=self.calls + 1,
            input_tokens=self.input_tokens + reply.usage.input_tokens,
            output_tokens=self.output_tokens + reply.usage.output_tokens,
            cost_usd=self.cost_usd + reply.cost_usd,
        )


class Steps:
    """Takes each step once: looks it up, or acts and records it.

    Attributes:
        spent: What all steps so far cost, over every process of the run.

    Args:
        journal: Holds the records.
        now: Seconds on a monotonic clock.
    """

    def __init__(self, journal: StepJournal, now: Callable[[], float]) -> None:
        self._journal = journal
        self._now = now
        self.spent = CallTotals()

    def recall(self, name: str, form: TypeAdapter[T]) -> T:
        """The recorded result of a step.

        Raises:
            SpecError: There is no record, or it is damaged.
        """
        text = self._journal.find(name)
        if text is None:
            raise SpecError(f"there is no record of step {name}")
        return self._read(name, form, text)

    async def take(self, name: str, form: TypeAdapter[T], act: Callable[[], Awaitable[T]]) -> T:
        """The recorded result of a step; otherwise that of ``act``, recorded before it is used.

        Raises:
            SpecError: The record is damaged.
        """
        text = self._journal.find(name)
        if text is None:
            began = self._now()
            result = await act()
            row = {
                "version": 1,
                "seconds": max(0.0, self._now() - began),
                "result": form.dump_python(result, mode="json"),
            }
            text = json.dumps(row, ensure_ascii=False)
            self._journal.record(name, text)
        return self._read(name, form, text)

    def _read(self, name: str, form: TypeAdapter[T], text: str) -> T:
        seconds, result = _read(name, form, text)
        spent = self.spent.after(result.reply) if isinstance(result, CallRecord) else self.spent
        self.spent = replace(spent, seconds=spent.seconds + seconds)
        return result


def recorded_exchanges(directory: Path) -> tuple[Exchange, ...]:
    """Every model call recorded in a folder of steps, in order: the body of a transcript."""
    files, found = StepFiles(directory), []
    for path in directory.glob("r*.json"):
        if (match := _CALL.fullmatch(path.stem)) is None:
            continue
        key = StepKey(
            round=int(match[1]), draft=int(match[2]), role=Role(match[3]), attempt=int(match[4])
        )
        call = _read(path.stem, CALLS, files.find(path.stem) or "")[1]
        found.append(Exchange(step=key, request=call.request, reply=call.reply))
    order = list(Role)
    return tuple(
        sorted(
            found,
            key=lambda e: (e.step.round, order.index(e.step.role), e.step.draft, e.step.attempt),
        )
    )


def _read(name: str, form: TypeAdapter[T], text: str) -> tuple[float, T]:
    """The seconds that a recorded step took, and its result."""
    try:
        row = json.loads(text)
        if row["version"] != 1:
            raise ValueError(f"version {row['version']} is not known")
        return float(row["seconds"]), form.validate_json(json.dumps(row["result"]))
    except ValidationError as error:
        raise SpecError(
            f"the record of step {name} was written by another version of kernelwright "
            f"({first_problem(error)}): continue with that version, or begin a new run"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        first = str(error).partition("\n")[0][:300]
        raise SpecError(
            f"the record of step {name} is damaged ({first}); delete it to take this step again"
        ) from error
