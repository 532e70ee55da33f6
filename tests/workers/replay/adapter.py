"""An adapter for the replay process whose device is Python: kernels by name, some of them bad."""

import os
import time
from types import SimpleNamespace

from tuner.trial import Code
from workers.devices.port import DeviceFailure


class Device:
    def open(self, launch, image, buffers) -> None:
        if image == b"not for this device":
            raise DeviceFailure(Code.LAUNCH_FAILED, "no binary for this device")
        self.launch, self.buffers = launch, buffers

    def run(self, changes, windows) -> list[bytes]:
        buffers = [bytearray(contents) for contents in self.buffers]
        for change in changes:
            buffers[change.buffer][change.start : change.start + len(change.data)] = change.data
        if buffers[0][0] == 0:
            if self.launch.symbol == "crash":
                os.abort()
            if self.launch.symbol == "fault":
                raise DeviceFailure(Code.ILLEGAL_ADDRESS, "illegal address", sticky=True)
            if self.launch.symbol == "hang":
                time.sleep(60)
        after = [bytes(byte ^ 1 for byte in contents) for contents in buffers]
        return [after[w.buffer][w.start : w.end] for w in windows]


ADAPTER = SimpleNamespace(open_replay=lambda index: Device())
