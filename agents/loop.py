"""The loop of rounds: plan, generate, tune, test, until a budget or a reason to stop.

A plain coroutine. Every step that costs anything is taken through
:class:`agents.step_journal.Steps`, so that a run killed anywhere and started again ends the same
and asks no model twice. Owns the order of steps and their keys; what they do is the roles' and the
workshop's business.

Keys: planning's attempts are its asks; generation's attempts are its asks; testing's attempt n is
the admission of generation's attempt n; tuning's attempts are the heats of a draft's search, the
last confirmed in full. Of the draft after the last, testing is the brief that a round begins with,
and tuning what devices found in between.
"""

import asyncio
import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

from agents.brief import BRIEFS, Brief, RoundSummary
from agents.evaluator import StopRequested, TemplateEvaluator
from agents.generation.drafting import Drafted, write_template
from agents.halving import Contest, Seeds, contest, heats
from agents.llm.port import (
    LanguageModel,
    Message,
    ModelUnavailable,
    Position,
    Reply,
    Request,
    Role,
    StepKey,
    Waiting,
)
from agents.patterns.pattern import seeds as inherited_seeds
from agents.planning import (
    Ask,
    Progress,
    StopReason,
    Task,
    Variant,
    brief_of,
    brief_step,
    overspent,
    stop_reason,
    suggest,
)
from agents.replies import Suggestion, Unusable
from agents.round_budget import round_experiment
from agents.static_profile import roofline
from agents.step_journal import ASKED, Asked, Spent, StepJournal, Steps
from agents.verdict import ADMISSIONS, FURTHER, VERDICTS, Admitted, Refused, Verdict
from tuner.errors import DeviceNeeded
from tuner.experiment.digest import kernel_digest
from tuner.experiment.model import Experiment, Template

EndReason = StopReason | Literal["model", "waiting", "device", "stopped"]

PARKED = ("waiting", "device")
"""Reasons with which another process goes on once what is awaited is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the loop ended. ``detail`` is one line for people; ``best`` the best confirmed variant.

    ``model`` means that the model side gave out, ``waiting`` that a reply is awaited elsewhere,
    ``device`` that the device is, ``stopped`` that the user asked for an end.
    """

    reason: EndReason
    detail: str
    progress: Progress
    spent: Spent

    @property
    def best(self) -> Variant | None:
        """The best confirmed variant, if anything was gained."""
        return self.progress.best


THINKING_SECONDS = 1.0
"""A model that answers sooner is not worth a search in between."""


