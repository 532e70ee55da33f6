import asyncio
from pathlib import Path

import pytest

from agents.llm.port import Reply, Role, StepKey, TokenUsage
from agents.step_journal import CALLS, CallRecord, StepFiles, Steps, recorded_exchanges
from tuner.errors import EnvironmentProblem, SpecError

KEY = StepKey(round=1, draft=0, role=Role.PLANNING, attempt=0)
ASK = CallRecord(
    request="0" * 64,
    reply=Reply(text="µ\r\n", cost_usd=0.1, usage=TokenUsage(input_tokens=5, output_tokens=7)),
)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


def take(directory: Path, *, forbidden: bool = False) -> tuple[CallRecord, Steps]:
    clock = Clock()
    steps = Steps(StepFiles(directory), clock.now)

    async def act() -> CallRecord:
        assert not forbidden
        clock.seconds += 2.5
        return ASK

    return asyncio.run(steps.take(str(KEY), CALLS, act)), steps


def test_a_recorded_step_is_not_taken_again_but_counts(tmp_path: Path) -> None:
    first, before = take(tmp_path)
    second, after = take(tmp_path, forbidden=True)
    assert first == second == ASK
    assert before.spent == after.spent
    assert (after.spent.calls, after.spent.cost_usd, after.spent.seconds) == (1, 0.1, 2.5)
    assert (after.spent.input_tokens, after.spent.output_tokens) == (5, 7)


def test_a_step_that_failed_leaves_no_record(tmp_path: Path) -> None:
    async def fail() -> CallRecord:
        raise EnvironmentProblem("no")

    with pytest.raises(EnvironmentProblem):
        asyncio.run(Steps(StepFiles(tmp_path), Clock().now).take(str(KEY), CALLS, fail))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-5],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"version": 1', '"version": 9'),
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_record_is_named_with_its_remedy(tmp_path: Path, damage: object) -> None:
    take(tmp_path)
    path = tmp_path / f"{KEY}.json"
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with pytest.raises(SpecError, match=r"step r1-d0-planning-a0 is damaged .* delete it"):
        take(tmp_path, forbidden=True)


def test_a_record_of_another_version_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    take(tmp_path)
    path = tmp_path / f"{KEY}.json"
    path.write_text(path.read_text().replace('"text"', '"txt"'))
    with pytest.raises(SpecError, match=r"^the record of step r1.* or begin a new run$"):
        take(tmp_path, forbidden=True)


def test_a_record_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.json").mkdir()
    with pytest.raises(SpecError, match="delete it"):
        take(tmp_path, forbidden=True)


def test_foreign_files_are_no_exchanges(tmp_path: Path) -> None:
    take(tmp_path)
    for name in (
        "note.json",
        "r1-d0-admission-a0.json",
        "rx-d0-planning-a0.json",
        "r1-d0-a-b-a0.json",
    ):
        (tmp_path / name).write_text("{")
    (exchange,) = recorded_exchanges(tmp_path)
    assert (exchange.step, exchange.reply) == (KEY, ASK.reply)
