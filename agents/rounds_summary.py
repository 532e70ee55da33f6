"""The summary of a run with agents: how it ended, its rounds and what the models cost.

Owns ``rounds.json`` of a run directory. It is derived from the loop's steps, for people and for the
commands that show a run.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from agents.brief import RoundSummary
from agents.step_journal import CallTotals, recorded_exchanges
from tuner.errors import EnvironmentProblem, JournalUnwritable
from tuner.files import UnreadableFile, read_bounded, write_whole

FILE = "rounds.json"
STEPS = "llm"

PARKED = ("waiting", "device")
"""Reasons after which a resume continues once the reply or the device is there."""

_MODEL_REASONS = ("model", "calls", "tokens", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsSummary:
    """How the loop ended.

    ``searched`` is the round whose search holds the result: the last that gained, else the one with
    the highest speedup; ``None`` if no round confirmed a configuration. ``suffix`` names a further
    search of that round.
    """

    reason: str
    detail: str
    gained: bool
    searched: Annotated[int, Field(ge=1, le=100)] | None
    rounds: tuple[RoundSummary, ...]
    spent: CallTotals
    suffix: Annotated[str, Field(pattern=r"^(?:-[a-z]{1,9}[0-9]{1,4})*$", max_length=40)] = ""

    @property
    def waiting(self) -> bool:
        """Whether the run waits for a reply or for the device."""
        return self.reason in PARKED

    @property
    def model_failed(self) -> bool:
        """Whether the model, or its budget, ended the run before anything was gained."""
        return not self.gained and (self.reason in _MODEL_REASONS or self._nothing_confirmed)

    @property
    def over(self) -> bool:
        """Whether a resume has nothing to do.

        A model that failed may work later, and a run stopped before it confirmed anything goes on.
        """
        if self.waiting or (self.reason == "stopped" and self._nothing_confirmed):
            return False
        return self.gained or self.reason != "model"

    @property
    def _nothing_confirmed(self) -> bool:
        return not any(past.speedup for past in self.rounds)


_SUMMARIES: TypeAdapter[RoundsSummary] = TypeAdapter(RoundsSummary)


def summary_json(summary: RoundsSummary) -> dict[str, object]:
    """The summary as JSON data."""
    plain: dict[str, object] = _SUMMARIES.dump_python(summary, mode="json")
    return plain


def write_summary(run: Path, summary: RoundsSummary) -> None:
    """Write the summary into a run; raises ``JournalUnwritable`` if that fails."""
    text = json.dumps(summary_json(summary), ensure_ascii=False, indent=1)
    try:
        write_whole(run / FILE, f"{text}\n")
    except EnvironmentProblem as error:
        raise JournalUnwritable(str(error)) from error


def discard_summary(run: Path) -> None:
    """Delete the summary, since the loop continues."""
    (run / FILE).unlink(missing_ok=True)


def read_summary(run: Path) -> RoundsSummary | None:
    """The summary of a loop that ended; ``None`` while it runs.

    Raises:
        EnvironmentProblem: The file is damaged.
    """
    path = run / FILE
    try:
        text = read_bounded(path, 16 * 1024 * 1024)
        return None if text is None else _SUMMARIES.validate_json(text)
    except (UnreadableFile, ValidationError) as error:
        raise EnvironmentProblem(
            f"{path} cannot be read; delete it, and `kernelwright resume` writes it again"
        ) from error


def spent_so_far(run: Path) -> CallTotals:
    """What the model calls of a run cost, also while the run continues."""
    spent = CallTotals()
    for exchange in recorded_exchanges(run / STEPS):
        spent = spent.after(exchange.reply)
    return spent
