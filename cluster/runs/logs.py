"""The log file of a run: what this process did, to find out why a run went wrong.

Messages name work, workers and reasons. They hold no API key, and no text of a prompt or reply.
"""

import asyncio
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import KernelwrightError

_log = logging.getLogger(__name__)

LOG = "log.txt"
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TIMES = "%Y-%m-%dT%H:%M:%S%z"
PACKAGES = ("agents", "cluster", "tuner", "workers")


class _LogFile(logging.FileHandler):
    """Drops what cannot be written, say to a full disk."""

    def handleError(self, _: logging.LogRecord) -> None:  # noqa: N802
        pass


@contextmanager
def logged(run: Path, took_over: str = "") -> Iterator[None]:
    """Append what these packages log to ``log.txt`` of a run directory, for as long as it lasts.

    It begins with the process, and the dead one that it ``took_over`` the run from, and ends with
    why the process left. A log that cannot be written is
    no reason to end a run: it goes without.
    """
    try:
        handler: logging.Handler = _LogFile(run / LOG, encoding="utf-8")
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(logging.Formatter(FORMAT, TIMES))
    loggers = [logging.getLogger(package) for package in PACKAGES]
    for logger in loggers:
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    _log.info("process %d on %s begins", os.getpid(), platform.node())
    if took_over:
        _log.warning("the run directory is taken over from %s", took_over)
    try:
        yield
        _log.info("process %d ends", os.getpid())
    except (asyncio.CancelledError, GeneratorExit):  # a second signal, or its output is closed
        _log.warning("process %d is ended before it can end the run in order", os.getpid())
        raise
    except KernelwrightError as error:
        _log.error("process %d ends: %s", os.getpid(), error)
        raise
    except BaseException as error:
        # The text of other errors may hold anything.
        _log.error("process %d ends by %s", os.getpid(), type(error).__name__)
        raise
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        with suppress(OSError):
            handler.close()
