"""Pieces of text of a draft spec: numbers, quoted words, and comments that mark guesses."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.experiment.captured import Confidence
from tuner.experiment.fitting import Fitted

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_TEXT = frozenset({"on", "off", "yes", "no", "true", "false", "null"})


def scalar_text(raw: bytes, dtype: str) -> str:
    """A scalar's value as YAML."""
    if dtype.startswith(("int", "uint", "bool")):
        return str(int.from_bytes(raw, "little", signed=dtype.startswith("int")))
    if dtype == "bfloat16":
        return repr(float(np.frombuffer(b"\0\0" + raw, np.float32)[0]))
    return repr(float(np.frombuffer(raw, f"<f{len(raw)}")[0]))


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is guessed, and how sure it is."""

    reason: str
    confidence: Confidence


def marks(reasons: Sequence[Reason | Fitted]) -> str:
    """The comment with these reasons, a guess unless all are sure; none without any."""
    if all(one.confidence == "high" for one in reasons):
        told = [comment_text(one.reason) for one in reasons]
        return f"    # {'; '.join(dict.fromkeys(told))}" if told else ""
    told = [f"{comment_text(one.reason)} ({one.confidence})" for one in reasons]
    return f"    # guess: {'; '.join(dict.fromkeys(told))}"


def comment_text(text: str) -> str:
    """Text on one line, for a comment."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def quoted(text: str) -> str:
    """Text as YAML, in quotes unless it is a plain name or a whole number."""
    plain = PLAIN_NAME.fullmatch(text) and text.lower() not in _NOT_TEXT
    return text if plain or text.isdecimal() else json.dumps(text)
