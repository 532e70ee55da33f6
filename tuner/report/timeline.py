"""A timeline as text and as JSON."""

import json
from dataclasses import asdict
from datetime import UTC, datetime

from tuner.journal.facts import WorkKind
from tuner.journal.timeline import BenchTime, Timeline

WORDS: dict[WorkKind, str] = {
    "prepare": "baseline: expected outputs, checks, timing",
    "compile": "compiling",
    "measure": "checking and timing candidates",
    "confirm": "confirming in fresh processes",
    "examine": "checkers and profiler",
    "model": "language model",
}


def timeline_text(found: Timeline) -> str:
    """Several lines: the whole, each kind of work, each worker, and what was lost.

    The wall-clock seconds of kinds that ran side by side sum up to more than the whole.
    """
    if not found.processes:
        return "nothing was journalled yet"
    began = datetime.fromtimestamp(found.began, UTC)
    processes = f" in {found.processes} processes" if found.processes > 1 else ""
    width = max(map(len, (*WORDS.values(), *(one.worker for one in found.workers)))) + 2
    lines = [
        f"{found.seconds:.1f} s{processes}, from {began:%Y-%m-%d %H:%M:%S} UTC",
        "",
        f"{'':{width}}{'count':>8}{'busy s':>10}{'wall s':>10}{'share':>8}",
    ]
    for one in found.kinds:
        share = share_text(one.wall, found.seconds)
        lines.append(
            f"{WORDS[one.kind]:{width}}{one.count:8}{one.busy:10.2f}{one.wall:10.2f}{share:>8}"
        )
    if found.waited:
        share = share_text(found.waited, found.seconds)
        words = "of these, waiting for a device in use"
        lines.append(f"{words:{width}}{'':8}{found.waited:10.2f}{'':10}{share:>8}")
    waiting = share_text(found.waiting, found.seconds)
    lines += [f"{'no work in progress':{width}}{'':18}{found.waiting:10.2f}{waiting:>8}", ""]
    for worker in found.workers:
        kinds = ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in worker.by_kind.items())
        share = share_text(worker.busy, found.seconds)
        lines.append(f"{worker.worker:{width}}{'':8}{worker.busy:10.2f}{'':10}{share:>8}  {kinds}")
    lines += [f"bench {bench_text(one, bool(found.unfinished))}" for one in found.benches]
    for lost in found.lost:
        given_up = ", given up" if lost.final else ""
        lines.append(
            f"lost: {lost.task}, attempt {lost.attempt}{given_up}: {lost.worker}: {lost.reason}"
        )
    for work in found.unfinished:
        lines.append(f"not finished: {work.task}, attempt {work.attempt}")
    return "\n".join(lines).rstrip()


def bench_text(bench: BenchTime, unfinished: bool) -> str:
    """A bench on one line: its name, which has the node, its device, how long it was idle.

    With work ``unfinished``, whose bench is not known, that may be among its idle seconds.
    """
    device = f" ({bench.device})" if bench.device else ""
    node = f" on {bench.node}" if bench.node and not bench.bench.startswith(bench.node) else ""
    idle = f"idle {bench.idle:.1f} s of {bench.seconds:.1f} s" if bench.seconds else "never used"
    if unfinished and bench.idle:
        idle += ", work that is not finished included"
    lost = f"; lost: {bench.lost}" if bench.lost else ""
    return f"{bench.bench}{device}{node}: {idle}{lost}"


def timeline_json(found: Timeline) -> str:
    """The same as JSON; all times in seconds."""
    return json.dumps(asdict(found), indent=2)


def share_text(part: float, whole: float) -> str:
    """A part in percent; empty if there is no whole."""
    return f"{part / whole:.0%}" if whole > 0 else ""
