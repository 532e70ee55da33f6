"""What a lost work's loss leads to."""

from dataclasses import replace

from tuner.candidate import Candidate
from tuner.engine.retries import ATTEMPTS, Retries
from tuner.engine.work import MeasureWork
from tuner.journal.facts import WorkLost
from tuner.plan import Plan
from tuner.trial import Configuration

CANDIDATE = Candidate(
    trial=7, configuration=Configuration(()), plan=Plan(builds=(), cells=()), binaries=()
)


def test_a_loss_for_want_of_room_is_no_attempt():
    retries, work = Retries(), MeasureWork(id=3, candidates=(CANDIDATE,))
    lost = WorkLost(work=3, task="measure", trials=(7,), worker="gpu0", reason="full")
    for _ in range(2 * ATTEMPTS):
        uncounted = replace(lost, counted=False)
        assert retries.settle(work, uncounted) == ((uncounted,), work)
    for attempt in range(1, ATTEMPTS):
        assert retries.settle(work, lost)[1] == replace(work, attempt=attempt + 1)
    facts, again = retries.settle(work, lost)
    assert ([fact.kind for fact in facts], again) == (["work.lost", "trial.finished"], None)
