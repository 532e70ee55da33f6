"""Names: of new runs, and of what lies in a run directory besides the run's own files."""

import secrets
from datetime import datetime
from pathlib import Path

from tuner.run_directory import begun

STOP_FILE = "stop"
"""``kernelwright stop`` leaves this file in the run directory, and the run looks for it."""

STOP_NOW = "now"
"""What the stop file says where the run is not to confirm what it found."""


def new_name(name: str) -> str:
    """A name for a new run, job or campaign: many may begin within a second, on several nodes."""
    return f"{name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def round_path(run: Path, number: int, suffix: str = "") -> Path:
    """Where a round's search lies; ``suffix`` names one that only screens drafts."""
    return run / "rounds" / f"{number:02d}{suffix}"


def rounds_begun(run: Path) -> list[Path]:
    """Where the searches of rounds lie so far, in order; a folder that holds none is no round."""
    numbers = {int(path.name) for path in (run / "rounds").glob("*") if path.name.isdecimal()}
    return [path for number in sorted(numbers) if begun(path := round_path(run, number))]


def searches_begun(run: Path) -> list[Path]:
    """Where all searches of rounds lie so far, in order: also of single drafts and final ones."""
    return sorted(path for path in (run / "rounds").glob("*") if begun(path))
