"""A proposer that is made when it is first used."""

from collections.abc import Callable
from functools import cached_property

from tuner.search.port import Losses, Proposer
from tuner.trial import Configuration


class Deferred:
    """Makes another proposer with its first call, and passes every call on.

    Making one imports Hyperopt, which takes a second: a bench can prepare meanwhile.
    """

    def __init__(self, make: Callable[[], Proposer]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Proposer:
        return self._make()

    def ask(self, trial: int) -> Configuration | None:
        """The other one's answer."""
        return self._made.ask(trial)

    def record(self, trial: int, configuration: Configuration) -> None:
        """Have the other one record it."""
        self._made.record(trial, configuration)

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Tell the other one."""
        self._made.tell(trial, losses)
