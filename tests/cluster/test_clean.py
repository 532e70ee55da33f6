"""``clean``: derived files go, and other commands make the same again; facts stay."""

import pytest

from cluster.commands.clean import clean
from cluster.commands.report import report
from cluster.commands.results import export
from tests.cluster.test_compare import run
from tuner.errors import EnvironmentProblem
from tuner.run_directory import RunView


def files(folder):
    """What lies in a run directory, less what every opening writes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("lock", "lease")
    }


def test_what_is_removed_is_named_with_its_size_and_can_be_made_again(tmp_path, capsys):
    path = run(tmp_path / "run", 0.5)
    facts = files(path)
    report(path, html_files=True, as_json=False)
    export(path, output=None, form="sources")
    export(path, output=None, form="t4")
    whole = files(path)
    assert {"report.html", "results.jsonl", "results.csv"} < whole.keys()
    (path / ".report.html.0123456789abcdef.part").write_text("half")
    capsys.readouterr()

    clean([path, path], dry_run=True)
    told = capsys.readouterr().out
    size = sum(len(data) for name, data in whole.items() if name not in facts) + len("half")
    assert f"{size:,}  bytes would be removed" in told
    assert f"{len(whole['report.html']):,}  {path / 'report.html'}" in told
    assert files(path).keys() > whole.keys()

    clean([path], dry_run=False)
    assert f"{size:,}  bytes removed" in capsys.readouterr().out
    assert files(path) == facts
    assert not (path / "export").exists()
    report(path, html_files=True, as_json=False)
    export(path, output=None, form="sources")
    export(path, output=None, form="t4")
    assert files(path) == whole


def test_what_the_user_put_beside_an_export_stays(tmp_path):
    path = run(tmp_path / "run", 0.5)
    export(path, output=None, form="sources")
    (path / "export" / "main.c").write_text("mine")
    clean([path], dry_run=False)
    assert [file.name for file in (path / "export").iterdir()] == ["main.c"]


def test_runs_that_are_unfinished_or_hold_links_are_left_whole(tmp_path):
    done, begun = run(tmp_path / "done", 0.5), run(tmp_path / "begun", 0.5)
    report(done, html_files=True, as_json=False)
    journal = begun / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    assert RunView.open(begun).facts()[-1].kind != "run.finished"
    before = files(done)
    with pytest.raises(EnvironmentProblem, match=r"begun has not finished: .*nothing is removed"):
        clean([done, begun], dry_run=False)
    assert files(done) == before
    target = tmp_path / "mine"
    target.mkdir()
    (target / "file").write_text("")
    (done / "export").symlink_to(target)
    with pytest.raises(EnvironmentProblem, match="is a link"):
        clean([done], dry_run=False)
    assert (target / "file").exists()
