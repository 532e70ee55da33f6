"""Frames over a pair of sockets in one process."""

import time

import pytest

from workers.channel import Channel, ChannelClosed, channel_sockets

READING_NS = 10_000
"""By how much the comparison of two clocks may be wrong."""


def test_a_frame_tells_when_it_was_sent_however_late_it_is_read() -> None:
    parent, child = map(Channel, channel_sockets())
    before = time.monotonic_ns()
    child.send(b"first")
    between = time.monotonic_ns()
    child.send(b"second", [b"blob"])
    after = time.monotonic_ns()
    assert parent.receive(0) == (b"first", [])
    assert before - READING_NS <= parent.sent_ns <= between + READING_NS
    assert parent.receive(4) == (b"second", [b"blob"])
    assert between - READING_NS <= parent.sent_ns <= after + READING_NS


def test_an_empty_blob_does_not_look_like_the_end() -> None:
    parent, child = map(Channel, channel_sockets())
    child.send(b"", [b"", memoryview(b"x"), b""])
    assert parent.receive(1) == (b"", [b"", b"x", b""])
    child.close()
    with pytest.raises(ChannelClosed):
        parent.receive(0)
