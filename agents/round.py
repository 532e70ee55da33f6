"""One round: plan, draft, admit, search and judge.

Owns the order of its steps and their names:

    briefs/r1              the brief that round 1 begins with
    r1-d0-planning-a0      a model call: round, draft, role, attempt
    r1-d0-admission-a2     the admission of draft 0's attempt 2
    r1-d0-rung1            the search of draft 0 on rung 1
    r1-d0-tuning-a1        a model's configurations to try first on rung 1
    r1-meanwhile           what devices found while models were asked
"""

import asyncio
import math
from dataclasses import replace
from functools import partial
from typing import Literal

from agents.brief import BRIEFS, Brief, RoundSummary, round_messages
from agents.evaluator import TemplateEvaluator
from agents.generation.drafting import write_template
from agents.halving import HalvingResult, Seeds, round_experiment, rungs, successive_halving
from agents.llm.port import (
    LanguageModel,
    ModelUnavailable,
    Reply,
    Request,
    Role,
    Waiting,
)
from agents.patterns.pattern import seeds as inherited_seeds
from agents.planning import (
    STOP_DETAILS,
    RoundsState,
    StopReason,
    Task,
    Variant,
    brief_of,
    overspent,
    suggest,
)
from agents.replies import GeneratedTemplate, Suggestion, read_proposals
from agents.rounds_summary import PARKED
from agents.static_profile import roofline
from agents.step_journal import CallRecord, Steps
from agents.turns import Ask, asker
from agents.verdict import ADMISSIONS, MEANWHILE, VERDICTS, Admitted, Refused, Verdict
from tuner.errors import DeviceNeeded
from tuner.experiment.model import Experiment, Template
from tuner.results.landscape import landscape

EndReason = StopReason | Literal["model", "waiting", "device", "stopped"]

DETAILS: dict[str, str] = {**STOP_DETAILS, "stopped": "it was stopped on request"}
"""Reasons that need no more words, for people."""

OVERLAP_AFTER_SECONDS = 1.0
"""A model that answers sooner starts no search in the meantime."""

_NO_SUGGESTION = Suggestion(
    bottleneck="none named", strategy="none", expected_effect="none", refuted_by="nothing"
)


class RoundStopped(Exception):
    """Ends a round before its search is judged, and with it the loop."""

    def __init__(self, reason: EndReason, detail: str = "") -> None:
        super().__init__(detail or DETAILS[reason])
        self.reason: EndReason = reason


