"""Successive halving: a round's drafts, searched side by side on the round's one budget.

In each rung the drafts that are left share the rung's part of the budget, the slower half leaves,
and the others go on from the best that they have found. Only the last rung is confirmed in full.
One draft has one rung. Owns who goes on and with what; knows nothing of how a draft is searched.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from agents.generation.drafting import Drafted
from agents.verdict import Verdict
from tuner.experiment.model import ConfirmSettings, Experiment
from tuner.trial import Value

Seeds = tuple[dict[str, Value], ...]

Search = Callable[[int, int, Experiment, Seeds], Awaitable[Verdict]]
"""Searches the experiment of a draft in a rung, values to try first given."""

SCREENING = ConfirmSettings(top=1, processes=2)
CARRIED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvingResult:
    """What became of a round's drafts: the winner's number, and each one's verdict."""

    winner: int
    verdicts: Mapping[int, Verdict]


def rungs(drafts: int) -> int:
    """How many rungs it takes until one of so many drafts is left, that one's own included."""
    return (drafts - 1).bit_length() + 1


async def successive_halving(
    drafts: Mapping[int, Drafted], experiment: Experiment, inherited: Seeds, search: Search
) -> HalvingResult:
    """Search the drafts against each other; ``experiment`` holds the round's budget."""
    standing = dict(drafts)
    seeds = {number: (*draft.seeds, *inherited) for number, draft in drafts.items()}
    verdicts: dict[int, Verdict] = {}
    total = rungs(len(drafts))
    for rung in range(total):
        last = rung == total - 1
        for number, draft in standing.items():
            part = _part(experiment, draft, total * len(standing), last=last)
            found = await search(number, rung, part, seeds[number])
            verdicts[number] = _together(verdicts.get(number), found)
            seeds[number] = (*_best(found), *seeds[number])
        ranked = sorted(standing, key=lambda number: (-(verdicts[number].speedup or 0.0), number))
        standing = {number: drafts[number] for number in ranked[: -(-len(ranked) // 2)]}
    (winner,) = standing
    return HalvingResult(winner=winner, verdicts=verdicts)


def _part(experiment: Experiment, draft: Drafted, shares: int, *, last: bool) -> Experiment:
    search = experiment.search
    trials = max(1, search.trials // shares)
    device = None if search.device_seconds is None else search.device_seconds / shares
    share = replace(search, trials=trials, seconds=search.seconds / shares, device_seconds=device)
    confirm = experiment.confirm if last else SCREENING
    return replace(experiment, template=draft.template, search=share, confirm=confirm)


def _best(verdict: Verdict) -> Seeds:
    measured = [one for one in verdict.observations if one.ratio is not None]
    ranked = sorted(measured, key=lambda one: one.ratio or 0.0)
    return tuple(one.configuration.as_dict() for one in ranked[:CARRIED])


def _together(before: Verdict | None, now: Verdict) -> Verdict:
    """The latest verdict, with what all rungs cost and saw."""
    if before is None:
        return now
    return replace(
        now,
        trials=before.trials + now.trials,
        seconds=before.seconds + now.seconds,
        device_seconds=before.device_seconds + now.device_seconds,
        observations=(*before.observations, *now.observations),
    )
