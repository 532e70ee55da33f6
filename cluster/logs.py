"""The log file of a run: what this process did, to find out why a run went wrong.

Messages name work, workers and reasons. They hold no API key, and no text of a prompt or reply.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG = "log.txt"
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
PACKAGES = ("agents", "cluster", "tuner", "workers")


@contextmanager
def logged(run: Path) -> Iterator[None]:
    """Append what these packages log to ``log.txt`` of a run directory, for as long as it lasts.

    A log that cannot be written is no reason to end a run: it goes without.
    """
    try:
        handler: logging.Handler = logging.FileHandler(run / LOG, encoding="utf-8")
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    loggers = [logging.getLogger(package) for package in PACKAGES]
    for logger in loggers:
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()
