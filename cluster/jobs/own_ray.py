"""A Ray that is started on this machine for one command, beside what else that has to do.

Starting it takes seconds in which this process only waits, and so does ending it. Both are done by
one thread: Ray's processes end with the thread that started them.
"""

import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress

from cluster.fleets.head_calls import (
    HEAD,
    died_while_starting,
    ended_while_starting,
    ray_children,
)
from cluster.interruptible import POLL_SECONDS, until_done
from cluster.jobs.ray_driver import check_unused, connected
from cluster.settings import Settings
from tuner.errors import EnvironmentProblem

_ONE = threading.Lock()
"""Held while this process has a Ray: the next is started when the last has ended."""

_GIVEN_UP: list[tuple[threading.Thread, str]] = []
"""The threads of Rays that died while they started, and which process of each ended first.

Each holds :data:`_ONE` until Ray notices."""


def check_free() -> None:
    """Raise :class:`EnvironmentProblem` if this program can start no Ray.

    It uses one that was not started here, or one that died while it started has not ended.
    """
    if ended := [process for thread, process in _GIVEN_UP if thread.is_alive()]:
        remedy = "try again in a minute, or use fleet='local'"
        if HEAD in ended:
            remedy = "restart the program, which Ray ends within a minute"
        raise EnvironmentProblem(
            f"an earlier Ray of this program died while it started and has not ended: {remedy}"
        )
    if not _ONE.locked():
        check_unused()


class OwnRay:
    """A Ray to start. It can be used from any thread, from :meth:`wait` to :meth:`leave`."""

    def __init__(self, settings: Settings) -> None:
        self._up: Future[None] = Future()
        self._left = threading.Event()
        self._earlier: Collection[int] | None = None
        self._ray = threading.Thread(target=self._hold, args=(settings,), name="ray", daemon=True)
        self._watch = threading.Thread(target=self._keep, name="watch Ray")

    def start(self) -> None:
        """Begin to start it; does not wait."""
        self._ray.start()
        self._watch.start()

    def wait(self) -> None:
        """Return once it is up.

        Raises:
            EnvironmentProblem: it does not start; :class:`RunInterrupted` where it died meanwhile.
        """
        until_done(self._up)
        self._up.result()

    def leave(self) -> None:
        """Begin to end it, once it is up; does not wait for the end.

        Ctrl-C does not shorten this: Ray cannot start without the token that its caller removes.
        """
        self._left.set()
        while self._watch.is_alive() and not self._up.done():
            with suppress(KeyboardInterrupt):
                until_done(self._up)

    def _hold(self, settings: Settings) -> None:
        with suppress(InvalidStateError):  # it was given up
            try:
                with _ONE:
                    self._earlier = ray_children().keys()
                    with connected(settings):
                        self._up.set_result(None)
                        self._left.wait()
            except BaseException as error:
                self._up.set_exception(error)

    def _keep(self) -> None:
        """Keep this process until Ray has ended.

        If a part of Ray dies while it starts, that is not waited for: Ray would try for a minute,
        and then end this process if the head died. Ray reads how long at its first connection, and
        what it starts then inherits it: agents whose Ray was killed would live on as long.
        """
        while self._ray.is_alive():
            self._ray.join(POLL_SECONDS)
            if self._earlier is None or self._up.done():
                continue
            if ended := ended_while_starting(self._earlier):
                _GIVEN_UP.append((self._ray, ended))
                with suppress(InvalidStateError):
                    self._up.set_exception(died_while_starting(ended))
                return


@contextmanager
def started(settings: Settings) -> Iterator[OwnRay]:
    """Start a Ray on this machine, and leave it at the end; waits for neither."""
    ray = OwnRay(settings)
    try:
        ray.start()
        yield ray
    finally:
        ray.leave()
