"""Waits of the main thread that Ctrl-C ends.

A signal that arrives just before a lock is waited for without a time-out is noticed when that wait
ends, which may be hours later.
"""

from concurrent.futures import Future, wait

POLL_SECONDS = 0.5
"""How late a signal is noticed at most."""


def until_done(future: "Future[None]") -> None:
    """Return once a future has a result or an exception."""
    while not wait([future], POLL_SECONDS).done:
        pass
