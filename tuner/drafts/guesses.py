"""What is guessed about a kernel for a first spec: each guess with its reason and confidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuner.drafts.symbols import comment_text

Confidence = Literal["high", "medium", "low"]
_ORDER: tuple[Confidence, ...] = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class Guess:
    """Something as a spec writes it, why it is so, and how sure that is."""

    text: str
    why: str
    confidence: Confidence

    @property
    def comment(self) -> str:
        """The comment that marks it in a spec."""
        return f"# guess: {comment_text(self.why)} ({self.confidence})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentGuess:
    """One argument: its fields as a spec writes them, in order, and the guess about them."""

    name: str
    fields: Mapping[str, str]
    why: str
    confidence: Confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecGuesses:
    """A whole spec: ``tune`` and ``held_out`` bind the symbols; the latter may be empty."""

    entry: Guess
    grid: Guess
    block: Guess
    shared: Guess | None
    arguments: tuple[ArgumentGuess, ...]
    domain: Guess
    tune: Mapping[str, str]
    held_out: Mapping[str, str]
    sizes_why: str
    sizes_confidence: Confidence


def least(*confidences: Confidence) -> Confidence:
    """The lowest of several confidences."""
    return min(confidences, key=_ORDER.index)
