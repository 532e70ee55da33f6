"""``fetch``: a run directory arrives whole or not at all, and nothing is written elsewhere."""

import base64
import hashlib
import json
import stat
import subprocess
import sys
import zlib

import pytest

from cluster.commands.fetch import MAX_BYTES, Receiver
from cluster.jobs import send_run
from tests.cluster.test_compare import run
from tuner.errors import EnvironmentProblem, SpecError
from tuner.run_directory import RunDirectory, RunView


def sent(path, known, folder):
    """What the script prints in a job, as lines."""
    have = folder / "have.json"
    have.write_text(json.dumps(known))
    log = folder / "job.log"
    with log.open("w") as stream:
        subprocess.run([sys.executable, send_run.__file__, path, have], stdout=stream, check=False)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    return log.read_text().splitlines()


def received(lines, target):
    receiver = Receiver(target)
    for line in lines:
        receiver.take(line)
    return receiver


def one_file(path="a", data=b"text", *, size=None, digest=None):
    """The lines for one file."""
    told = {
        "path": path,
        "bytes": len(data) if size is None else size,
        "sha256": digest or hashlib.sha256(data).hexdigest(),
    }
    part = base64.b64encode(zlib.compress(data)).decode()
    contents = (("file", told), ("data", part), ("done", 1))
    return [f"{send_run.MARK}{word} {json.dumps(content)}" for word, content in contents]


def test_a_copy_is_equal_and_goes_on_where_it_ended(tmp_path):
    there, here = run(tmp_path / "there", 0.5), tmp_path / "here"
    (there / "large").write_bytes(bytes(range(256)) * 1000)
    (there / "link").symlink_to("/etc/passwd")
    lines = sent(there, {}, tmp_path)
    half = received(lines[: len(lines) // 2], here)
    assert half.files is None
    known = {
        path.relative_to(here).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in here.rglob("*")
        if path.is_file()
    }
    assert known
    whole = received(sent(there, known, tmp_path), here)
    assert whole.files == whole.received + len(known)
    assert RunView.open(here).facts() == RunView.open(there).facts()
    assert (here / "large").read_bytes() == (there / "large").read_bytes()
    assert stat.S_IMODE((here / "secret").stat().st_mode) == 0o600
    assert not (here / "link").exists()
    RunDirectory.open(here).close()


def test_what_is_here_already_is_not_lost(tmp_path):
    there, here = run(tmp_path / "there", 0.5), run(tmp_path / "here", 0.5)
    with pytest.raises(EnvironmentProblem, match="holds another run"):
        received(sent(there, {}, tmp_path), here)
    journal = there / "journal.jsonl"
    longer = journal.read_bytes()
    received(sent(there, {}, tmp_path), tmp_path / "copy")
    journal.write_bytes(longer[:100])
    with pytest.raises(EnvironmentProblem, match="was continued here"):
        received(one_file("journal.jsonl", longer[:100]), tmp_path / "copy")
    assert (tmp_path / "copy" / "journal.jsonl").read_bytes() == longer


@pytest.mark.parametrize(
    "path", ["../out", "/tmp/out", "a/../../out", "folder/out", "", "a\nb", "link/out"]
)
def test_no_path_leads_out_of_the_folder(tmp_path, path):
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "other").mkdir()
    (target / "folder").symlink_to(tmp_path / "other")
    (target / "link").symlink_to("../other")
    with pytest.raises((SpecError, EnvironmentProblem)):
        received(one_file(path), target)
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (one_file(size=3), "longer than was told"),
        (one_file(size=5), "digest that was told"),
        (one_file(digest="0" * 64), "digest that was told"),
        (one_file(size=MAX_BYTES + 1), "less than or equal"),
        (one_file(data=bytes(1 << 22), size=10), "longer than was told"),
        (one_file()[1:], "data of no file"),
        ([f"{send_run.MARK}data 3"], "damaged"),
        ([f"{send_run.MARK}file {{"], "damaged"),
        ([f"{send_run.MARK}data {'[' * 100_000}"], "damaged"),
    ],
)
def test_what_is_damaged_is_not_written(tmp_path, lines, words):
    with pytest.raises(EnvironmentProblem, match=words):
        received(lines, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_no_run_is_told(tmp_path):
    with pytest.raises(SpecError, match="is not a run directory on the cluster"):
        received(sent(tmp_path / "none", {}, tmp_path), tmp_path / "here")
