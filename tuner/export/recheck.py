"""Compares a run's claims with fresh measurements of its export."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.experiment.objective import Objective
from tuner.export.record import Claim, ExportRecord
from tuner.journal.facts import ConfirmationSampled
from tuner.results.evidence import Samples
from tuner.results.statistics import WIDE, Comparison, compare, half_width, is_wide

WITHIN = 0.02
"""Relative difference up to which a claim never fails."""

NARROW = 0.10
"""Half-width of an interval, as a relative difference, up to which agreement counts; :data:`WIDE`
where the claim and the new measurement are surely on the same side of 1×."""

RULE = (
    f"A claim holds if the new speedup is within {WITHIN:.0%} of it and the new interval within "
    f"±{NARROW:.0%}, or if the two intervals agree and are together within ±{NARROW:.0%}; "
    f"±{WIDE:.0%} is enough where both are above 1×, or both below it. Wider intervals that agree "
    "are unclear. Where they disagree, the claim fails, or the new speedup is higher."
)
"""How a claim is judged, for people."""

Outcome = Literal["holds", "unclear", "fails"]
"""The verdict on all claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """A claim measured again; ``measured`` is ``None`` if the variant failed for ``reason``."""

    variant: str
    shape: str
    claimed: Claim
    measured: Comparison | None
    verdict: Outcome | Literal["higher"]
    reason: str = ""


def recheck(
    record: ExportRecord,
    cache: str,
    answers: Sequence[ConfirmationSampled],
    objective: Objective = "time",
) -> tuple[Recheck, ...]:
    """The verdict on every claim of a record.

    A claim *holds* if the new speedup is within 2 % and its interval is narrow, or within both
    intervals together where these are narrow; they may be wider where both exclude 1× on the same
    side. It is *unclear* if they agree only because they are wide. Otherwise it *fails*, or the new
    speedup is *higher*.
    """
    labels = [
        ",".join(f"{name}={value}" for name, value in shape.items()) for shape in record.shapes
    ]
    failed = {
        trial: rejected.detail
        if rejected.shape is None
        else f"at {labels[rejected.shape]}: {rejected.detail}"
        for answer in answers
        for trial, rejected in answer.failed
    }
    samples = Samples(answers, cache, failed, objective)
    claims = [(variant, claim) for variant in record.variants for claim in variant.claims]
    found = []
    for variant, claim in claims:
        shape = labels[claim.shape]
        logs = list(samples.logs(variant.trial, claim.shape).values())
        measured = compare(logs, samples.noise_at(claim.shape), len(claims)) if logs else None
        missing = failed.get(variant.trial, f"was not measured at {shape}")
        found.append(
            Recheck(
                variant=variant.name,
                shape=shape,
                claimed=claim,
                measured=measured,
                verdict=_verdict(claim, measured) if measured else "fails",
                reason="" if measured else missing,
            )
        )
    return tuple(found)


def wide_claim(check: Recheck) -> bool:
    """Whether a claim is too wide itself for a narrow measurement of another figure to confirm."""
    return is_wide(check.claimed.low, check.claimed.high)


def outcome(checks: Sequence[Recheck]) -> Outcome:
    """The verdict on all claims: fails if one fails, else unclear if one is, holds otherwise."""
    verdicts = {check.verdict for check in checks}
    if "fails" in verdicts:
        return "fails"
    return "unclear" if "unclear" in verdicts else "holds"


def _verdict(claim: Claim, measured: Comparison) -> Outcome | Literal["higher"]:
    difference = math.log(measured.speedup / claim.speedup)
    half = math.hypot(half_width(claim.low, claim.high), measured.half_width)
    near = abs(difference) <= math.log1p(WITHIN)
    if not near and abs(difference) > half:
        return "higher" if difference > 0 else "fails"
    # A wide claim is confirmed by a narrow measurement of the same figure.
    deciding = measured.half_width if near else half
    most = WIDE if _same_side(claim, measured) else NARROW
    return "holds" if deciding <= math.log1p(most) else "unclear"


def _same_side(claim: Claim, measured: Comparison) -> bool:
    """Whether both intervals are above 1×, or both below it."""
    if not (claim.low and claim.high and measured.low and measured.high):
        return False
    return min(claim.low, measured.low) > 1 or max(claim.high, measured.high) < 1
