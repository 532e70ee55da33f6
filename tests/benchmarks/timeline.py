"""What each bench did and when, from a run's journal: how busy it was, and how much together.

Usage: python -m tests.benchmarks.timeline RUN [--benches N] [--json FILE]

With ``--benches``, exit code 1 unless so many benches worked, each for a fair share, at once.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tuner.journal.facts import Entry, EpochOpened, Fact, TrialFinished
from tuner.journal.search_clock import SearchClock
from tuner.run_directory import RunView
from tuner.trial import Measured

FAIR = 0.5
"""Of an equal share: a bench that did less was not kept busy."""

Interval = tuple[float, float]


def spans(facts: Iterable[Fact]) -> dict[str, list[Interval]]:
    """When each bench of the last process had its device for a trial, in Unix seconds, in order.

    Not while it waited for the device, which spans tell too.
    """
    found: dict[str, list[Interval]] = defaultdict(list)
    for fact in facts:
        if isinstance(fact, EpochOpened):
            found.clear()
        elif isinstance(fact, TrialFinished) and fact.span is not None:
            ended = fact.span.ended
            found[fact.span.worker].append((ended - fact.device_seconds, ended))
    return {name: sorted(each) for name, each in sorted(found.items())}


def timeline(entries: Sequence[Entry]) -> dict[str, Any]:
    """Trials and idle share of each bench, trials a second, and how many worked at a time.

    The idle share counts from a bench's first trial until the first bench runs dry: afterwards
    there are no candidates left to be idle in spite of.
    """
    benches, clock = spans(entry.fact for entry in entries), SearchClock()
    counts: dict[str, int] = defaultdict(int)
    given_up = merged = 0
    for entry in entries:
        clock.apply(entry)
        if isinstance(fact := entry.fact, TrialFinished):
            if fact.span is not None:
                counts[fact.span.worker] += 1
            given_up += isinstance(fact.outcome, Measured) and not fact.outcome.complete
            merged += fact.same_as is not None
    until = min((max(end for _, end in each) for each in benches.values()), default=0.0)
    trials = sum(counts.values())
    return {
        "trials": trials,
        "seconds": clock.searched,
        "per_second": trials / clock.searched if clock.searched else 0.0,
        "given_up": given_up,
        "merged": merged,
        "at_once": _at_once(benches, until),
        "benches": {
            name: {"trials": counts[name], "idle": _idle(each, until)}
            for name, each in benches.items()
        },
    }


def _busy(spans: Iterable[Interval], until: float) -> float:
    return sum(max(0.0, min(end, until) - begin) for begin, end in spans)


def _idle(spans: list[Interval], until: float) -> float:
    begin = spans[0][0]
    return 1 - _busy(spans, until) / (until - begin) if until > begin else 0.0


def _at_once(benches: dict[str, list[Interval]], until: float) -> float:
    """How many benches were busy on average, while all had work."""
    begin = min((each[0][0] for each in benches.values()), default=until)
    busy = sum(_busy(each, until) for each in benches.values())
    return busy / (until - begin) if until > begin else 0.0


def all_busy(found: dict[str, Any], benches: int) -> bool:
    """Whether so many benches each did a fair share, most of the time at once."""
    least = FAIR * found["trials"] / benches
    shares = [one["trials"] for one in found["benches"].values()]
    return (
        len(shares) == benches
        and min(shares) >= least
        and found["at_once"] >= 1 + FAIR * (benches - 1)
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the timeline; judge it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--benches", type=int)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    found = timeline(RunView.open(given.run).entries())
    print(
        f"{found['trials']} trials in {found['seconds']:.2f} s = {found['per_second']:.1f}/s, "
        f"{found['at_once']:.2f} benches busy at once; {found['given_up']} given up in part, "
        f"{found['merged']} with the code of another"
    )
    for name, one in found["benches"].items():
        print(f"  {one['trials']:6} trials, {one['idle']:6.1%} idle  {name}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 0 if given.benches is None or all_busy(found, given.benches) else 1


if __name__ == "__main__":
    sys.exit(main())
