"""The loop over a real session, a real driver and a simulated fleet; models are transcripts."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from agents.llm.mailbox import Mailbox, answer, pending
from agents.llm.port import Reply, Request, Role, StepKey
from agents.llm.port import TokenUsage as Tokens
from agents.llm.replay import Exchange, Header, Replay, Transcript
from agents.loop import Ending, run_rounds
from agents.planning import Task, Variant, brief_of
from agents.settings import AgentSettings
from agents.static_profile import StaticProfile
from agents.step_journal import StepFiles, recorded_exchanges
from agents.verdict import Admitted, Refused, Verdict, round_verdict
from tests.agents.briefs import FAMILY, twice
from tests.agents.devices import CPU
from tests.tuner.engine.simulated_fleet import Fault, SimulatedFleet
from tuner.candidate import INCUMBENT
from tuner.engine.engine import Engine
from tuner.engine.session import Session
from tuner.errors import DeviceNeeded
from tuner.experiment.digest import kernel_digest
from tuner.experiment.model import ConfirmSettings, Experiment, SearchSettings, Template
from tuner.journal.facts import (
    ConfirmationSampled,
    Entry,
    EpochOpened,
    Fact,
    IncumbentEntered,
    RunFinished,
    TrialProposed,
)
from tuner.journal.history import History
from tuner.plan import Usage
from tuner.results.statistics import Comparison
from tuner.results.summary import summarise
from tuner.search.select import make_proposer
from tuner.space.feasible import feasible_set
from tuner.trial import Configuration, Value

BASELINE_NS = (1000.0, 2000.0, 4000.0)

some_kills = pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.slow)])
"""A process is killed after every eleventh write, and in the slow tier after every one."""


def plain() -> Experiment:
    search = SearchSettings(strategy="random", trials=9, seconds=1e6)
    return replace(
        twice(), template=None, search=search, confirm=ConfirmSettings(top=2, processes=3)
    )


def suggestion(stop: bool = False) -> str:
    fields = {
        "bottleneck": "loads",
        "strategy": "vectors",
        "expected_effect": "2x",
        "refuted_by": "VEC does nothing",
        "stop": stop,
    }
    return json.dumps(fields)


def draft(best: float, source: str = FAMILY) -> str:
    """A template whose best configuration takes ``best`` of the baseline's time, simulated."""
    part = round(100 * best)
    fields = {
        "entry": "twice",
        "parameters": {
            "VEC": {"values": [1, 2, 4, 8, 16], "reason": "width"},
            "BLOCK": {"values": [1, 16], "reason": "size"},
            "MODE": {"values": ["sum", "product"], "reason": "form"},
            "PART": {"values": [part], "reason": "how long it takes, in percent"},
        },
        "launch": {"grid": ["ceil_div(d, VEC * BLOCK)", "tokens"], "block": ["BLOCK"]},
        "rationale": f"takes {best}",
        "seeds": [{"VEC": 8, "BLOCK": 16, "MODE": "sum", "PART": part}],
    }
    source = source.replace("2 * e;", "(PART ? 2 : 2) * e;")
    return f"```json\n{json.dumps(fields)}\n```\n```c\n{source}```\n"


BROKEN = FAMILY.replace("int d) {", "int d) {\n#error broken\n", 1)


def key(round_number: int, role: Role, attempt: int = 0) -> StepKey:
    return StepKey(round=round_number, draft=0, role=role, attempt=attempt)


def script(*rounds: tuple[list[str], list[str]]) -> Transcript:
    """A transcript from each round's planning and generation replies."""
    exchanges = []
    for number, (planned, generated) in enumerate(rounds, 1):
        for role, texts in ((Role.PLANNING, planned), (Role.GENERATION, generated)):
            for attempt, text in enumerate(texts):
                reply = Reply(text=text, cost_usd=0.125, usage=Tokens(output_tokens=10))
                exchanges.append(
                    Exchange(step=key(number, role, attempt), request="0" * 64, reply=reply)
                )
    kernel = kernel_digest(plain().kernel)
    header = Header(experiment="twice", kernel=kernel, made="by a test")
    return Transcript(header=header, exchanges=tuple(exchanges))


class KilledError(Exception):
    """The process ends here."""


