"""The replay process: launches that fail end it, and the next launch gets another."""

from contextlib import closing

import pytest

from tuner.errors import EnvironmentProblem
from workers.backends import registry
from workers.replay.port import Change, Poison, ReplayFailed, ReplayLaunch, Window
from workers.replay.process import ReplayProcess


@pytest.fixture(autouse=True)
def adapter(monkeypatch):
    monkeypatch.setitem(registry.MODULES, "cuda", "tests.workers.replay.adapter")


def replay(symbol, image=b"code", **more):
    launch = ReplayLaunch(
        symbol=symbol,
        grid=(1, 1, 1),
        block=(1, 1, 1),
        shared_bytes=0,
        cooperative=False,
        parameters=(),
        pointers=(),
        addresses=(0,),
    )
    return closing(ReplayProcess("cuda", 0, launch, image, [b"\1\2\3"], **more))


@pytest.mark.parametrize(
    ("symbol", "words"), [("crash", "SIGABRT"), ("fault", "illegal address"), ("hang", "within")]
)
def test_a_failed_launch_leaves_the_next_one_alone(symbol, words):
    with replay(symbol, seconds=0.5 if symbol == "hang" else 30) as one:
        assert one.run() == [b"\0\3\2"]
        with pytest.raises(ReplayFailed, match=words):
            one.run([Change(0, 0, b"\0")])
        assert one.run([Change(0, 1, b"\7\7")]) == [b"\0\6\6"]
        flipped = [Poison(0, 1, 2, 0x55), Poison(0, 2, 3, 0)]
        assert one.run(flipped, [Window(0, 1, 3), Window(0, 0, 1)]) == [b"\x56\1", b"\0"]
        assert one.run() == [b"\0\3\2"]


def test_an_image_that_does_not_load_is_told():
    with (
        replay("any", b"not for this device") as one,
        pytest.raises(ReplayFailed, match="no binary for this device"),
    ):
        one.run()


def test_a_backend_without_replay_is_named(monkeypatch):
    monkeypatch.setitem(registry.MODULES, "cuda", "workers.backends.opencl.adapter")
    with replay("any") as one, pytest.raises(EnvironmentProblem, match="cannot replay"):
        one.run()
