"""``watch``: what it shows of runs that go on, end, are damaged or lie on another's disk."""

import json
import sys
import time
from contextlib import closing
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from cluster.commands.results import status
from cluster.commands.watch import watch
from cluster.watching.follower import RunFollower
from cluster.watching.rounds import RoundStories
from cluster.watching.terminal import table
from tests.agents.test_loop import script, suggestion
from tests.cluster.kernels import kernelwright
from tests.cluster.test_agent_run import begin, follow
from tests.tuner.engine.driving import GPU, experiment
from tests.tuner.results.runs import finished_facts
from tuner.journal.facts import BenchJoined, BenchLost, Entry, TrialFinished, WorkLost
from tuner.report.document import Heading
from tuner.run_directory import RunDirectory
from tuner.trial import Code, Rejected, Stage

BASE = [1000.0, 2000.0, 4000.0]
WRONG = Rejected(stage=Stage.VERIFY, code=Code.WRONG_RESULT, detail="1 is not 2", shape=1)
TRIALS = [({"x": 0}, [500.0, 1000.0, 2000.0]), ({"x": 1}, WRONG), ({"x": 2}, [400.0, 800, 1600])]
FACTS = finished_facts(experiment(), GPU, BASE, TRIALS, noise=0.001)
SEARCHED = next(
    number for number, fact in enumerate(FACTS) if fact.kind == "trial.finished" and fact.trial == 1
)


class Writing:
    """A run whose facts the test writes one after the other."""

    def __init__(self, path):
        self.directory = RunDirectory.create(path, experiment(), "")
        self.journal = self.directory.journal()
        self.path, self.at = path, 1000.0

    def write(self, facts):
        for fact in facts:
            self.at += 1
            self.journal.append(Entry(fact, at=self.at, t=self.at - 1000.0))

    def close(self):
        self.journal.close()
        self.directory.close()


@pytest.fixture
def writing(tmp_path):
    with closing(Writing(tmp_path / "run")) as found:
        yield found


def shown(*pictures, width=80):
    out = StringIO()
    Console(file=out, width=width).print(table(pictures, 2000.0))
    return out.getvalue()


def test_a_run_is_followed_from_its_first_fact_to_its_verdict(writing):
    follower = RunFollower(writing.path)
    assert follower.look().words.startswith("baseline: compiling, checking and timing it")
    writing.write(FACTS[: SEARCHED + 1])
    picture = follower.look()
    assert (picture.state, picture.tried, picture.rejected) == ("running", 2, 1)
    assert (picture.speedup, picture.configuration) == (pytest.approx(2.0), "x=0")
    assert "search: 2/" in shown(picture)
    assert "best 2.00× (not confirmed) x=0" in shown(picture)
    writing.write(FACTS[SEARCHED + 1 : -1])
    assert follower.look().words.startswith("confirm: ")
    writing.write(FACTS[-1:])
    picture = follower.look()
    assert picture.over
    assert "2.50" in picture.verdict
    assert "faster than the baseline" in shown(picture)


def test_a_run_of_agents_that_ended_without_a_result_is_over(tmp_path):
    path = begin(tmp_path / "run", script(([suggestion(stop=True)], [])))
    follow(path)
    picture = RunFollower(path).look()
    assert picture.over, "a watch ends once all runs are"
    assert picture.verdict == "there is no result: the model sees nothing left to try"


