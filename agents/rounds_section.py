"""The section of a report that tells each round: the suggestion, what it changed, the verdict."""

import difflib
from collections.abc import Iterator, Mapping

from agents.brief import RoundSummary, inline, scrubbed, shortened
from agents.replies import Suggestion
from agents.rounds_summary import RoundsSummary
from agents.static_profile import StaticProfile
from agents.step_journal import CallTotals
from agents.variants import StoredVariant
from tuner.report.document import Facts, Heading, Listing, Part, Section
from tuner.results.statistics import Comparison

MOST_DIFF = 40_000
"""Characters of one difference that a report shows."""

KERNEL = "your kernel"
"""What a difference calls the baseline's source."""


def rounds_section(
    summary: RoundsSummary,
    kernel: str,
    variants: Mapping[str, StoredVariant],
    rejected: Mapping[int, str],
    costs: Mapping[str, CallTotals],
) -> Section:
    """All rounds.

    Args:
        summary: how the loop ended.
        kernel: the source of the baseline.
        variants: every searched template, by digest.
        rejected: by round, how many trials failed and why.
        costs: the model calls of each ``round N``.
    """
    parts: list[Part] = [f"Ended: {inline(summary.detail)}. Models: {summary.spent}."]
    for past in summary.rounds:
        parts.append(Heading(text=f"Round {past.number}: {inline(past.verdict)}"))
        pairs = [*told(past.suggestion), *measured(past)]
        if failures := rejected.get(past.number):
            pairs.append(("rejected", inline(failures)))
        if (cost := costs.get(f"round {past.number}")) is not None:
            pairs.append(("models", str(cost)))
        parts.append(Facts(pairs=tuple(pairs)))
        own = [one for one in variants.values() if one.about.round == past.number]
        parts += (_difference(one, kernel, variants) for one in own)
    return Section(title="Rounds", parts=tuple(parts))


def resource_row(name: str, static: StaticProfile) -> Iterator[tuple[str, ...]]:
    """A row of a table: a kernel's name, registers, spilled bytes, occupancy; none if unknown."""
    if static.usage is None:
        return
    amounts = (static.usage.registers, static.usage.spill_bytes)
    counts = ("-" if amount is None else str(amount) for amount in amounts)
    yield name, *counts, "-" if static.occupancy is None else f"{static.occupancy:.0%}"


def told(said: Suggestion) -> Iterator[tuple[str, str]]:
    """What was suggested, as terms and texts."""
    yield "bottleneck", inline(said.bottleneck)
    yield "suggestion", inline(said.strategy)
    yield "expected", inline(said.expected_effect)
    yield "refuted by", inline(said.refuted_by)


def measured(past: RoundSummary) -> Iterator[tuple[str, str]]:
    """What came of it, as terms and texts."""
    if past.speedup is not None:
        interval = past.interval
        alone = "for the comparisons of this round alone"
        bounds = f" ([{interval[0]:.3f}, {interval[1]:.3f}] {alone})" if interval else ""
        yield "speedup", f"{past.speedup:.3f}× over the baseline when the round ended{bounds}"
    if past.gain is not None:
        yield "gain", f"{_compared(past.gain)} the best before it"
    if past.portfolio_gain is not None and past.portfolio_gain != past.gain:
        yield "portfolio", f"{_compared(past.portfolio_gain)} the portfolio before it"
    if past.roofline is not None:
        least, most = past.roofline
        yield "roofline", f"{least:.0%} to {most:.0%} over the tune shapes"
    if text := str(past.static):
        yield "compiled", inline(text)


def _compared(gain: Comparison) -> str:
    return f"{gain} {gain.verdict}, compared with"


def _difference(one: StoredVariant, kernel: str, variants: Mapping[str, StoredVariant]) -> Listing:
    """What a template's source changed, against the template that the round started from."""
    parent = variants.get(one.about.parent or "")
    before = parent.template.source.text if parent else kernel
    against = f"the template of round {parent.about.round}" if parent else KERNEL
    name = f"Template {one.digest[:8]}"
    return difference(name, before, one.template.source.text, against, f"round {one.about.round}")


def difference(name: str, before: str, after: str, against: str, now: str) -> Listing:
    """What a source changed, folded behind a line that counts it.

    Args:
        name: of the changed source, for that line.
        before: the source that it is compared with.
        after: the source.
        against: names the former.
        now: names the latter.
    """
    lines = list(
        difflib.unified_diff(
            scrubbed(before).splitlines(),
            scrubbed(after).splitlines(),
            against,
            now,
            lineterm="",
            n=3,
        )
    )
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return Listing(
        text=shortened("\n".join(lines), MOST_DIFF),
        language="diff",
        summary=f"{name} against {against}: {added} lines added, {removed} removed",
    )