class Round:
    """One round. ``state`` is that before it, and what devices found in the meantime."""

    def __init__(
        self,
        task: Task,
        state: RoundsState,
        model: LanguageModel,
        evaluator: TemplateEvaluator,
        steps: Steps,
    ) -> None:
        self._task = task
        self.state = state
        self._model = model
        self._evaluator = evaluator
        self._steps = steps
        self._number = len(state.rounds) + 1

    async def run(self) -> RoundsState:
        """Take the round's steps; return the state after it."""
        self._share()
        try:
            suggestion, drafts = await self._plan_and_draft()
        except RoundStopped as stop:
            if stop.reason not in PARKED:
                await self._take_meanwhile()
            raise
        await self._take_meanwhile()
        if isinstance(drafts, str):
            summary = RoundSummary(number=self._number, suggestion=suggestion, verdict=drafts)
            return self.state.after(summary, None)
        return self._searched(suggestion, drafts, await self._search(drafts))

    async def _plan_and_draft(self) -> tuple[Suggestion, dict[int, GeneratedTemplate] | str]:
        """The models' suggestion and its drafts, or why there is no draft."""
        brief = await self._brief()
        suggestion = await suggest(brief, self._asker(Role.PLANNING))
        if isinstance(suggestion, Refused):
            return _NO_SUGGESTION, f"no usable suggestion: {suggestion.detail}"
        if suggestion.stop:
            raise RoundStopped("planned")
        drafts = await self._drafts(brief, suggestion)
        if isinstance(drafts, Refused):
            return suggestion, f"no usable template: {drafts.detail}"
        return suggestion, drafts

    async def _brief(self) -> Brief:
        async def act() -> Brief:
            return brief_of(self._task, self.state)

        return await self._steps.take(f"briefs/r{self._number}", BRIEFS, act)

    async def _drafts(
        self, brief: Brief, suggestion: Suggestion
    ) -> dict[int, GeneratedTemplate] | Refused:
        """The round's drafts by number. One that fails or waits does not delay the others."""
        agents = self._task.agents
        drafts, parked = dict[int, GeneratedTemplate](), list[RoundStopped]()
        failure: Refused | RoundStopped = Refused(by="The loop", detail="no draft was asked for")
        for draft in range(agents.width):
            try:
                found = await write_template(
                    brief,
                    suggestion,
                    self._asker(Role.GENERATION, draft),
                    partial(self._admit, draft),
                    mode=agents.mode,
                    draft=draft,
                    width=agents.width,
                )
            except RoundStopped as stop:
                if stop.reason in PARKED:
                    parked.append(stop)
                failure = stop
                continue
            if isinstance(found, Refused):
                failure = found
            else:
                drafts[draft] = found
        if parked:
            replies = any(stop.reason == "waiting" for stop in parked)
            raise RoundStopped("waiting" if replies else "device", "; ".join(map(str, parked)))
        if drafts:
            return drafts
        if isinstance(failure, RoundStopped):
            raise failure
        return failure

    def _asker(self, role: Role, draft: int = 0) -> Ask:
        return asker(
            self._steps,
            self._task.experiment,
            self._call,
            role,
            round_number=self._number,
            draft=draft,
        )

    async def _call(self, request: Request) -> CallRecord:
        """Call the model, if the budget covers the call."""
        agents, spent = self._task.agents, self._steps.spent
        if reason := overspent(agents, spent, request, await self._model.price(request)):
            raise RoundStopped(reason)
        try:
            seconds = math.inf if agents.seconds is None else agents.seconds
            reply = await self._completed(request, seconds - spent.seconds)
        except ModelUnavailable as error:
            raise RoundStopped("model", str(error)) from error
        if isinstance(reply, Waiting):
            raise RoundStopped("waiting", f"waiting for a reply to {reply.where}")
        return CallRecord(request=request.digest, reply=reply)

    async def _completed(self, request: Request, seconds: float) -> Reply | Waiting:
        """The model's answer; with ``overlap`` devices search while the model works."""
        best, clock = self.state.best, asyncio.get_running_loop().time
        end = clock() + seconds
        call = asyncio.ensure_future(self._model.complete(request))
        try:
            if best is not None and self._task.agents.overlap:
                await asyncio.wait([call], timeout=min(OVERLAP_AFTER_SECONDS, seconds))
                if not call.done():
                    await self._evaluator.search_meanwhile(
                        best,
                        self.state.incumbents,
                        self._meanwhile,
                        lambda: call.done() or clock() >= end,
                    )
            left = end - clock()
            await asyncio.wait([call], timeout=max(0.0, left) if math.isfinite(left) else None)
            if not call.done():
                raise RoundStopped("seconds")
            return call.result()
        finally:
            call.cancel()

    @property
    def _meanwhile(self) -> str:
        return f"-meanwhile{self._number}"

    async def _take_meanwhile(self) -> None:
        """Use what devices found while models were asked, if it is a gain."""
        best, incumbents = self.state.best, self.state.incumbents
        if best is None or not self._task.agents.overlap:
            return
        found = await self._steps.take(
            f"r{self._number}-meanwhile",
            MEANWHILE,
            lambda: self._evaluator.confirm_meanwhile(best, incumbents, self._meanwhile),
        )
        if found is not None:
            self.state = self.state.with_more_of_best(found, self._meanwhile)

    async def _admit(self, draft: int, attempt: int, template: Template) -> Admitted | Refused:
        step = f"r{self._number}-d{draft}-admission-a{attempt}"

        async def act() -> Admitted | Refused:
            try:
                return await self._evaluator.admit(self._task.experiment, template)
            except DeviceNeeded as error:
                raise RoundStopped("device", f"{step}: the corners compile; {error}") from error

        return await self._steps.take(step, ADMISSIONS, act)

    def _share(self, *, drafted: bool = False) -> Experiment:
        """The experiment with this round's share of the budget.

        Drafts that models were paid for are searched as long as there is time at all, where there
        is no result yet.

        Raises:
            RoundStopped: too little is left.
        """
        share = round_experiment(
            self._task.experiment,
            used_trials=self.state.trials,
            used_seconds=self._evaluator.committed(self.state.search_seconds),
            used_device_seconds=self.state.device_seconds,
            rounds_left=self._task.agents.rounds - self._number + 1,
            confirming=self._evaluator.confirming(),
            drafted=drafted,
        )
        if isinstance(share, str):
            raise RoundStopped("search", f"{DETAILS['search']}: {share}")
        return share

    async def _search(self, drafts: dict[int, GeneratedTemplate]) -> HalvingResult:
        experiment = self._share(drafted=self.state.shown is None)
        incumbents = self.state.incumbents

        async def search(draft: int, rung: int, part: Experiment, seeds: Seeds) -> Verdict:
            step = f"r{self._number}-d{draft}-rung{rung}"
            last = rung == rungs(len(drafts)) - 1
            suffix, beaten = ("", incumbents) if last else (f"-d{draft}-rung{rung}", ())

            async def act() -> Verdict:
                try:
                    return await self._evaluator.search(self._number, part, seeds, suffix, beaten)
                except DeviceNeeded as error:
                    raise RoundStopped("device", f"{step}: {error}") from error

            return await self._steps.take(step, VERDICTS, act)

        async def propose(draft: int, rung: int, found: Verdict) -> Seeds:
            most, template = self._task.agents.proposals, drafts[draft].template
            if not most:
                return ()
            learned = landscape(template.parameters, found.observations)
            brief = replace(await self._brief(), landscape=learned)
            messages = round_messages("tuning", brief, template=template, most=most)
            try:  # the rung numbers the call
                record = await self._asker(Role.TUNING, draft)(rung, messages, "")
            except RoundStopped as stop:  # a search needs no advice
                if stop.reason in PARKED:
                    raise
                return ()
            return read_proposals(record.reply)[:most]

        inherited = inherited_seeds(self._task.patterns, self._task.device.name)
        return await successive_halving(drafts, experiment, inherited, search, propose)

    def _searched(
        self, suggestion: Suggestion, drafts: dict[int, GeneratedTemplate], result: HalvingResult
    ) -> RoundsState:
        """The state after the round's search."""
        best = self.state.best
        verdict = result.verdicts[result.winner]
        compared = best is not None and not verdict.incumbent_failure
        summary = RoundSummary(
            number=self._number,
            suggestion=suggestion,
            verdict=verdict.words,
            speedup=verdict.speedup,
            interval=verdict.interval,
            gain=verdict.gain if compared else None,
            portfolio_gain=verdict.portfolio_gain if compared else None,
            roofline=roofline(self._task.floor_us, verdict.best_us),
            static=verdict.static,
        )
        variants = {
            draft: Variant(
                round=self._number,
                template=drafts[draft].template,
                parent=best.digest if best else None,
                suggestion=suggestion,
                verdict=found,
            )
            for draft, found in result.verdicts.items()
        }
        tried = variants.pop(result.winner)
        return self.state.after(summary, tried, tuple(variants.values()))
