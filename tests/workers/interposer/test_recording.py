"""Reading a capture directory: what is written is read; what was tampered with is refused."""

import json
import re
from pathlib import Path

import pytest

from tests.workers.interposer.recordings import captured_launch, store, write_recording
from tuner.errors import SpecError
from workers.interposer.recording import BUFFERS, FILE, read_buffer, read_image, read_recording

N = (16).to_bytes(4, "little")


def written(folder: Path):
    launch = captured_launch(folder, [(b"a" * 64, b"a" * 64), (b"\0" * 64, b"b" * 64), N])
    return write_recording(folder, [launch])


def test_a_recording_reads_back_with_its_files(tmp_path):
    recording = written(tmp_path)
    assert read_recording(tmp_path) == recording
    buffer = recording.launches[0].buffers[1]
    assert read_buffer(tmp_path, buffer, buffer.before) == b"\0" * 64
    assert read_buffer(tmp_path, buffer, buffer.after) == b"b" * 64
    image = recording.kernels[0].image
    assert image is not None
    assert read_image(tmp_path, image) == b"\x7fELF"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("format",), 2, "format"),
        (("kernels", 0, "image", "sha256"), "../../etc/passwd", "sha256"),
        (("kernels", 0, "attributes", "registers"), -1, "registers"),
        (("launches", 0, "buffers", 0, "before"), "0" * 63 + "/", "before"),
        (("launches", 0, "grid"), [1, 1], "grid"),
        (("launches", 0, "grid", 0), 1.5, "grid"),
        (("launches", 0, "grid", 0), 0, "grid"),
        (("launches", 0, "block", 2), 0, "block"),
        (("launches", 0, "kernel"), 1, "kernel 1 does not exist"),
        (("launches", 0, "pointers", 0, "parameter"), 2, "no pointer fits at byte 0"),
        (("launches", 0, "pointers", 0, "at"), 1, "no pointer fits at byte 1"),
        (("launches", 0, "pointers", 0, "buffer"), 7, "buffer 7 does not exist"),
        (("launches", 0, "pointers", 0, "offset"), 8, "not inside its buffer"),
        (("launches", 0, "buffers", 0, "size"), 65, "reaches beyond its allocation"),
        (("launches", 0, "arguments"), ["00"], "differ from the kernel's parameters"),
        (("launches", 0, "captured"), False, "buffers of a launch that was not captured"),
        (("launches",), [], "launches"),
    ],
)
def test_a_field_that_is_wrong_is_named(tmp_path, place, value, message):
    written(tmp_path)
    document = json.loads((tmp_path / FILE).read_text())
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / FILE).write_text(json.dumps(document))
    with pytest.raises(SpecError, match=rf"capture\.json: .*{re.escape(message)}"):
        read_recording(tmp_path)


def test_what_is_hidden_in_an_applications_names_is_escaped(tmp_path):
    written(tmp_path)
    document = json.loads((tmp_path / FILE).read_text())
    document["kernels"][0]["name"] = "two\nlines\u2028more\x85right\u202eleft\x9b2J"
    (tmp_path / FILE).write_text(json.dumps(document))
    (kernel,) = read_recording(tmp_path).kernels
    assert kernel.name == r"two\nlines\u2028more\x85right\u202eleft\x9b2J"


def test_a_folder_without_a_recording_is_refused(tmp_path):
    with pytest.raises(SpecError, match="no such file; name a folder"):
        read_recording(tmp_path)


def test_a_buffer_is_not_read_through_a_link_nor_with_another_content(tmp_path):
    buffer = written(tmp_path).launches[0].buffers[0]
    path = tmp_path / BUFFERS / buffer.before
    path.write_bytes(b"x" * 64)
    with pytest.raises(SpecError, match="content does not have the digest"):
        read_buffer(tmp_path, buffer, buffer.before)
    path.write_bytes(b"x")
    with pytest.raises(SpecError, match="not a regular file of 64 bytes"):
        read_buffer(tmp_path, buffer, buffer.before)
    path.unlink()
    path.symlink_to(tmp_path / BUFFERS / store(tmp_path, b"a" * 64))
    with pytest.raises(SpecError, match="cannot be opened"):
        read_buffer(tmp_path, buffer, buffer.before)


def test_a_folder_that_is_a_link_is_not_followed(tmp_path):
    buffer = written(tmp_path).launches[0].buffers[0]
    held = (tmp_path / BUFFERS).rename(tmp_path / "elsewhere")
    (tmp_path / BUFFERS).symlink_to(held)
    with pytest.raises(SpecError, match="buffers: is a link"):
        read_buffer(tmp_path, buffer, buffer.before)