class _Stop(Exception):
    """Ends a round before its end; never leaves this module."""

    def __init__(self, reason: EndReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: EndReason = reason


async def run_rounds(
    task: Task, model: LanguageModel, workshop: TemplateEvaluator, journal: StepJournal
) -> Ending:
    """Run rounds until there is a reason to stop.

    Raises:
        tuner.errors.KernelwrightError: the machine, the journal or the spec stand in the way.
    """
    steps = Steps(journal, workshop.now)
    progress = Progress()
    while True:
        reason = stop_reason(task, progress)
        if reason is not None:
            return Ending(
                reason=reason, detail=_DETAILS[reason], progress=progress, spent=steps.spent
            )
        one = _Round(task, progress, model, workshop, steps)
        try:
            progress = await one.run()
        except _Stop as stop:
            return Ending(
                reason=stop.reason, detail=str(stop), progress=one.progress, spent=steps.spent
            )
        except StopRequested:
            detail = "it was asked to stop"
            return Ending(reason="stopped", detail=detail, progress=progress, spent=steps.spent)


class _Round:
    """One round: its number, what went before, and the steps it takes.

    ``progress`` is the state before it, with what devices found meanwhile.
    """

    def __init__(
        self,
        task: Task,
        progress: Progress,
        model: LanguageModel,
        workshop: TemplateEvaluator,
        steps: Steps,
    ) -> None:
        self._task = task
        self.progress = progress
        self._model = model
        self._workshop = workshop
        self._steps = steps
        self._number = len(progress.rounds) + 1

    async def run(self) -> Progress:
        """Take the round's steps; the state after it."""
        try:
            suggestion, drafts = await self._written()
        except _Stop as stop:
            if stop.reason not in PARKED:
                await self._take_further()
            raise
        await self._take_further()
        if isinstance(drafts, str):
            return self._lost(suggestion, drafts)
        return self._tested(suggestion, drafts, await self._search(drafts))

    async def _written(self) -> tuple[Suggestion, dict[int, Drafted] | str]:
        """What the models made of the brief: a suggestion and its drafts, or why there are none."""
        brief, limits = await self._brief(), self._task.limits
        suggestion = await suggest(brief, self._asker(Role.PLANNING), limits)
        if isinstance(suggestion, Unusable):
            return _NO_SUGGESTION, f"no usable suggestion: {suggestion.detail}"
        if suggestion.stop:
            raise _Stop("planned", _DETAILS["planned"])
        drafts = await self._drafts(brief, suggestion)
        if isinstance(drafts, Refused):
            return suggestion, f"no usable template: {drafts.detail}"
        return suggestion, drafts

    async def _brief(self) -> Brief:
        async def act() -> Brief:
            return brief_of(self._task, self.progress)

        return await self._steps.take(brief_step(self._number, self._task.width), BRIEFS, act)

    async def _drafts(self, brief: Brief, suggestion: Suggestion) -> dict[int, Drafted] | Refused:
        """The round's drafts by number; one that fails, or waits, does not hold up the others."""
        task, drafts, parked = self._task, dict[int, Drafted](), list[_Stop]()
        failure: Refused | _Stop = Refused(by="The loop", detail="no draft was asked for")
        for draft in range(task.width):
            try:
                found = await write_template(
                    brief,
                    suggestion,
                    self._asker(Role.GENERATION, draft),
                    partial(self._admit, draft),
                    task.limits,
                    mode=task.mode,
                    draft=draft,
                    width=task.width,
                )
            except _Stop as stop:
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
            raise _Stop("waiting" if replies else "device", "; ".join(map(str, parked)))
        if drafts:
            return drafts
        if isinstance(failure, _Stop):
            raise failure
        return failure

    def _asker(self, role: Role, draft: int = 0) -> Ask:
        async def ask(attempt: int, messages: tuple[Message, ...]) -> Asked:
            request = Request(
                position=Position(
                    experiment=self._task.experiment.name,
                    kernel=kernel_digest(self._task.experiment.kernel),
                    step=self._key(role, attempt, draft),
                ),
                messages=messages,
                max_output_tokens=self._task.limits.output_tokens,
            )
            return await self._steps.take(
                request.position.step, ASKED, lambda: self._answer(request)
            )

        return ask

    async def _answer(self, request: Request) -> Asked:
        """Ask the model itself, if what that may cost is still to be spent."""
        limits, spent = self._task.limits, self._steps.spent
        price = await self._model.price(request) or 0.0
        most = request.input_tokens + request.max_output_tokens
        reason = overspent(limits, spent, tokens=most, price=price)
        if reason is not None:
            raise _Stop(reason, _DETAILS[reason])
        try:
            reply = await self._completed(request, limits.seconds - spent.seconds)
        except ModelUnavailable as error:
            raise _Stop("model", str(error)) from error
        if isinstance(reply, Waiting):
            raise _Stop("waiting", f"waiting for a reply to {reply.where}")
        return Asked(request=request.digest, reply=reply)

    async def _completed(self, request: Request, seconds: float) -> Reply | Waiting:
        """The model's answer; where the task wants it, devices do not idle while it thinks."""
        best, clock = self.progress.best, asyncio.get_running_loop().time
        end = clock() + seconds
        call = asyncio.ensure_future(self._model.complete(request))
        try:
            if best is not None and self._task.overlap:
                await asyncio.wait([call], timeout=min(THINKING_SECONDS, seconds))
                if not call.done():
                    await self._workshop.search_meanwhile(
                        best,
                        self.progress.incumbents,
                        self._further,
                        lambda: call.done() or clock() >= end,
                    )
            await asyncio.wait([call], timeout=_finite(end - clock()))
            if not call.done():
                raise _Stop("seconds", _DETAILS["seconds"])
            return call.result()
        finally:
            call.cancel()

    @property
    def _further(self) -> str:
        return f"-on{self._number}"

    async def _take_further(self) -> None:
        """Take what devices found while models were asked, if it is surely better."""
        best = self.progress.best
        if best is None or not self._task.overlap:
            return
        step = self._key(Role.TUNING, 0, self._task.width)
        incumbents = self.progress.incumbents
        found = await self._steps.take(
            step, FURTHER, lambda: self._workshop.confirm_meanwhile(best, incumbents, self._further)
        )
        if found is not None:
            self.progress = self.progress.with_more_of_best(found, self._further)

    async def _admit(self, draft: int, attempt: int, template: Template) -> Admitted | Refused:
        step = self._key(Role.TESTING, attempt, draft)

        async def act() -> Admitted | Refused:
            try:
                return await self._workshop.admit(self._task.experiment, template)
            except DeviceNeeded as error:
                raise _Stop("device", f"{step}: the corners compile; {error}") from error

        return await self._steps.take(step, ADMISSIONS, act)

    async def _search(self, drafts: dict[int, Drafted]) -> Contest:
        experiment = round_experiment(
            self._task.experiment,
            used_trials=self.progress.trials,
            used_seconds=self.progress.search_seconds,
            used_device_seconds=self.progress.device_seconds,
            rounds_left=self._task.limits.rounds - self._number + 1,
        )
        if experiment is None:
            raise _Stop("search", _DETAILS["search"])
        incumbents = self.progress.incumbents

        async def search(draft: int, heat: int, part: Experiment, seeds: Seeds) -> Verdict:
            step = self._key(Role.TUNING, heat, draft)
            last = heat == heats(len(drafts)) - 1
            name, beaten = ("", incumbents) if last else (f"-d{draft}-h{heat}", ())

            async def act() -> Verdict:
                try:
                    return await self._workshop.search(self._number, part, seeds, name, beaten)
                except DeviceNeeded as error:
                    raise _Stop("device", f"{step}: {error}") from error

            return await self._steps.take(step, VERDICTS, act)

        inherited = inherited_seeds(self._task.patterns, self._task.device.name)
        return await contest(drafts, experiment, inherited, search)

    def _tested(
        self, suggestion: Suggestion, drafts: dict[int, Drafted], outcome: Contest
    ) -> Progress:
        best = self.progress.best
        verdict = outcome.verdicts[outcome.winner]
        if verdict.speedup is None:
            words = f"nothing valid: {'; '.join(verdict.advice) or 'no configuration passed'}"
        else:
            words = "improved" if verdict.gained else "no sure gain on what was there"
            if verdict.serves_better and not verdict.gained:
                words += " over all shapes, but a faster portfolio with it"
        if verdict.fallen:
            words += f"; what was there failed beside it: {verdict.fallen}"
        summary = RoundSummary(
            number=self._number,
            suggestion=suggestion,
            verdict=words,
            speedup=verdict.speedup,
            interval=_interval(verdict),
            gain=verdict.gain if best and not verdict.fallen else None,
            portfolio_gain=verdict.portfolio_gain if best and not verdict.fallen else None,
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
            for draft, found in outcome.verdicts.items()
        }
        tried = variants.pop(outcome.winner)
        return self.progress.after(summary, tried, tuple(variants.values()))

    def _lost(self, suggestion: Suggestion, words: str) -> Progress:
        summary = RoundSummary(number=self._number, suggestion=suggestion, verdict=words)
        return self.progress.after(summary, None)

    def _key(self, role: Role, attempt: int, draft: int = 0) -> StepKey:
        return StepKey(round=self._number, draft=draft, role=role, attempt=attempt)


def _finite(seconds: float) -> float | None:
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _interval(verdict: Verdict) -> tuple[float, float] | None:
    if verdict.low is None or verdict.high is None:
        return None
    return verdict.low, verdict.high


_NO_SUGGESTION = Suggestion(
    bottleneck="none named", strategy="none", expected_effect="none", refuted_by="nothing"
)
_DETAILS: dict[StopReason, str] = {
    "rounds": "all rounds were used",
    "calls": "all calls to the model were used",
    "tokens": "the tokens left for the model do not cover another call",
    "cost": "the money left for the model does not cover another call",
    "seconds": "the time was used up",
    "ceiling": "every shape is within 5 % of the least possible time",
    "no_gain": "as many rounds in a row brought no gain as the agents' patience",
    "planned": "the model sees nothing left to try",
    "search": "the search budget was used up",
}