def test_the_status_of_a_search_counts_to_now_and_to_what_its_progress_counts_to(writing, capsys):
    writing.write(FACTS[: SEARCHED + 1])
    status(writing.path, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["searched_seconds"] > time.time() - writing.at - 1, "its last entry is as old"
    assert (told["trials"], told["most_trials"]) == (2, writing.directory.experiment.most_trials)
    assert f"search: 2/{told['most_trials']} trials" in RunFollower(writing.path).look().words


def test_it_takes_no_lock_and_shows_a_run_that_nobody_works_on(writing):
    writing.write(FACTS[: SEARCHED + 1])
    writing.close()
    follower = RunFollower(writing.path)
    assert follower.look().state == "interrupted"
    with closing(RunDirectory.open(writing.path)):
        assert follower.look().state == "running"


def test_eighty_columns_hold_many_benches_and_hostile_words(writing):
    measured = [fact for fact in FACTS if isinstance(fact, TrialFinished)][:2]
    spans = [
        replace(fact, span=replace(fact.span, worker=f"host/cuda-0000-00-{gpu:02}.0-{'f' * 32}"))
        for gpu in range(20)
        for fact in measured
    ]
    lost = WorkLost(work=1, task="measure", worker="host/cuda", reason="died \x1b[2J[red]now")
    writing.write([*FACTS[: SEARCHED + 1], *spans, lost])
    text = shown(RunFollower(writing.path).look())
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.count("host/cuda-0000") == 14
    assert "6 more benches" in text
    assert "died \\x1b[2J[red]now (sent again)" in text
    assert "test sm_90  running" in text


def test_benches_that_join_and_are_lost_are_told_until_they_are_back(writing):
    joined = BenchJoined(bench="host/cuda0", node="host", device="GPU", benches=1)
    lost = BenchLost(bench="host/cuda0", node="host", reason="the node died", benches=0)
    follower = RunFollower(writing.path)
    writing.write([*FACTS[: SEARCHED + 1], joined])
    assert "host/cuda0" in shown(follower.look())
    writing.write([lost])
    picture = follower.look()
    assert (picture.counts.benches, picture.counts.benches_lost) == (0, 1)
    assert "lost: bench host/cuda0: the node died (not back)" in shown(picture)
    writing.write([joined])
    picture = follower.look()
    assert picture.counts.benches == 1
    assert "lost" not in shown(picture)


def test_a_damaged_run_is_one_among_others_and_is_read_again_once_mended(writing, tmp_path):
    writing.write(FACTS)
    journal = writing.path / "journal.jsonl"
    whole = journal.read_bytes()
    follower = RunFollower(writing.path)
    assert follower.look().over
    journal.write_bytes(whole[:500])
    picture = follower.look()
    assert (picture.state, picture.over) == ("unreadable", False)
    assert "was cut, replaced or removed" in " ".join(shown(picture).split())
    journal.write_bytes(whole)
    assert follower.look().over


def test_the_command_ends_with_the_last_run_and_prints_each(writing, tmp_path):
    writing.write(FACTS)
    result = kernelwright("watch", writing.path, writing.path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("finished") >= 2
    for name, code, words in (("none", 2, "is not a run directory"), ("a" * 300, 3, "cannot read")):
        failed = kernelwright("watch", tmp_path / name)
        assert failed.returncode == code
        assert words in failed.stderr


def test_a_closed_reader_is_left_to_the_command_line(writing, monkeypatch):
    class Closed(StringIO):
        def write(self, _):
            raise BrokenPipeError

    writing.write(FACTS)
    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(BrokenPipeError):
        watch([writing.path], web=False, port=0)


def test_the_rounds_of_a_run_are_told_while_it_goes_on_and_when_it_is_over(tmp_path):
    run = begin(tmp_path / "run")
    follower, stories = RunFollower(run), RoundStories(run)
    assert stories.parts(follower.look()) == ()
    follow(run, leave_after=8, how="interrupted")
    picture = follower.look()
    assert (picture.state, picture.round, picture.rounds) == ("interrupted", 1, 3)
    heading, facts, change = stories.parts(picture)
    assert heading == Heading(text="Round 1: under way")
    assert dict(facts.pairs)["suggestion"]
    assert change.language == "diff"
    assert "against your kernel" in change.summary
    follow(run)
    picture = follower.look()
    assert picture.over
    headings = [part.text for part in stories.parts(picture) if isinstance(part, Heading)]
    assert headings[-2:] == ["Round 2: no significant gain", "Round 1: improved"]
    assert len(picture.climbs) == 2
    assert picture.tried == sum(len(climb.points) for climb in picture.climbs)
    assert "round 2 of 3" in shown(picture)
