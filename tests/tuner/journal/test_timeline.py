"""A timeline tells where the time of a run went, over processes, workers and kinds of work."""

import json
import re

import pytest

from tests.tuner.engine.driving import KilledError, Run, experiment, fleet
from tests.tuner.engine.simulated_fleet import Fault
from tuner.journal.facts import (
    BaselinePrepared,
    BenchJoined,
    BenchLost,
    Entry,
    ModelCalled,
    RunFinished,
    Span,
    TrialCompiled,
    TrialFinished,
    WorkBegan,
)
from tuner.journal.timeline import timeline
from tuner.report.timeline import bench_text, timeline_json, timeline_text
from tuner.trial import Measured


def compiled(work, worker, began, ended):
    span = Span(worker=worker, began=began, ended=ended)
    return Entry(TrialCompiled(work=work, trial=work, span=span), at=ended, t=ended - 100.0)


def finished(work, worker, began, ended):
    span = Span(worker=worker, began=began, ended=ended)
    fact = TrialFinished(work=work, trial=work, outcome=Measured(cells=()), span=span)
    return Entry(fact, at=ended, t=ended - 100.0)


def test_side_by_side_work_is_busy_twice_and_counts_once_on_the_wall():
    found = timeline([[compiled(0, "c0", 100.0, 104.0), compiled(1, "c1", 101.0, 105.0)]])
    (kind,) = found.kinds
    assert (kind.kind, kind.count, kind.busy, kind.wall) == ("compile", 2, 8.0, 5.0)
    assert [(one.worker, one.busy) for one in found.workers] == [("c0", 4.0), ("c1", 4.0)]
    assert (found.seconds, found.waiting, found.processes) == (5.0, 0.0, 1)


def test_what_nothing_worked_in_is_waiting():
    found = timeline([[compiled(0, "c0", 100.0, 101.0), finished(1, "gpu", 104.0, 105.0)]])
    assert (found.seconds, found.waiting) == (5.0, 3.0)


def test_the_time_for_which_others_had_the_device_is_told():
    span = Span(worker="gpu", began=100.0, ended=110.0, waited=4.0)
    fact = TrialFinished(work=1, trial=1, outcome=Measured(cells=()), span=span)
    found = timeline([[Entry(fact, at=110.0, t=10.0)]])
    assert (found.seconds, found.waiting, found.waited) == (10.0, 0.0, 4.0)
    assert re.search(r"of these, waiting for a device in use +4\.00 +40%\n", timeline_text(found))


def test_the_time_between_two_processes_is_nobodys():
    before = compiled(0, "c0", 100.0, 101.0)
    after = Entry(TrialCompiled(work=0, trial=1, span=None), at=1003.0, t=2.0)
    found = timeline([[before, after]])
    assert found.processes == 2
    assert found.seconds == pytest.approx(1.0 + 2.0)


def test_the_journals_of_rounds_are_put_together_with_that_of_the_run():
    span = Span(worker="a/model", began=100.0, ended=130.0)
    fact = ModelCalled(work=0, step="r1", model="a/model", result="reply", span=span)
    own = [Entry(fact, at=130.0, t=30.0)]
    found = timeline([own, [finished(7, "gpu", 130.0, 140.0)]])
    assert [(one.kind, one.wall) for one in found.kinds] == [("measure", 10.0), ("model", 30.0)]
    assert (found.seconds, found.waiting, found.processes) == (40.0, 0.0, 1)


def test_what_a_search_copied_of_another_counts_once():
    first = [compiled(0, "c0", 100.0, 101.0), finished(1, "gpu", 101.0, 103.0)]
    further = [*first, finished(2, "gpu", 103.0, 104.0)]
    found = timeline([first, further])
    assert [(one.kind, one.count) for one in found.kinds] == [("compile", 1), ("measure", 2)]
    assert found.seconds == 4.0


def test_a_reused_preparation_took_no_time():
    assert timeline([[Entry(BaselinePrepared(work=1, result=()))]]).kinds == ()


def test_work_that_a_killed_process_left_is_named():
    began = Entry(WorkBegan(work=1, task="confirm", trials=(3,)), at=100.0, t=0.0)
    again = Entry(WorkBegan(work=1, task="confirm", trials=(3,)), at=200.0, t=1.0)
    done = Entry(BaselinePrepared(work=1, result=()), at=201.0, t=2.0)
    assert timeline([[began, again, done]]).unfinished == (began.fact,)


def test_a_run_of_the_engine_adds_up_and_reads_well():
    run = Run(experiment(trials=20))
    session = run.drive(fleet(faults={3: Fault.LOST}, compile_slots=2))
    found = timeline([run.entries])
    kinds = {one.kind: one for one in found.kinds}
    assert list(kinds) == ["compile", "prepare", "measure", "confirm", "examine"]
    assert kinds["prepare"].count == 1
    assert kinds["measure"].count == 19
    assert kinds["confirm"].count == 6
    assert sum(one.busy for one in found.workers) == pytest.approx(
        sum(one.busy for one in found.kinds)
    )
    assert kinds["measure"].wall <= session.history.clock.searched <= found.seconds
    assert [(one.attempt, one.final) for one in found.lost] == [(1, False), (2, False), (3, True)]
    text = timeline_text(found)
    for part in (
        "baseline: expected outputs, checks, timing",
        "checking and timing candidates",
        "simulated:0",
        "lost: measure, attempt 3, given up: simulated:0: simulated",
    ):
        assert part in text
    assert json.loads(timeline_json(found))["kinds"][0]["kind"] == "compile"


def test_a_killed_run_can_be_asked_too_and_an_empty_one():
    run = Run(experiment(), kill_after=3)
    with pytest.raises(KilledError):
        run.drive(fleet())
    assert [one.task for one in timeline([run.entries]).unfinished] == ["prepare"]
    assert timeline([[]]).seconds == 0.0
    assert timeline_text(timeline([[]])) == "nothing was journalled yet"


def test_the_greatest_times_that_a_journal_may_hold_have_a_date():
    for at, t in ((253402300799.0, 0.0), (0.0, 9999999999.0)):
        assert timeline_text(timeline([[Entry(RunFinished(), at=at, t=t)]]))


def test_a_bench_is_idle_while_it_is_there_and_nothing_runs_on_it():
    def at(seconds, fact, t=None):
        return Entry(fact, at=100.0 + seconds, t=seconds if t is None else t)

    def joined(bench, benches=1):
        return BenchJoined(bench=bench, node="node7", device="NVIDIA H200", benches=benches)

    def lost(bench, why):
        return BenchLost(bench=bench, node="node7", reason=why, benches=0)

    found = timeline(
        [
            [
                at(0.0, joined("gpu")),
                finished(1, "gpu", 101.0, 104.0),
                at(5.0, lost("gpu", "drained")),
                at(6.0, lost("cuda0", "no driver")),
                at(50.0, joined("gpu"), t=1.0),
                finished(2, "gpu", 150.0, 151.0),
            ]
        ]
    )
    gpu, bad = found.benches
    assert (gpu.bench, gpu.seconds, gpu.idle, gpu.lost) == ("gpu", 6.0, 2.0, "")
    assert (bad.bench, bad.seconds, bad.lost) == ("cuda0", 0.0, "no driver")
    text = timeline_text(found)
    assert bench_text(gpu, unfinished=True).endswith(", work that is not finished included")
    assert "bench gpu (NVIDIA H200) on node7: idle 2.0 s of 6.0 s\n" in text
    assert "bench cuda0 on node7: never used; lost: no driver" in text
