"""A Ray that is started on this machine for one command, beside what else that has to do.

Starting it takes seconds in which this process only waits, and so does ending it. Both are done by
one thread: Ray's processes end with the thread that started them.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress

from cluster.jobs.ray_driver import check_unused, connected
from cluster.settings import Settings

_ONE = threading.Lock()
"""Held while this process has a Ray: the next is started when the last has ended."""


def check_free() -> None:
    """Raise :class:`EnvironmentProblem` if this program uses a Ray that was not started here."""
    if not _ONE.locked():
        check_unused()


class OwnRay:
    """A Ray to start. It can be used from any thread, from :meth:`wait` to :meth:`leave`."""

    def __init__(self, settings: Settings) -> None:
        self._up: Future[None] = Future()
        self._left = threading.Event()
        # No daemon: this process ends when Ray has ended.
        self._thread = threading.Thread(target=self._hold, args=(settings,), name="ray")

    def start(self) -> None:
        """Begin to start it; does not wait."""
        self._thread.start()

    def wait(self) -> None:
        """Return once it is up; raises :class:`EnvironmentProblem` if it does not start."""
        self._up.result()

    def leave(self) -> None:
        """Begin to end it, once it is up; does not wait for the end.

        Ctrl-C does not shorten this: Ray cannot start without the token that its caller removes.
        """
        self._left.set()
        while self._thread.is_alive() and not self._up.done():
            with suppress(KeyboardInterrupt):
                wait([self._up])

    def _hold(self, settings: Settings) -> None:
        try:
            with _ONE, connected(settings):
                self._up.set_result(None)
                self._left.wait()
        except BaseException as error:
            self._up.set_exception(error)


@contextmanager
def started(settings: Settings) -> Iterator[OwnRay]:
    """Start a Ray on this machine, and leave it at the end; waits for neither."""
    ray = OwnRay(settings)
    try:
        ray.start()
        yield ray
    finally:
        ray.leave()
