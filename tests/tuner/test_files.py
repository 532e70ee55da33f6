"""Files that several processes share: whole or not there, and as private as umask says."""

import errno
import os
import stat

import pytest

from tuner.errors import EnvironmentProblem
from tuner.files import plain_name, unwritable, write_whole


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
    with pytest.raises(EnvironmentProblem, match=f"; move {tmp_path}/taken away"):
        write_whole(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free space or choose another folder"),
        (errno.EDQUOT, "free space or choose another folder"),
        (errno.EACCES, "check its permissions or choose another folder"),
        (errno.ENOTDIR, "move {}/file away, which is in its place"),
    ],
)
def test_the_remedy_fits_the_error(tmp_path, number, remedy):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "export"
    problem = unwritable(path, OSError(number, "why"))
    assert str(problem) == f"{path}: cannot be written (why); {remedy.format(tmp_path)}"


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
