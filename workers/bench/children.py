"""The child processes of one bench: opens the next ahead, and ends others in the background.

On a GPU a context takes a quarter of a second to open and a tenth to go. Both are done beside other
things here, but never while anything is timed.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tuner.errors import EnvironmentProblem
from workers.bench.deadlines import Deadlines
from workers.bench.supervisor import Supervisor
from workers.devices.port import DeviceFailure, StagedBuffer
from workers.forking import ChildFailed

_BYTE = StagedBuffer(
    name="byte", kind="out", dtype="uint8", shape=(1,), strides=(1,), size=1, align=256
)
"""Staged so that a child has compiled and loaded what every staging needs."""


class BenchChildren:
    """Makes supervisors of one device, and ends them all in :meth:`close`.

    Their children may write to ``folder``.
    """

    def __init__(self, backend: str, index: int, deadlines: Deadlines, folder: Path) -> None:
        self._made = backend, index, deadlines, folder
        self._all: list[Supervisor] = []
        self._spare: Supervisor | None = None
        self._ending: list[threading.Thread] = []
        self._closed = False
        self._guard = threading.Lock()

    def take(self) -> Supervisor:
        """A supervisor whose child has done nothing but perhaps open the device.

        Raises:
            EnvironmentProblem: closed.
        """
        with self._guard:
            if self._closed:
                raise EnvironmentProblem("the bench is closed")
            spare, self._spare = self._spare, None
            if spare is None:
                spare = Supervisor(*self._made)
                self._all = [*(one for one in self._all if not one.closed), spare]
            return spare

    def keep(self, spare: Supervisor) -> None:
        """Have the next :meth:`take` return this one, which has only described the device."""
        self._spare = spare

    def open_ahead(self) -> None:
        """Have a child open the device for the next :meth:`take`, and load what staging needs.

        A failure shows again where that is used.
        """
        spare = self.take()
        with suppress(DeviceFailure, ChildFailed):
            spare.describe()
            spare.release(spare.stage([_BYTE], 1))
            spare.flush()
        self.keep(spare)

    def end(self, close: Callable[[], None]) -> None:
        """Call what ends a child, beside what follows until :meth:`settle`."""
        thread = threading.Thread(target=close, name="end-child", daemon=True)
        thread.start()
        self._ending.append(thread)

    def settle(self) -> None:
        """Wait until all that :meth:`end` was given has ended, and freed its memory."""
        ending, self._ending = self._ending, []
        for one in ending:
            one.join()

    def close(self) -> None:
        """End every child; safe to call twice, and from another thread to abort a call."""
        with self._guard:
            self._closed = True
            children = list(self._all)
        for one in children:
            one.close()
        self.settle()
