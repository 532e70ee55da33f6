import pytest

from cluster.jobs import package_check
from tuner.errors import EnvironmentProblem


def test_this_checkout_is_not_shadowed():
    package_check.check_packages()


def test_a_package_loaded_from_elsewhere_is_named(tmp_path):
    with pytest.raises(EnvironmentProblem, match=r"'agents' is loaded from .*virtual environment"):
        package_check.check_packages(tmp_path)


def test_a_distribution_that_writes_into_our_packages_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(package_check, "OURS", ("own_agents",))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_agents").mkdir()
    (tmp_path / "own_agents" / "__init__.py").write_text("")
    ours = tmp_path / "kernelwright-0.1.0.dist-info"
    theirs = tmp_path / "some_agents-2.0.dist-info"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / "RECORD").write_text("own_agents/__init__.py,sha256=x,1\n")
    with pytest.raises(
        EnvironmentProblem, match=r"'some_agents' overwrites files of .*'own_agents'"
    ):
        package_check.check_packages(tmp_path)
    (theirs / "RECORD").write_text("some_agents/__init__.py,sha256=x,1\n")
    package_check.check_packages(tmp_path)
