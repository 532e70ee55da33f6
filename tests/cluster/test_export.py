"""``export`` and ``report`` on run directories: where nothing was gained, or not all is done."""

from cluster.commands.report import report
from cluster.commands.results import export
from tests.cluster.test_compare import run


def test_an_export_without_a_gain_says_that_the_header_picks_the_baseline(tmp_path, capsys):
    for factor, said in ((0.5, ""), (1.5, "the header picks your kernel on every shape")):
        folder = run(tmp_path / f"{factor}", factor)
        export(folder, output=None, form="sources")
        told = capsys.readouterr()
        assert f"{folder}/export/simulated.h" in told.out
        assert said in told.err
        assert bool(told.err) == bool(said)


def test_an_export_of_a_run_that_goes_on_says_so_everywhere(tmp_path, capsys):
    folder = run(tmp_path / "run", 0.5, ended=False)
    for form in ("sources", "t4"):
        export(folder, output=None, form=form)
        assert f"{folder} has not ended: export again" in capsys.readouterr().err
    for name in ("simulated.h", "simulated_general.cu"):
        assert "exported before the run had ended" in (folder / "export" / name).read_text()
    report(folder, as_json=False)
    told = " ".join(capsys.readouterr().out.split())
    assert "The run has not ended, so verdicts may change. So far: 2.0" in told
    assert "outcome=unfinished speedup=2.0" in told
    report(folder, html_files=True, as_json=False)
    for name in ("report.html", "report.md"):
        assert "The run has not ended" in (folder / name).read_text()
