"""A round's share of the budget, and successive halving of its drafts on that share.

On each rung the remaining drafts share the rung's part of the budget. The slower half is dropped,
the others continue from the best that they found. Only the last rung is confirmed in full; a single
draft has one rung. Knows nothing of how a draft is searched.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from agents.replies import GeneratedTemplate
from agents.verdict import Verdict
from tuner.experiment.model import ConfirmSettings, Experiment
from tuner.trial import Value

Seeds = tuple[dict[str, Value], ...]

Search = Callable[[int, int, Experiment, Seeds], Awaitable[Verdict]]
"""Searches a draft on a rung: draft number, rung, experiment, values to try first."""

Propose = Callable[[int, int, Verdict], Awaitable[Seeds]]
"""Further values for a draft to try on a rung: draft number, rung, what was found so far."""

SCREENING = ConfirmSettings(top=1, processes=2)
"""How a draft is confirmed on all rungs but the last."""

CARRIED = 3
"""How many of a draft's best configurations seed its next rung."""


LEAST_SECONDS = 1.0
"""What the first search gets at least, however much of the budget other work needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvingResult:
    """The winning draft's number, and the verdict on each draft."""

    winner: int
    verdicts: Mapping[int, Verdict]


def rungs(drafts: int) -> int:
    """How many rungs halving ``drafts`` takes, the winner's own included."""
    return (drafts - 1).bit_length() + 1


async def successive_halving(
    drafts: Mapping[int, GeneratedTemplate],
    experiment: Experiment,
    inherited: Seeds,
    search: Search,
    propose: Propose,
) -> HalvingResult:
    """Search the drafts rung by rung; ``experiment`` holds the round's budget."""
    remaining = dict(drafts)
    seeds = {number: (*draft.seeds, *inherited) for number, draft in drafts.items()}
    verdicts: dict[int, Verdict] = {}
    total = rungs(len(drafts))
    for rung in range(total):
        last = rung == total - 1
        for number, draft in remaining.items():
            part = _part(experiment, draft, total * len(remaining), last=last)
            found = await search(number, rung, part, seeds[number])
            verdicts[number] = _combined(verdicts.get(number), found)
            seeds[number] = (*_best(found), *seeds[number])
        ranked = sorted(remaining, key=lambda number: (-(verdicts[number].speedup or 0.0), number))
        remaining = {number: drafts[number] for number in ranked[: -(-len(ranked) // 2)]}
        for number in () if last else remaining:
            seeds[number] = (*await propose(number, rung + 1, verdicts[number]), *seeds[number])
    (winner,) = remaining
    return HalvingResult(winner=winner, verdicts=verdicts)


def round_experiment(
    experiment: Experiment,
    *,
    used_trials: int,
    used_seconds: float,
    used_device_seconds: float,
    rounds_left: int,
    confirming: float = 0.0,
    drafted: bool = False,
) -> Experiment | str:
    """The experiment with one round's share of the remaining budget, or why none is left.

    ``rounds_left`` counts this round too. A round searches for as many seconds as ``confirming``
    takes, at least, though fewer rounds then fit; only the first may exceed the budget for it, and
    one whose drafts are ``drafted`` already: it uses what is left.
    """
    search, device = experiment.search, experiment.search.device_seconds
    trials = -(-(search.trials - used_trials) // rounds_left)
    left, least = search.seconds - used_seconds, LEAST_SECONDS + 2 * confirming
    if used_trials and confirming and left < least and not drafted:
        return (
            f"{max(0.0, left):.0f} of {search.seconds:g} s are left for a round, which takes about "
            f"{least:.0f} s; begin a run with more --seconds"
        )
    seconds = max(left / rounds_left, min(left, least))
    if device is not None:
        device = (device - used_device_seconds) / rounds_left
    if not used_trials:
        seconds = max(seconds, LEAST_SECONDS)
    if trials < 1:
        return f"all {search.trials} trials are done; begin a run with more --trials"
    if seconds <= 0:
        return f"all {search.seconds:g} s are over; begin a run with more --seconds"
    if device is not None and device <= 0:
        return f"all {search.device_seconds:g} s of devices are used; raise search.device_seconds"
    share = replace(search, trials=trials, seconds=seconds, device_seconds=device)
    return replace(experiment, search=share)


def _part(
    experiment: Experiment, draft: GeneratedTemplate, shares: int, *, last: bool
) -> Experiment:
    search, device = experiment.search, experiment.search.device_seconds
    share = replace(
        search,
        trials=max(1, search.trials // shares),
        seconds=search.seconds / shares,
        device_seconds=None if device is None else device / shares,
    )
    confirm = experiment.confirm if last else SCREENING
    return replace(experiment, template=draft.template, search=share, confirm=confirm)


def _best(verdict: Verdict) -> Seeds:
    measured = [one for one in verdict.observations if one.ratio is not None]
    ranked = sorted(measured, key=lambda one: one.ratio or 0.0)
    return tuple(one.configuration.as_dict() for one in ranked[:CARRIED])


def _combined(before: Verdict | None, now: Verdict) -> Verdict:
    """The latest verdict with the cost and observations of all rungs."""
    if before is None:
        return now
    return replace(
        now,
        trials=before.trials + now.trials,
        seconds=before.seconds + now.seconds,
        device_seconds=before.device_seconds + now.device_seconds,
        observations=(*before.observations, *now.observations),
    )
