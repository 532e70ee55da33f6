"""Runs with agents whose files were lost, cut or never filled: nothing measured goes unnoticed."""

import json
from functools import partial

import pytest

from agents.rounds_summary import read_summary
from cluster.commands.report import conclude, report
from cluster.commands.results import export, status
from cluster.runs.run_layout import round_path, rounds_begun
from tests.agents.test_loop import plain
from tests.cluster.test_agent_run import begin, follow
from tuner.errors import EnvironmentProblem
from tuner.run_directory import RunDirectory


def no_searches(rounds):
    """What a killed process, a copy or a hand may leave beside the searches of rounds."""
    rounds.mkdir(exist_ok=True)
    for name in ("03", "04", "xx", "100"):
        (rounds / name).mkdir()
    (rounds / "04" / "run.json").write_text("{}")
    (rounds / "05").write_text("")
    (rounds / "06").symlink_to("nowhere")
    (rounds / "1").symlink_to("01")


def test_a_folder_that_holds_no_search_is_no_round(run, capsys):
    no_searches(run / "rounds")
    status(run, as_json=True)
    assert json.loads(capsys.readouterr().out)["rounds"] == 2
    (run / "rounds.json").unlink()
    report(run, as_json=True)
    found = json.loads(capsys.readouterr().out)["outcome"]
    assert found == "unfinished", "only rounds.json tells that the last round has ended"


def test_a_folder_that_holds_no_search_is_filled_or_named(tmp_path):
    path = begin(tmp_path / "run")
    (path / "rounds" / "01").mkdir(parents=True)
    follow(path)
    assert read_summary(path).searched == 1
    path = begin(tmp_path / "other")
    (path / "rounds").mkdir()
    (path / "rounds" / "01").write_text("")
    with pytest.raises(EnvironmentProblem, match=r"rounds/01 is .* no run directory: move it away"):
        follow(path)


def test_the_last_of_a_hundred_rounds_is_the_hundredth(tmp_path):
    for number in (2, 99, 100, 10):
        RunDirectory.create(round_path(tmp_path, number), plain(), "").close()
    assert rounds_begun(tmp_path) == [round_path(tmp_path, n) for n in (2, 10, 99, 100)]


@pytest.mark.parametrize(
    ("number", "shown_by"),
    [
        ("01", (status, report, conclude)),
        ("01-final1", (status, report, export, conclude)),
        ("02", (status, report)),
    ],
)
def test_a_round_whose_journal_lost_its_end_is_told_of_by_all_that_show_it(
    run, tmp_path, number, shown_by
):
    folder = run / "rounds" / number
    journal = folder / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    exported = {"output": tmp_path / "exported", "form": "sources"}
    shows = [
        partial(show, **(exported if show is export else {"as_json": False})) for show in shown_by
    ]
    for show in shows:
        with pytest.raises(EnvironmentProblem, match=rf"rounds/{number}/.* was cut or replaced"):
            show(run)
    for name in ("status.json", "results.jsonl"):
        (folder / name).unlink()
    lost = rf"rounds/{number}/journal\.jsonl has lost the end of .*: restore it from a backup"
    for show in shows:
        with pytest.raises(EnvironmentProblem, match=lost):
            show(run)
    journal.write_bytes(whole)
    for show in shows:
        show(run)
    folder.rename(tmp_path / "away")
    for show in shows:
        with pytest.raises(EnvironmentProblem, match=lost):
            show(run)


def test_a_round_that_goes_on_measures_nothing_anew_that_its_journal_lost(tmp_path):
    path = begin(tmp_path / "run")
    journal = path / "rounds" / "01" / "journal.jsonl"
    while not (journal.exists() and "trial.finished" in journal.read_text()):
        follow(path, leave_after=8, how="interrupted")
    cut = b"".join(journal.read_bytes().splitlines(keepends=True)[:-1])
    journal.write_bytes(cut)
    with pytest.raises(EnvironmentProblem, match=r"rounds/01/.* was cut or replaced; restore it"):
        follow(path)
    assert journal.read_bytes() == cut
