"""Each role alone, from what a run recorded: no loop around it, and no device but for testing."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agents.generation.drafting import write_template
from agents.halving import successive_halving
from agents.llm.port import Message, Reply
from agents.loop import recorded_brief, run_rounds
from agents.planning import suggest
from agents.replies import GeneratedTemplate, Suggestion
from agents.step_journal import CallRecord, StepFiles
from agents.turns import Ask
from agents.verdict import Admitted, Refused, Verdict, round_verdict
from tests.agents.test_loop import (
    GOOD,
    Counting,
    Disk,
    SimulatedEvaluator,
    draft,
    plain,
    suggestion,
    task,
)
from tuner.errors import SpecError
from tuner.experiment.model import Experiment, Template
from tuner.journal.facts import Entry
from tuner.journal.history import History
from tuner.results.summary import summarise
from tuner.trial import Value


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Disk]:
    """A run of three rounds: its steps, and the journals of its searches."""
    steps, disk = tmp_path_factory.mktemp("run") / "llm", Disk()
    asyncio.run(
        run_rounds(task(), Counting(GOOD, disk), SimulatedEvaluator(disk), StepFiles(steps))
    )
    return steps, disk


def answers(*texts: str) -> tuple[Ask, list[tuple[Message, ...]]]:
    """A model that gives these replies, and what it was asked."""
    asked: list[tuple[Message, ...]] = []

    async def ask(attempt: int, messages: tuple[Message, ...], complaint: str) -> CallRecord:
        asked.append(messages)
        return CallRecord(request="0" * 64, reply=Reply(text=texts[attempt]))

    return ask, asked


def test_planning_alone(recorded: tuple[Path, Disk]) -> None:
    brief = recorded_brief(recorded[0], 3)
    ask, asked = answers(suggestion())
    found = asyncio.run(suggest(brief, ask))
    assert isinstance(found, Suggestion)
    assert "× over the previous best (" in asked[0][1].content


def test_generation_alone(recorded: tuple[Path, Disk]) -> None:
    brief = recorded_brief(recorded[0], 2)
    ask, asked = answers("?", draft(0.5))
    plan = asyncio.run(suggest(brief, answers(suggestion())[0]))
    assert isinstance(plan, Suggestion)

    async def admit(attempt: int, template: Template) -> Admitted | Refused:
        return Admitted()

    found = asyncio.run(write_template(brief, plan, ask, admit))
    assert isinstance(found, GeneratedTemplate)
    assert len(asked) == 2
    assert brief.incumbent is not None
    assert brief.incumbent.source.text in asked[0][1].content


def test_tuning_and_testing_alone(recorded: tuple[Path, Disk]) -> None:
    steps, disk = recorded
    template = recorded_brief(steps, 3).incumbent
    assert template is not None
    experiment = replace(plain(), template=template)

    async def search(
        number: int, rung: int, part: Experiment, seeds: tuple[dict[str, Value], ...]
    ) -> Verdict:
        assert (number, rung, part.template) == (0, 0, template)
        history = History.of(experiment, map(Entry, disk.facts["2"]))
        return round_verdict(history, summarise(history))

    async def propose(number: int, rung: int, found: Verdict) -> tuple[dict[str, Value], ...]:
        raise AssertionError("there is one rung")

    drafted = GeneratedTemplate(template=template, seeds=())
    outcome = asyncio.run(successive_halving({0: drafted}, experiment, (), search, propose))
    verdict = outcome.verdicts[outcome.winner]
    assert verdict.gained
    assert verdict.gain is not None
    assert verdict.gain.speedup == pytest.approx(1.6, rel=0.02)


def test_a_round_that_was_not_recorded_is_named(recorded: tuple[Path, Disk]) -> None:
    with pytest.raises(SpecError, match="no record of step briefs/r4"):
        recorded_brief(recorded[0], 4)
