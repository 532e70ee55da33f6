"""A proposer that is made in the background."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tuner.search.port import Losses, Proposer
from tuner.trial import Configuration


class BackgroundProposer:
    """Begins to make another proposer at once, and passes every call on when that is done.

    Making one imports Hyperopt, which takes a second: the benches prepare meanwhile.
    """

    def __init__(self, make: Callable[[], Proposer]) -> None:
        """What ``make`` raises comes with the first call."""
        pool = ThreadPoolExecutor(1)
        self._made = pool.submit(make)
        pool.shutdown(wait=False)

    def ask(self, trial: int) -> Configuration | None:
        """The other one's answer."""
        return self._made.result().ask(trial)

    def record(self, trial: int, configuration: Configuration) -> None:
        """Have the other one record it."""
        self._made.result().record(trial, configuration)

    def tell(self, trial: int, losses: Losses | None) -> None:
        """Tell the other one."""
        self._made.result().tell(trial, losses)
