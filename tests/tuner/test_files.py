"""Files that several processes share: whole or not there, and as private as umask says."""

import os
import stat

import pytest

from tuner.errors import EnvironmentProblem
from tuner.files import plain_name, write_whole


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_others_may_read_what_is_written_if_umask_lets_them(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "a.cu", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.cu").stat().st_mode) == mode
    assert [path.name for path in tmp_path.iterdir()] == ["a.cu"]


def test_what_cannot_be_put_in_its_place_leaves_nothing_behind(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "inside").touch()
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        write_whole(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("row-norm_2.0", "row-norm_2.0"),
        ("a b;$(c)/é", "a_b___c___"),
        ("--help", "help"),
        ("_hidden", "hidden"),
        ("k" * 200, "k" * 80),
        ("…", "unnamed"),
    ],
)
def test_a_plain_name_needs_no_quotes(text, name):
    assert plain_name(text) == plain_name(name) == name
