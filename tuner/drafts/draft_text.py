"""Pieces of text of a draft spec: numbers, expressions, and comments that mark guesses."""

from collections.abc import Sequence

import numpy as np

from tuner.drafts.guesses import Guess
from tuner.drafts.symbols import comment_text, quoted


def scalar_text(raw: bytes, dtype: str) -> str:
    """A scalar's value as YAML."""
    if dtype.startswith(("int", "uint", "bool")):
        return str(int.from_bytes(raw, "little", signed=dtype.startswith("int")))
    if dtype == "bfloat16":
        return repr(float(np.frombuffer(b"\0\0" + raw, np.float32)[0]))
    return repr(float(np.frombuffer(raw, f"<f{len(raw)}")[0]))


def marks(guesses: Sequence[Guess]) -> str:
    """The comment with these reasons, marked as a guess unless all are sure; none without any."""
    if all(one.confidence == "high" for one in guesses):
        told = [comment_text(one.why) for one in guesses]
        return f"    # {'; '.join(dict.fromkeys(told))}" if told else ""
    told = [f"{comment_text(one.why)} ({one.confidence})" for one in guesses]
    return f"    # guess: {'; '.join(dict.fromkeys(told))}"


def expression_text(text: str) -> str:
    """An expression as YAML: whole numbers as they are."""
    return text if text.isdecimal() else quoted(text)
