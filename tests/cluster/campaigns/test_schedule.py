"""How a campaign's runs are begun and ended, with a stub in place of the command ``kernelwright``.

The stub notes its words and ends when it is told to, by a file.
"""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.campaigns import summary
from cluster.campaigns.folder import CampaignFolder, Record, is_campaign
from cluster.campaigns.plan import Campaign, PlannedRun
from cluster.campaigns.schedule import Places, Schedule
from tests.cluster.kernels import write_experiment
from tuner.errors import EnvironmentProblem
from tuner.experiment.load import load_experiment
from tuner.run_directory import RunDirectory

STUB = """
trap 'echo "kernelwright: interrupted"; exit 143' TERM
echo "$@" >> calls
name=$(basename "$2" .yaml)
until test -e "end-$name"; do sleep 0.01; done
echo "kernelwright: error: $name says"
echo "    a second line of it"
exit $(cat "end-$name")
"""


class Rig:
    """A campaign over stubs, in a folder."""

    def __init__(self, here, runs, *, gpus=None, seconds=None):
        (here / "stub.sh").write_text(f'cd "{here}"\n{STUB}')
        planned = Campaign(version=1, name="night", seconds=seconds, runs=runs)
        if is_campaign(here / "night"):
            self.folder = CampaignFolder.open(here / "night")
        else:
            self.folder = CampaignFolder.create(here / "night", Record(campaign=planned))
        command = ("sh", str(here / "stub.sh"))
        places = Places(
            options=("--fleet", "x"),
            environment=dict(os.environ),
            gpus=None if gpus is None else lambda: gpus,
            command=command,
        )
        self.here, self.said = here, []
        try:
            self.schedule = Schedule(self.folder, places, self._say)
        except EnvironmentProblem:
            self.folder.close()
            raise
        self.then = lambda line: None

    def _say(self, line):
        self.said.append(line)
        self.then(line)

    def end(self, *names, code=0):
        for name in names:
            (self.here / f"end-{name}").write_text(str(code))

    def follow(self):
        asyncio.run(self.schedule.follow())
        self.folder.close()

    def calls(self):
        return [line.split() for line in (self.here / "calls").read_text().splitlines()]


def planned(*names, **options):
    return tuple(PlannedRun(spec=f"{name}.yaml", name=name, **options) for name in names)


def test_runs_go_one_after_the_other_and_a_failing_one_ends_no_other(tmp_path):
    rig = Rig(tmp_path, planned("a", "b", "c", trials=7, model="none"))
    rig.end("a", "c")
    rig.end("b", code=2)
    rig.follow()
    assert [line.partition(":")[0] for line in rig.said] == ["a", "a", "b", "b", "c", "c"]
    assert rig.said[3] == "b: error: b says"
    assert {name: ended.code for name, ended in rig.folder.record.ended.items()} == {
        "a": 0,
        "b": 2,
        "c": 0,
    }
    words = "run a.yaml --run-dir {}/night/runs/a --fleet x --trials 7 --model none"
    assert rig.calls()[0] == words.format(tmp_path).split()
    rows = summary.rows_of(rig.folder.path, rig.folder.record)
    assert [row.outcome for row in rows] == ["failed"] * 3, "none left a run directory"
    assert "b says" in summary.as_markdown("night", "today", rows)


def test_as_many_run_at_once_as_there_are_gpus_in_order_of_priority(tmp_path):
    runs = (*planned("a"), *planned("b", gpus=2), *planned("c"), *planned("d", gpus=8))
    rig = Rig(tmp_path, runs, gpus=3)
    rig.end("b", "c")

    def then(line):
        if line.startswith("c: error"):
            rig.end("a", "d")

    rig.then = then
    rig.follow()
    begun = [line.split(":")[0] for line in rig.said if ": begins;" in line]
    assert begun == ["a", "b", "c", "d"]
    assert rig.said[:2] == ["a: begins; 3 more to follow", "b: begins; 2 more to follow"]
    assert rig.said.index("b: error: b says") < rig.said.index("c: begins; 1 more to follow")
    last = rig.said.index("d: begins; 0 more to follow")
    assert rig.said.index("a: error: a says") < last, "it takes all three that there are"
    assert rig.calls()[3][-3:] == ["--gpus", "3", "--wait"]


def test_the_budget_is_shared_by_the_runs_that_have_no_time_of_their_own(tmp_path):
    runs = (*planned("a"), *planned("b", seconds=50), *planned("c", "d"))
    rig = Rig(tmp_path, runs, seconds=400)
    rig.end("a", "b", "c", "d")
    rig.follow()
    given = [float(call[call.index("--seconds") + 1]) for call in rig.calls()]
    assert given == pytest.approx([100, 50, 200, 400], rel=0.05), "what one leaves is shared"


def test_nothing_is_begun_without_time_and_it_goes_on_with_more(tmp_path):
    rig = Rig(tmp_path, planned("a", "b"), seconds=5)
    rig.follow()
    assert rig.said == []
    rows = summary.rows_of(rig.folder.path, rig.folder.record)
    assert summary.sentence(rows) == "0 of 2 kernels improved; 2 not begun."
    why = "5 s of the campaign's 5 s are left; a run needs at least 10 s"
    assert {row.words for row in rows} == {why}
    assert f"{why}\nb  " in summary.text(rows, 120)
    rig = Rig(tmp_path, ())
    rig.folder.save(
        replace(rig.folder.record, campaign=replace(rig.folder.record.campaign, seconds=100))
    )
    rig.end("a", "b")
    rig.follow()
    assert len(rig.calls()) == 2


def test_a_signal_ends_the_runs_in_order_and_begins_no_other(tmp_path):
    rig = Rig(tmp_path, planned("a", "b"))

    async def interrupt():
        following = asyncio.create_task(rig.schedule.follow())
        while not (tmp_path / "calls").exists():
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        await following

    asyncio.run(interrupt())
    assert rig.schedule.received == [signal.SIGINT]
    assert rig.said[1:] == ["a: interrupted"]
    assert rig.folder.record.ended["a"].code == 143
    rig.folder.close()


def test_a_run_that_was_left_is_resumed(tmp_path):
    spec = load_experiment(write_experiment(tmp_path / "spec"))
    rig = Rig(tmp_path, planned("a"))
    held = RunDirectory.create(rig.folder.run_path(rig.folder.record.campaign.runs[0]), spec, "")
    rig.folder.close()
    with pytest.raises(EnvironmentProblem, match="processes of an earlier start work on a"):
        Rig(tmp_path, ())
    held.close()
    rig = Rig(tmp_path, ())
    rig.end("a")
    rig.follow()
    assert rig.calls() == [["resume", f"{tmp_path}/night/runs/a", "--fleet", "x"]]


def test_one_process_works_on_a_campaign(tmp_path):
    rig = Rig(tmp_path, planned("a"))
    with pytest.raises(EnvironmentProblem, match=f"process {os.getpid()} on .* works on the camp"):
        CampaignFolder.open(tmp_path / "night")
    rig.folder.close()
    with pytest.raises(EnvironmentProblem, match=r"is there already: continue it with"):
        CampaignFolder.create(Path(tmp_path / "night"), rig.folder.record)
    (tmp_path / "night" / "campaign.json").write_text("{")
    with pytest.raises(EnvironmentProblem, match="restore it from a copy"):
        CampaignFolder.open(tmp_path / "night")
