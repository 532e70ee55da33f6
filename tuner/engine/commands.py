"""What a session asks its driver to do: plain data, each executed once and in order.

The driver executes commands through a fleet, a proposer and a journal; none of those is known here.
"""

from dataclasses import dataclass

from tuner.journal.facts import Fact
from tuner.search.port import Losses
from tuner.trial import Configuration


@dataclass(frozen=True, slots=True)
class Record:
    """Journal this fact, which follows from what was applied, then apply it."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Propose:
    """Ask the proposer for configuration number ``trial``; answered by a fact or a signal.

    First ``tell`` it these losses, in this order (``None``: the trial failed). Answer with
    :class:`tuner.journal.facts.TrialProposed`, or with
    :class:`tuner.engine.signals.SpaceExhausted`.
    """

    trial: int
    tell: tuple[tuple[int, Losses | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Compile:
    """Lower, check against the limits and compile one trial, the baseline or an incumbent.

    ``configuration`` is empty for the baseline. The plan has a cell per tune shape, followed by one
    per held-out shape if ``held_out`` (for all but trials that are searched). Answered by
    :class:`tuner.engine.signals.CandidateCompiled`, which carries a refusal by the limits too.
    The driver keeps the candidate until the trial has finished, a finalist's until the end.
    """

    trial: int
    configuration: Configuration
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have the baseline checked and timed: answered ``BaselinePrepared`` or ``BaselineRefused``."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Verify and time these compiled trials as one job; a ``TrialFinished`` answers for each.

    ``cutoffs`` are those of :mod:`tuner.racing` as of now.
    """

    trials: tuple[int, ...]
    cutoffs: Losses = ()


@dataclass(frozen=True, slots=True)
class Confirm:
    """Time these compiled finalists, and the incumbents, beside the baseline in one fresh process.

    Answered by :class:`tuner.journal.facts.ConfirmationSampled` with the same ``process``.
    """

    process: int
    finalists: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Examine:
    """Put these compiled, confirmed trials under the checkers, the best first.

    Answered by :class:`tuner.journal.facts.WinnersExamined`.
    """

    trials: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do in this process: close the fleet and the journal."""


Work = Compile | Prepare | Bench | Confirm | Examine
"""The commands that become jobs of a fleet, and so can be lost."""

Command = Record | Propose | Work | Finish
