"""The loop of rounds: one :mod:`agents.round` after another, until a reason ends it.

A plain coroutine. Every step that costs anything is taken through
:class:`agents.step_journal.Steps`, so a run killed anywhere ends the same after a restart, and no
model call is paid for twice. Owns how a run ends, and the last confirmation of its winners:
the step ``r1-final1`` for those of round 1.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agents.brief import BRIEFS, Brief
from agents.evaluator import StopRequested, TemplateEvaluator
from agents.llm.port import LanguageModel
from agents.planning import RoundsState, Task, Variant, stop_reason
from agents.round import DETAILS, EndReason, Round, RoundStopped
from agents.rounds_summary import PARKED, RoundsSummary
from agents.step_journal import CallTotals, StepFiles, StepJournal, Steps
from agents.verdict import VERDICTS
from tuner.engine.confirmation import has_rest
from tuner.errors import DeviceNeeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the loop ended. ``detail`` is the reason in one line, for people.

    ``model``: no reply can be had. ``waiting``: a reply is pending. ``device``: there is no device.
    ``stopped``: the user stopped the run.
    """

    reason: EndReason
    detail: str
    state: RoundsState
    spent: CallTotals

    @property
    def best(self) -> Variant | None:
        """The best confirmed variant, if anything was gained."""
        return self.state.best

    @property
    def summary(self) -> RoundsSummary:
        """What is written of it into the run directory."""
        shown = self.state.shown
        return RoundsSummary(
            reason=self.reason,
            detail=self.detail,
            gained=self.best is not None,
            searched=shown.round if shown else None,
            rounds=self.state.rounds,
            spent=self.spent,
            suffix=shown.suffix if shown else "",
        )


async def run_rounds(
    task: Task, model: LanguageModel, evaluator: TemplateEvaluator, journal: StepJournal
) -> Ending:
    """Run rounds until there is a reason to stop.

    Raises:
        tuner.errors.KernelwrightError: The machine, the journal or the spec prevent it.
    """
    steps = Steps(journal, evaluator.now)
    state = RoundsState()
    while True:
        reason: EndReason | None = stop_reason(task, state)
        detail = DETAILS[reason] if reason else ""
        if reason is None:
            one = Round(task, state, model, evaluator, steps)
            try:
                state = await one.run()
                continue
            except RoundStopped as stop:
                reason, detail, state = stop.reason, str(stop), one.state
            except StopRequested:
                reason, detail = "stopped", DETAILS["stopped"]
        if reason not in PARKED:
            try:
                state = await _finally_confirmed(task, state, evaluator, steps)
            except DeviceNeeded as error:
                reason, detail = "device", f"the last confirmation: {error}"
            except StopRequested:
                reason, detail = "stopped", DETAILS["stopped"]
        return Ending(reason=reason, detail=detail, state=state, spent=steps.spent)


async def _finally_confirmed(
    task: Task, state: RoundsState, evaluator: TemplateEvaluator, steps: Steps
) -> RoundsState:
    """The state once its result is confirmed on all that is reported; rounds leave that out."""
    wanted = has_rest(task.experiment, task.device)
    while wanted and (shown := state.shown) is not None:
        suffix = f"{shown.suffix}-final{shown.round}"
        verdict = await steps.take(
            f"r{shown.round}{suffix}",
            VERDICTS,
            partial(evaluator.confirm_finally, shown, suffix),
        )
        state = state.finally_confirmed(verdict, suffix)
        wanted = verdict.configuration is None
    return state


def recorded_brief(steps: Path, round_number: int) -> Brief:
    """The brief that a round of a recorded run began with, to run one role alone.

    Raises:
        SpecError: There is none, or it is damaged.
    """
    return Steps(StepFiles(steps), lambda: 0.0).recall(f"briefs/r{round_number}", BRIEFS)
