"""``export`` on run directories: it says where nothing was gained."""

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
