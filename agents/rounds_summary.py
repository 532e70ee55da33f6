"""How a run with agents stands: its rounds, what they came to, and what the models cost.

Owns ``rounds.json`` of a run directory. It is derived from the loop's steps, for people and for the
commands that show a run.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from agents.brief import RoundSummary
from agents.loop import PARKED, Ending
from agents.step_journal import Spent, recorded_exchanges
from tuner.errors import EnvironmentProblem
from tuner.files import UnreadableFile, read_bounded, write_whole

FILE = "rounds.json"
STEPS = "llm"

_GAVE_OUT = ("model", "calls", "tokens", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsSummary:
    """``reason`` is why the loop ended; ``searched`` the round whose search is the run's result.

    That is the last that gained, else the one that came nearest; ``None`` where no round found
    a valid configuration. ``suffix`` names a further search of it.
    """

    reason: str
    detail: str
    gained: bool
    searched: Annotated[int, Field(ge=1, le=100)] | None
    rounds: tuple[RoundSummary, ...]
    spent: Spent
    suffix: Annotated[str, Field(pattern=r"^(?:-[a-z]{1,9}[0-9]{1,4})*$", max_length=40)] = ""

    @classmethod
    def of(cls, ending: Ending) -> "RoundsSummary":
        """The ledger of a loop that ended."""
        valid = [v for v in ending.progress.variants if v.verdict.speedup is not None]
        nearest = ending.progress.result_variant or max(
            valid, key=lambda v: v.speedup, default=None
        )
        return cls(
            reason=ending.reason,
            detail=ending.detail,
            gained=ending.best is not None,
            searched=nearest.round if nearest else None,
            rounds=ending.progress.rounds,
            spent=ending.spent,
            suffix=nearest.suffix if nearest else "",
        )

    @property
    def waiting(self) -> bool:
        """Whether a reply or the device is awaited elsewhere."""
        return self.reason in PARKED

    @property
    def gave_out(self) -> bool:
        """Whether the model side ended it before anything was gained."""
        if self.gained:
            return False
        return self.reason in _GAVE_OUT or self._fruitless

    @property
    def over(self) -> bool:
        """Whether another process would find nothing to do.

        A model that failed may be back, and what was stopped before it found anything goes on.
        """
        if self.waiting or (self.reason == "stopped" and self._fruitless):
            return False
        return self.gained or self.reason != "model"

    @property
    def _fruitless(self) -> bool:
        """Whether no round confirmed anything."""
        return not any(past.speedup for past in self.rounds)


_SUMMARIES: TypeAdapter[RoundsSummary] = TypeAdapter(RoundsSummary)


def summary_json(ledger: RoundsSummary) -> dict[str, object]:
    """The ledger as JSON data."""
    plain: dict[str, object] = _SUMMARIES.dump_python(ledger, mode="json")
    return plain


def write_summary(run: Path, ledger: RoundsSummary) -> None:
    """Keep it; raises ``EnvironmentProblem`` if it cannot be written."""
    text = json.dumps(summary_json(ledger), ensure_ascii=False, indent=1)
    write_whole(run / FILE, f"{text}\n")


def discard_summary(run: Path) -> None:
    """Forget how an earlier life of the loop ended, since it goes on."""
    (run / FILE).unlink(missing_ok=True)


def read_summary(run: Path) -> RoundsSummary | None:
    """The ledger of a loop that ended; ``None`` while it goes on.

    Raises:
        EnvironmentProblem: it is damaged.
    """
    path = run / FILE
    try:
        text = read_bounded(path, 16 * 1024 * 1024)
        return None if text is None else _SUMMARIES.validate_json(text)
    except (UnreadableFile, ValidationError) as error:
        raise EnvironmentProblem(
            f"{path} cannot be read; delete it, and `kernelwright resume` writes it anew"
        ) from error


def spent_so_far(run: Path) -> Spent:
    """What the models' replies in a run directory cost, also while the run goes on."""
    spent = Spent()
    for exchange in recorded_exchanges(run / STEPS):
        spent = spent.after(exchange.reply)
    return spent
