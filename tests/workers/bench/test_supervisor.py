"""A child that is killed while it starts may start at another attempt; outputs come once."""

import pytest

from tests.workers.harness import build, compiler, opencl_device, supervisor
from tuner.plan import CellPlan, KernelStep
from tuner.trial import Rejected
from workers.backends.registry import module_of, register
from workers.bench import protocol
from workers.bench.deadlines import Deadlines
from workers.bench.protocol import RunBurst
from workers.bench.supervisor import Supervisor
from workers.devices.port import StagedBuffer
from workers.forking import ChildFailed

SOME = "kernel void some(global int *whole, global int *half_) { whole[0] = half_[0] = 7; }"


def test_a_child_killed_while_it_starts_is_told_from_one_that_cannot_start(monkeypatch, tmp_path):
    (tmp_path / "killed.py").write_text(
        "import os, signal\n\ndef __getattr__(name):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    adapter = module_of("opencl")
    register("opencl", "killed")
    supervisor = Supervisor("opencl", 0, Deadlines(), tmp_path)
    try:
        with pytest.raises(ChildFailed) as failed:
            supervisor.start()
        assert failed.value.how == "killed"
    finally:
        register("opencl", adapter)
        supervisor.close()


def test_outputs_that_are_as_before_are_not_sent_again(monkeypatch, tmp_path):
    replies = []

    def decode(text):
        replies.append(reply := decode_reply(text))
        return reply

    decode_reply = protocol.decode_reply
    monkeypatch.setattr(protocol, "decode_reply", decode)
    binaries = compiler(opencl_device()).compile((build(SOME, "some"),))
    assert not isinstance(binaries, Rejected)
    sizes = {"whole": 4, "half_": 8}
    buffers = [
        StagedBuffer(
            name=name, kind="out", dtype="int32", shape=(n // 4,), strides=(1,), size=n, align=64
        )
        for name, n in sizes.items()
    ]
    step = KernelStep(entry="some", grid=(1, 1, 1), block=(1, 1, 1), arguments=tuple(sizes))
    server = supervisor(tmp_path)
    try:
        sets = server.stage(buffers, 1)
        launchable = server.bind(server.load(binaries), CellPlan(build=0, steps=(step,)), sets)
        asked = [
            RunBurst(
                launchable=launchable,
                order=(0,),
                poison=poison,
                deadline=30.0,
                inspect=0,
                changed_only=True,
            )
            for poison in (0xFF, 0x7F, 0x7F)
        ]
        found = [one.inspection.outputs for one in server.run_bursts(asked)]
    finally:
        server.close()
    seven = (7).to_bytes(4, "little")
    assert found == [{"whole": seven, "half_": seven + bytes([p]) * 4} for p in (0xFF, 0x7F, 0x7F)]
    sent = [one.outputs for one in replies if isinstance(one, protocol.BurstReply)]
    assert sent == [("whole", "half_"), ("half_",), ()]
