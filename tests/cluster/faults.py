"""What tests of faults share: a run to strike, processes to kill, and what must hold afterwards."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.cluster.kernels import SPEC, TEMPLATE, write_experiment
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory, RunView

PATIENCE = 240.0
TRIALS = 24


def begin(folder):
    """The directory of a run of 24 trials that no process has begun."""
    text = SPEC.replace("trials: 6,", f"trials: {TRIALS},").replace("seconds: 60", "seconds: 600")
    template = TEMPLATE.replace("[1, 2, 4]", str([*range(1, 13)])).replace(
        "[16, 64]", "[16, 32, 64, 128]"
    )
    spec = write_experiment(folder / "spec", spec=text, template=template)
    RunDirectory.create(folder / "run", load_experiment(spec), text).close()
    return folder / "run"


def finished(run):
    """What was measured, in order."""
    return [fact for fact in RunView.open(run).facts() if fact.kind == "trial.finished"]


def finished_count(run):
    """How many trials were measured; cheap enough to be asked in a loop."""
    journal = run / "journal.jsonl"
    return journal.read_bytes().count(b"trial.finished") if journal.exists() else 0


def processes(word, ancestor):
    """The numbers of processes below one whose command lines begin with a word."""
    found = []
    for number in below(ancestor):
        with suppress(OSError):
            line = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")[0].decode()
            if line.rpartition("/")[2].startswith(word):
                found.append(number)
    return found


def below(number):
    """The numbers of all processes that descend from one."""
    children = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, open_ = [], [number]
    while open_:
        more = children.get(open_.pop(), [])
        found += more
        open_ += more
    return found


def kill(number):
    """SIGKILL, if it still lives."""
    with suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


def until(holds, seconds=PATIENCE):
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def check(run, before=()):
    """The run has ended once, and no trial that was finished ``before`` is lost or repeated."""
    facts = finished(run)
    assert facts[: len(before)] == list(before)
    assert sorted(fact.trial for fact in facts) == list(range(TRIALS))
    assert sum(fact.kind == "run.finished" for fact in RunView.open(run).facts()) == 1


def recovery(run, since):
    """Seconds from a moment to the end of the first trial that was begun later; ``None`` so far."""
    ends = [
        fact.span.ended - since
        for fact in finished(run)
        if fact.span is not None and fact.span.began > since
    ]
    return min(ends, default=None)


def note(row, run, seconds, said):
    """Print a row of the table of faults, and append it to the file that ``RECOVERY_LOG`` names.

    Its last cell is the first of the lines that the run ``said`` which tells of the fault, or the
    first loss in its journal.
    """
    lost = [fact.reason for fact in RunView.open(run).facts() if fact.kind == "work.lost"]
    signs = ("error:", " lost (", "waiting for", "drained", "No space left", " holds ")
    told = [line for line in said if any(sign in line for sign in signs)]
    words = next(iter(told + lost), "nothing")
    line = f"| {row} | {len(lost)} | {seconds:.1f} s | {words} |"
    print(line)
    if log := os.environ.get("RECOVERY_LOG"):
        with Path(log).open("a") as stream:
            stream.write(f"{line}\n")
