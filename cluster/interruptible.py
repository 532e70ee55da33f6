"""Ctrl-C: waits of the main thread that it ends, and what is said when it ends something.

A signal that arrives just before a lock is waited for without a time-out is noticed when that wait
ends, which may be hours later.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

POLL_SECONDS = 0.5
"""How late a signal is noticed at most."""


def until_done(future: "Future[None]") -> None:
    """Return once a future has a result or an exception."""
    while not wait([future], POLL_SECONDS).done:
        pass


@contextmanager
def interrupt_noted(words: Callable[[], str]) -> Iterator[None]:
    """Add a note to Ctrl-C, or to the exit after a signal; ``words`` are asked for then."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as interrupt:
        interrupt.add_note(words())
        raise