@dataclass
class Disk:
    """What outlives a process. After ``kill_after`` writes, the process dies with the next."""

    steps: dict[str, str] = field(default_factory=dict)
    facts: dict[str, list[Fact]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    admissions: int = 0
    writes: int = 0
    kill_after: int | None = None

    def wrote(self) -> None:
        self.writes += 1
        if self.writes == self.kill_after:
            raise KilledError

    def find(self, step: str) -> str | None:
        return self.steps.get(step)

    def record(self, step: str, text: str) -> None:
        assert step not in self.steps
        self.steps[step] = text
        self.wrote()


@dataclass
class RoundJournal:
    disk: Disk
    search: str

    def append(self, *entries: Entry) -> None:
        for entry in entries:
            self.disk.facts[self.search].append(entry.fact)
            self.disk.wrote()

    def sync(self) -> None:
        pass


class Counting:
    """A model that notes on disk which positions were asked, as a provider's bill would."""

    def __init__(self, transcript: Transcript, disk: Disk) -> None:
        self._replay = Replay(transcript)
        self._disk = disk

    async def complete(self, request: Request) -> Reply:
        reply = await self._replay.complete(request)
        self._disk.asked[str(request.position)] += 1
        return reply

    async def price(self, request: Request) -> float:
        return self.next_price

    next_price = 0.0


class SimulatedEvaluator:
    def __init__(self, disk: Disk, faults: Mapping[int, Fault] | None = None) -> None:
        self._disk = disk
        self._seconds = 0.0
        self._faults = faults or {}

    def now(self) -> float:
        return self._seconds

    def committed(self, known: float) -> float:
        return known

    def confirming(self) -> float:
        return 0.0

    def part(self, values: dict[str, Value]) -> float:
        """The share of the baseline's time that a configuration takes."""
        worse = abs(int(values["VEC"]).bit_length() - 4) + (values["BLOCK"] == 1)
        return int(values["PART"]) / 100 * (1 + worse / 10)

    def uneven(self, values: dict[str, Value], shape: int) -> float:
        """How much more than its part a configuration takes on a shape."""
        return 1.0

    async def admit(self, experiment: Experiment, template: Template) -> Admitted | Refused:
        self._disk.admissions += 1
        if "#error" in template.source.text:
            return Refused(by="The compiler", detail="twice.cl:3: error: #error broken")
        assert len(feasible_set(experiment, template, CPU))
        return Admitted()

    async def search(
        self,
        round_number: int,
        experiment: Experiment,
        seeds: tuple[dict[str, Value], ...],
        suffix: str = "",
        incumbents: tuple[IncumbentEntered, ...] = (),
    ) -> Verdict:
        return await self._run(experiment, seeds, f"{round_number}{suffix}", incumbents, rest=False)

    async def confirm_finally(self, best: Variant, suffix: str) -> Verdict:
        experiment, name = replace(plain(), template=best.template), f"{best.round}{suffix}"
        if name not in self._disk.facts:
            before = self._disk.facts[str(best.round)]
            self._disk.facts[name] = [f for f in before if not isinstance(f, RunFinished)]
        return await self._run(experiment, (), name, (), rest=True)

    async def _run(
        self,
        experiment: Experiment,
        seeds: tuple[dict[str, Value], ...],
        name: str,
        incumbents: tuple[IncumbentEntered, ...],
        *,
        rest: bool,
    ) -> Verdict:
        template = experiment.template
        assert template is not None
        best = float(template.rationale.removeprefix("takes "))
        speed = self.speeds.get(int(name[0]), 1.0)

        def cost(point: Configuration, shape: int) -> float:
            part = self.part(point.as_dict()) * self.uneven(point.as_dict(), shape)
            return BASELINE_NS[shape] * part / speed

        fleet = SimulatedFleet(
            device=CPU,
            baseline_ns=BASELINE_NS,
            cost=cost,
            noise=0.002,
            seed=3,
            faults=self._faults,
        )
        space = feasible_set(experiment, template, CPU)
        proposer = make_proposer(replace(experiment.search, seeds=seeds), space)
        journal = RoundJournal(self._disk, name)
        history = History(experiment)
        for fact in self._disk.facts.setdefault(name, []):
            history.apply(Entry(fact))
            if isinstance(fact, TrialProposed):
                proposer.record(fact.trial, fact.configuration)

        async def opener() -> SimulatedFleet:
            return fleet

        engine = Engine(opener)
        opened = EpochOpened(device=CPU, environment="same")
        for fact in (opened, *incumbents[len(history.incumbents) :]):
            history.apply(engine.append(journal, fact))
        async for _ in engine.drive(Session(history, secret=1, rest=rest), journal, proposer):
            pass
        self._seconds += fleet.now()
        found = round_verdict(history, summarise(history))
        return replace(found, static=StaticProfile(usage=Usage(registers=round(100 * best))))

    async def search_meanwhile(
        self,
        best: Variant,
        incumbents: tuple[IncumbentEntered, ...],
        suffix: str,
        until: Callable[[], bool],
    ) -> None:
        self.further += 1
        while not until():
            await asyncio.sleep(0)

    async def confirm_meanwhile(
        self, best: Variant, incumbents: tuple[IncumbentEntered, ...], suffix: str
    ) -> Verdict | None:
        if not self.further:
            return None
        gain = Comparison(speedup=2.0, low=1.5, high=2.5, verdict="faster", processes=3)
        return replace(best.verdict, gain=gain, trials=99)

    further = 0
    speeds: Mapping[int, float] = MappingProxyType({})
    """How much faster all but the baseline are in a round, as on another day."""


def task(**settings: object) -> Task:
    return Task(
        experiment=plain(),
        device=CPU,
        baseline_us=(1.0, 2.0),
        floor_us=(0.1, 0.2),
        agents=AgentSettings(**({"rounds": 3} | settings)),  # type: ignore[arg-type]
    )


def run(transcript: Transcript, disk: Disk | None = None, **settings: object) -> Ending:
    disk = disk or Disk()
    return asyncio.run(
        run_rounds(task(**settings), Counting(transcript, disk), SimulatedEvaluator(disk), disk)
    )


GOOD = script(
    ([suggestion()], [draft(0.8)]),
    (["no", suggestion()], [draft(0.7, BROKEN), "I forgot", draft(0.5)]),
    ([suggestion()], [draft(0.9)]),
)


def test_rounds_build_on_the_best_confirmed() -> None:
    disk = Disk()
    ending = run(GOOD, disk)
    assert ending.reason == "rounds"
    assert [past.verdict for past in ending.state.rounds] == [
        "improved",
        "improved",
        "no significant gain",
    ]
    assert ending.best is not None
    assert ending.best.round == 2
    assert ending.best.speedup == pytest.approx(2.0, rel=0.02)
    assert [variant.parent for variant in ending.state.variants] == [
        None,
        ending.state.variants[0].digest,
        ending.best.digest,
    ]
    assert ending.spent.calls == 9
    assert ending.spent.cost_usd == 1.125
    assert ending.spent.output_tokens == 90
    trials = [fact for name in "123" for fact in disk.facts[name] if fact.kind == "trial.proposed"]
    assert len(trials) == 9
    first = {"VEC": 8, "BLOCK": 16, "MODE": "sum", "PART": 80}
    assert trials[0].configuration.as_dict() == first
    assert [past.gain and round(past.gain.speedup, 1) for past in ending.state.rounds] == [
        None,
        1.6,
        0.6,
    ]


def confirmed_again(disk: Disk, search: str) -> list[bool]:
    """Whether the incumbent was in each of a search's confirming processes."""
    found = [fact for fact in disk.facts[search] if isinstance(fact, ConfirmationSampled)]
    return [any(sample.trial == INCUMBENT for sample in fact.samples) for fact in found]


def test_what_was_there_is_met_in_the_same_processes_and_decides() -> None:
    """On the second day all is 1.5 times as fast; the second template is slower all the same."""

    class NextDay(SimulatedEvaluator):
        speeds = MappingProxyType({2: 1.5})

    disk = Disk()
    replies = script(([suggestion()], [draft(0.6)]), ([suggestion()], [draft(0.7)]))
    ending = asyncio.run(run_rounds(task(rounds=2), Counting(replies, disk), NextDay(disk), disk))
    first, second = ending.state.variants
    assert second.speedup > 1.2 * first.speedup
    assert ending.best == first
    assert ending.state.rounds[1].verdict == "no significant gain"
    assert confirmed_again(disk, "1") == [False] * 3
    assert confirmed_again(disk, "2") == [True] * 3


def confirmed_shapes(disk: Disk, search: str) -> list[set[int]]:
    """The shapes that each of a search's confirming processes timed."""
    found = [fact for fact in disk.facts[search] if isinstance(fact, ConfirmationSampled)]
    return [{sample.shape for sample in fact.samples} for fact in found]


def test_held_out_shapes_are_timed_once_the_rounds_are_over() -> None:
    disk = Disk()
    ending = run(GOOD, disk)
    for search in "123":
        assert confirmed_shapes(disk, search) == [{0, 1}] * 3
    assert sorted(disk.facts) == ["1", "2", "2-final2", "3"]
    assert confirmed_shapes(disk, "2-final2") == [{0, 1}] * 3 + [{2}] * 3
    summary = ending.summary
    assert (summary.searched, summary.suffix) == (2, "-final2")
    assert ending.best is not None
    assert ending.best.verdict.trials == 3


def test_what_fails_on_held_out_shapes_gives_way_to_the_round_before() -> None:
    class WrongThere(SimulatedEvaluator):
        async def confirm_finally(self, best: Variant, suffix: str) -> Verdict:
            if best.round == 2:
                return best.verdict.unconfirmed("wrong on a held-out shape")
            return await super().confirm_finally(best, suffix)

    disk = Disk()
    ending = asyncio.run(run_rounds(task(), Counting(GOOD, disk), WrongThere(disk), disk))
    assert ending.best is not None
    assert (ending.best.round, ending.best.speedup) == (1, pytest.approx(1.25, rel=0.02))
    summary = ending.summary
    assert (summary.searched, summary.suffix) == (1, "-final1")
    assert confirmed_shapes(disk, "1-final1")[-1] == {2}
    assert ending.state.variants[1].verdict.speedup is None


class Uneven(SimulatedEvaluator):
    """What takes 70 % is twice as fast on the first shape, and half as slow again elsewhere."""

    def uneven(self, values: dict[str, Value], shape: int) -> float:
        return (0.5 if shape == 0 else 1.5) if values["PART"] == 70 else 1.0


def test_what_is_faster_on_some_shapes_alone_stands_beside_the_best() -> None:
    disk = Disk()
    rounds = [([suggestion()], [draft(part)]) for part in (0.6, 0.7, 0.65)]
    ending = asyncio.run(run_rounds(task(), Counting(script(*rounds), disk), Uneven(disk), disk))
    first, second, third = ending.state.variants
    assert (ending.best, ending.state.result_variant) == (first, second)
    assert ending.state.without_gain == 1
    words = [past.verdict for past in ending.state.rounds]
    assert words[1].endswith("over all shapes, but the portfolio with it is faster")
    assert words[2] == "no significant gain"
    gain = ending.state.rounds[1].portfolio_gain
    assert gain is not None
    assert gain.speedup == pytest.approx((0.6 / 0.35) ** 0.5, rel=0.02)
    assert [one.template for one in ending.state.incumbents] == [
        first.template,
        second.template,
    ]
    assert third.verdict.incumbents == ending.state.incumbents
    brief = brief_of(task(), ending.state)
    (specialist,) = brief.specialists
    assert specialist.template == second.template
    (served,) = specialist.shapes
    assert served.shape == brief.shapes[0].shape
    assert served.baseline == second.verdict.baseline_us[0]
    assert [row.baseline for row in brief.shapes] == list(first.verdict.baseline_us)
    assert served.best is not None
    assert brief.shapes[0].best == pytest.approx(served.best * 0.6 / 0.35, rel=0.02)
    entered = [fact for fact in disk.facts["3"] if fact.kind == "incumbent.entered"]
    assert tuple(entered) == ending.state.incumbents
    assert ending.summary.searched == 2
    assert second.parent == third.parent == first.digest


def test_what_served_some_shapes_and_fails_later_is_not_what_stands() -> None:
    disk = Disk()
    rounds = [([suggestion()], [draft(part)]) for part in (0.6, 0.7, 0.65)]
    evaluator = Uneven(disk, {INCUMBENT - 1: Fault.WRONG_LATER})
    ending = asyncio.run(run_rounds(task(), Counting(script(*rounds), disk), evaluator, disk))
    first, _, third = ending.state.variants
    assert (ending.best, ending.state.result_variant) == (first, third)
    assert [one.template for one in ending.state.incumbents] == [first.template]


@pytest.mark.parametrize(
    ("parts", "left"), [((0.5, 0.8), [0.8]), ((0.5, 1.0), [])], ids=["another", "none"]
)
def test_what_was_there_and_fails_later_gives_way_to_whatever_beats_the_kernel(
    parts: tuple[float, float], left: list[float]
) -> None:
    disk = Disk()
    evaluator = SimulatedEvaluator(disk, {INCUMBENT: Fault.WRONG_LATER})
    replies = script(*[([suggestion()], [draft(part)]) for part in parts])
    ending = asyncio.run(run_rounds(task(rounds=2), Counting(replies, disk), evaluator, disk))
    found = [ending.best.template.parameters["PART"][0]] if ending.best else []
    assert found == [100 * part for part in left]
    first = ending.state.variants[0]
    assert first.verdict.speedup is None
    assert first.verdict.advice[-1] == "simulated"
    assert ending.state.rounds[1].verdict.endswith(
        "; the incumbent failed in confirmation: simulated"
    )
    assert ending.summary.searched == 2


def test_a_recorded_repair_is_asked_for_only_after_its_failure() -> None:
    disk = Disk()
    run(script(([suggestion()], [draft(0.5), draft(0.1)]), ([suggestion(stop=True)], [])), disk)
    assert not any("generation-a1" in position for position in disk.asked)


def settled(ending: Ending) -> object:
    """All of an ending but the seconds, which a killed process takes again."""

    def timeless(variant: Variant) -> Variant:
        return replace(variant, verdict=replace(variant.verdict, seconds=0.0))

    progress = replace(
        ending.state,
        best=ending.best and timeless(ending.best),
        result_variant=ending.state.result_variant and timeless(ending.state.result_variant),
        variants=tuple(map(timeless, ending.state.variants)),
        search_seconds=0.0,
    )
    return ending.reason, progress, replace(ending.spent, seconds=0.0)


@some_kills
def test_two_incumbents_are_entered_wherever_a_process_is_killed(every: int) -> None:
    rounds = script(*[([suggestion()], [draft(part)]) for part in (0.6, 0.7, 0.65)])

    def run_uneven(disk: Disk) -> object:
        return settled(asyncio.run(run_rounds(task(), Counting(rounds, disk), Uneven(disk), disk)))

    undisturbed = Disk()
    expected = run_uneven(undisturbed)
    for kill_after in range(undisturbed.writes // 2, undisturbed.writes + 1, every):
        disk = Disk(kill_after=kill_after)
        with pytest.raises(KilledError):
            run_uneven(disk)
        assert run_uneven(disk) == expected, f"killed after write {kill_after}"


@some_kills
def test_killed_after_any_write_and_resumed_it_ends_the_same_and_pays_once(every: int) -> None:
    undisturbed = Disk()
    expected = settled(run(GOOD, undisturbed))
    for kill_after in range(1, undisturbed.writes + 1, every):
        disk = Disk(kill_after=kill_after)
        with pytest.raises(KilledError):
            run(GOOD, disk)
        assert settled(run(GOOD, disk)) == expected, f"killed after write {kill_after}"
        assert set(disk.asked.values()) == {1}
        assert disk.asked.keys() == undisturbed.asked.keys()
        assert disk.admissions == undisturbed.admissions


def test_a_model_that_only_answers_nonsense_ends_with_nothing() -> None:
    ending = run(script((["hm", "hm"], []), (["hm", "{}"], [])))
    assert ending.reason == "no_gain"
    assert ending.best is None
    assert "no usable suggestion" in ending.state.rounds[0].verdict


def test_patience_says_how_many_rounds_without_a_gain_are_borne() -> None:
    slower = ([suggestion()], [draft(2.0)])
    for patience in (1, 2):
        ending = run(script(([suggestion()], [draft(0.5)]), *[slower] * 2), patience=patience)
        assert ending.reason == "no_gain"
        assert len(ending.state.rounds) == 1 + patience


def test_the_unchanged_kernel_is_no_template() -> None:
    same = draft(0.5, plain().kernel.source.text)
    same = same.replace("ceil_div(d, VEC * BLOCK)", "ceil_div(d, 64)").replace('["BLOCK"]', "[64]")
    ending = run(script(*[([suggestion()], [same] * 4)] * 2))
    assert ending.reason == "no_gain"
    assert "the plain kernel, unchanged" in ending.state.rounds[0].verdict
    assert ending.spent.calls == 10


def test_three_repairs_and_no_more() -> None:
    disk = Disk()
    bad = [draft(0.5, BROKEN)] * 4
    ending = run(script(([suggestion()], [*bad, draft(0.1)])), disk, rounds=1)
    assert disk.admissions == 4
    assert "#error broken" in ending.state.rounds[0].verdict
    assert ending.reason == "rounds"


def test_an_unreadable_template_is_asked_for_once_more() -> None:
    disk = Disk()
    ending = run(script(([suggestion()], ["?", "?", draft(0.1)])), disk, rounds=1)
    assert ending.best is None
    assert ending.spent.calls == 3


@pytest.mark.parametrize(
    ("limits", "reason", "calls"),
    [
        ({"max_calls": 3}, "calls", 3),
        ({"max_calls": 0}, "calls", 0),
        ({"max_cost_usd": 0.25}, "cost", 2),
        ({"max_cost_usd": 0.0}, "cost", 0),
        ({"max_tokens": 100}, "tokens", 0),
        ({"seconds": 0.0}, "seconds", 0),
    ],
)
def test_a_budget_is_kept_before_a_call(limits: dict[str, object], reason: str, calls: int) -> None:
    disk = Disk()
    ending = run(GOOD, disk, **limits)
    assert ending.reason == reason
    assert sum(disk.asked.values()) == calls


def test_time_ends_it_too() -> None:
    assert run(GOOD, seconds=1.0).reason == "seconds"


class TooLate(SimulatedEvaluator):
    """Once the second round's draft is admitted, too little time is left for a round."""

    first_is_valid = True

    def committed(self, known: float) -> float:
        return 0.0 if self._disk.admissions < 2 else plain().search.seconds - 5.0

    def confirming(self) -> float:
        return 10.0

    async def search(self, round_number: int, *given: Any, **more: Any) -> Verdict:
        wrong = round_number == 1 and not self.first_is_valid
        self._faults = dict.fromkeys(range(1000), Fault.WRONG) if wrong else {}
        return await super().search(round_number, *given, **more)


@pytest.mark.parametrize("first_is_valid", [True, False])
def test_a_draft_that_was_paid_for_is_searched_if_there_is_no_result_yet(
    first_is_valid: bool,
) -> None:
    disk = Disk()
    evaluator = TooLate(disk)
    evaluator.first_is_valid = first_is_valid
    transcript = script(([suggestion()], [draft(0.8)]), ([suggestion()], [draft(0.5)]))
    ending = asyncio.run(run_rounds(task(rounds=2), Counting(transcript, disk), evaluator, disk))
    assert ending.best is not None
    if first_is_valid:
        assert (ending.reason, ending.best.round) == ("search", 1)
        assert "5 of " in ending.detail
        assert "are left for a round" in ending.detail
    else:
        assert (ending.reason, ending.best.round) == ("rounds", 2)


def test_near_the_ceiling_it_stops() -> None:
    transcript = script(([suggestion()], [draft(0.1)]))
    assert run(transcript).reason == "ceiling"


def test_the_model_may_see_nothing_left() -> None:
    ending = run(script(([suggestion()], [draft(0.5)]), ([suggestion(stop=True)], [])))
    assert ending.reason == "planned"
    assert ending.best is not None


def test_a_transcript_that_ends_early_keeps_what_was_gained() -> None:
    ending = run(script(([suggestion()], [draft(0.5)])))
    assert ending.reason == "model"
    assert "no reply for r2-d0-planning-a0" in ending.detail
    assert ending.best is not None


def test_through_a_mailbox_one_reply_at_a_time(tmp_path: Path) -> None:
    """Each process posts one request, exits, and the next goes on; the files are a transcript."""
    disk, replies = Disk(), {exchange.step: exchange.reply for exchange in GOOD.exchanges}
    box = tmp_path / "box"

    def once() -> Ending:
        model = Mailbox(box, exit_when_waiting=True)
        steps = StepFiles(tmp_path / "llm")
        return asyncio.run(run_rounds(task(), model, SimulatedEvaluator(disk), steps))

    waits = 0
    while (ending := once()).reason == "waiting":
        waits += 1
        assert waits <= len(replies)
        (request,) = pending(box)
        answer(box, request, replies[request.position.step])
    assert waits == len(replies)
    assert settled(ending) == settled(run(GOOD))
    recorded = recorded_exchanges(tmp_path / "llm")
    assert [(e.step, e.reply) for e in recorded] == [(e.step, e.reply) for e in GOOD.exchanges]


def test_nothing_of_the_held_out_shapes_or_secrets_is_asked(tmp_path: Path) -> None:
    seen: list[str] = []

    class Watching(Counting):
        async def complete(self, request: Request) -> Reply:
            seen.extend(message.content for message in request.messages)
            return await super().complete(request)

    disk = Disk()
    asyncio.run(run_rounds(task(), Watching(GOOD, disk), SimulatedEvaluator(disk), disk))
    assert len(seen) > 16
    assert not any("6917" in text for text in seen)
    assert any("error: #error broken" in text for text in seen)


def test_a_call_that_may_cost_more_than_is_left_is_not_made() -> None:
    class Dear(Counting):
        next_price = 0.3

    disk = Disk()
    limited = task(max_cost_usd=0.5)
    ending = asyncio.run(run_rounds(limited, Dear(GOOD, disk), SimulatedEvaluator(disk), disk))
    assert ending.reason == "cost"
    assert ending.detail == "the remaining money does not cover another model call"
    assert ending.spent.cost_usd == 0.25
    assert ending.spent.cost_usd + Dear.next_price > 0.5


def test_a_model_that_never_answers_ends_with_the_time() -> None:
    class Silent(Counting):
        async def complete(self, request: Request) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

    disk = Disk()
    limited = task(seconds=0.05)
    ending = asyncio.run(run_rounds(limited, Silent(GOOD, disk), SimulatedEvaluator(disk), disk))
    assert ending.reason == "seconds"
    assert ending.spent.calls == 0


def drafts(*texts: str) -> Transcript:
    """One round whose drafts are answered with the texts, in order."""
    plan = Exchange(step=key(1, Role.PLANNING), request="0" * 64, reply=Reply(text=suggestion()))
    written = [
        Exchange(
            step=StepKey(round=1, draft=number, role=Role.GENERATION, attempt=0),
            request="0" * 64,
            reply=Reply(text=text),
        )
        for number, text in enumerate(texts)
    ]
    header = Header(experiment="twice", kernel=kernel_digest(plain().kernel), made="by a test")
    return Transcript(header=header, exchanges=(plan, *written))


def wide(
    transcript: Transcript, disk: Disk, width: int, trials: int = 24, proposals: int = 0
) -> Ending:
    chosen = task(rounds=1, width=width, proposals=proposals)
    search = replace(chosen.experiment.search, trials=trials)
    experiment = replace(chosen.experiment, search=search)
    chosen = replace(chosen, experiment=experiment)
    return asyncio.run(
        run_rounds(chosen, Counting(transcript, disk), SimulatedEvaluator(disk), disk)
    )


def test_drafts_are_searched_against_each_other_on_one_budget() -> None:
    disk = Disk()
    ending = wide(drafts(draft(0.7), draft(0.3), draft(0.5), draft(0.9)), disk, width=4)
    assert ending.best is not None
    assert ending.best.template.rationale == "takes 0.3"
    rungs = ["d0-rung0", "d1-rung0", "d1-rung1", "d2-rung0", "d2-rung1", "d3-rung0"]
    assert sorted(disk.facts) == ["1", *(f"1-{name}" for name in rungs), "1-final1"]
    assert len(ending.state.variants) == 4
    assert 20 <= ending.state.trials <= 24
    assert len(ending.state.rounds) == 1
    assert ending.best.verdict.trials == 2 + 4 + 8


ADVISED = {"VEC": 1, "BLOCK": 1, "MODE": "product", "PART": 30}


@pytest.mark.parametrize(
    ("reply", "tried"),
    [
        (json.dumps({"configurations": [ADVISED, {"VEC": 2}], "reason": "untried"}), True),
        ("no idea", False),
        (None, False),
    ],
)
def test_between_rungs_a_model_may_name_configurations(reply: str | None, *, tried: bool) -> None:
    transcript = drafts(draft(0.7), draft(0.3))
    if reply is not None:
        advice = Exchange(
            step=StepKey(round=1, draft=1, role=Role.TUNING, attempt=1),
            request="0" * 64,
            reply=Reply(text=reply),
        )
        transcript = replace(transcript, exchanges=(*transcript.exchanges, advice))
    disk = Disk()
    ending = wide(transcript, disk, width=2, proposals=1)
    assert ending.best is not None
    assert ending.best.template.rationale == "takes 0.3"
    first = next(fact.configuration for fact in disk.facts["1"] if isinstance(fact, TrialProposed))
    assert (first.as_dict() == ADVISED) == tried
    assert wide(transcript, disk, width=2, proposals=1) == ending
    assert all(count == 1 for count in disk.asked.values())


class Slow(Counting):
    """Thinks for as long as a device wants to do something."""

    async def complete(self, request: Request) -> Reply:
        await asyncio.sleep(0.1)
        return await super().complete(request)


def test_devices_go_on_with_the_incumbent_while_a_model_thinks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agents.round.OVERLAP_AFTER_SECONDS", 0.01)
    transcript = script(([suggestion()], [draft(0.8)]), ([suggestion(stop=True)], []))

    def go(disk: Disk, *, overlap: bool) -> tuple[Ending, SimulatedEvaluator]:
        evaluator = SimulatedEvaluator(disk)
        chosen = task(overlap=overlap)
        return asyncio.run(run_rounds(chosen, Slow(transcript, disk), evaluator, disk)), evaluator

    ending, evaluator = go(Disk(), overlap=False)
    assert (evaluator.further, ending.reason) == (0, "planned")
    disk = Disk()
    better, evaluator = go(disk, overlap=True)
    assert (evaluator.further, better.reason) == (1, "planned")
    assert better.best is not None
    assert better.best.verdict.trials == 99
    assert better.best.suffix == "-meanwhile2-final1"
    assert better.state.trials == ending.state.trials
    assert better.state.variants == (better.best,)
    again, evaluator = go(disk, overlap=True)
    assert again == better
    assert (evaluator.further, set(disk.asked.values())) == (0, {1})


class NoDevice(SimulatedEvaluator):
    async def admit(self, experiment: Experiment, template: Template) -> Admitted | Refused:
        await super().admit(experiment, template)
        raise DeviceNeeded("no device here")


def test_without_a_device_every_draft_is_asked_for_and_the_next_process_asks_none_again() -> None:
    disk, transcript = Disk(), drafts(draft(0.7), draft(0.3))
    chosen = replace(task(rounds=1, width=2), baseline_us=(None, None))
    model = Counting(transcript, disk)
    ending = asyncio.run(run_rounds(chosen, model, NoDevice(disk), disk))
    assert ending.reason == "device"
    assert ending.detail == (
        "r1-d0-admission-a0: the corners compile; no device here; "
        "r1-d1-admission-a0: the corners compile; no device here"
    )
    assert len(disk.asked) == 3
    ending = asyncio.run(run_rounds(chosen, model, SimulatedEvaluator(disk), disk))
    assert ending.best is not None
    assert set(disk.asked.values()) == {1}
    brief = brief_of(chosen, ending.state)
    assert all(shape.baseline is not None for shape in brief.shapes)


def test_a_bad_draft_does_not_hold_up_the_others() -> None:
    disk = Disk()
    ending = wide(drafts("?", draft(0.5)), disk, width=2)
    assert ending.best is not None
    assert ending.best.template.rationale == "takes 0.5"
    assert sorted(disk.facts) == ["1", "1-final1"]


@some_kills
def test_a_contest_killed_anywhere_ends_the_same(every: int) -> None:
    transcript = drafts(draft(0.7), draft(0.3))
    whole = Disk()
    expected = settled(wide(transcript, whole, width=2))
    for kill_after in range(1, whole.writes, 2 * every):
        disk = Disk(kill_after=kill_after)
        with pytest.raises(KilledError):
            wide(transcript, disk, width=2)
        assert settled(wide(transcript, disk, width=2)) == expected
        assert all(count == 1 for count in disk.asked.values())


def test_direct_mode_measures_whole_kernels() -> None:
    fields = {
        "entry": "twice",
        "launch": {"grid": ["ceil_div(d, 16)", "tokens"], "block": [16]},
        "rationale": "takes 0.5",
    }
    source = FAMILY.replace("VEC", "4").replace("MODE == MODE_sum", "true")
    text = f"```json\n{json.dumps(fields)}\n```\n```c\n{source}```\n"
    disk = Disk()
    chosen = task(rounds=1, mode="direct")
    model = Counting(drafts(text), disk)
    ending = asyncio.run(run_rounds(chosen, model, FixedWorkshop(disk), disk))
    assert ending.best is not None
    assert ending.best.template.parameters == {}
    assert ending.state.trials == 1
    assert ending.best.speedup == pytest.approx(2.0, rel=0.05)


class FixedWorkshop(SimulatedEvaluator):
    def part(self, values: dict[str, Value]) -> float:
        return 0.5
