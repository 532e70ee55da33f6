"""The portfolio: a few configurations, and a rule that dispatches a shape to one of them.

Greedy: starts from the general configuration if that is confirmed faster, else from the baseline.
Then repeatedly adds the configuration with the largest gain, over the tune shapes where it is
confirmed faster than what serves them so far, while that gain is large enough. Incumbents may be
members; the gain of the whole is over the portfolio that they make alone. The rule is a decision
tree over the symbols, exact on tune shapes; held-out shapes only test it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tuner.candidate import BASELINE, INCUMBENT
from tuner.journal.history import History
from tuner.plan import Shape
from tuner.results.evidence import MIN_PROCESSES, Evidence
from tuner.results.result import Cell, DispatchCondition, DispatchRule, General, Member, Portfolio
from tuner.results.statistics import Comparison, Noise
from tuner.trial import Value

LEAST_GAIN = math.log(1.005)
"""Smallest gain of a further member, as a log over the weighted mean of tune shapes."""


def make_portfolio(
    history: History, evidence: Evidence, general: General | None, comparisons: int
) -> Portfolio | None:
    """The portfolio of a run; ``None`` if it would be the baseline alone.

    ``comparisons`` is the number of verdicts in the whole run.
    """
    trial = general.trial if general else BASELINE
    return _Choice(history, evidence, evidence.trials, trial, comparisons).portfolio()


def choose(rule: Sequence[DispatchRule], shape: Shape) -> int:
    """The trial that a rule names for a shape, feasible or not; it may be ``BASELINE``."""
    return next(case.trial for case in rule if all(test.holds(shape) for test in case.when))


def decision_rule(shapes: Sequence[Shape], wanted: Sequence[int]) -> tuple[DispatchRule, ...]:
    """Disjoint rules that cover every shape and give each of ``shapes`` its wanted trial.

    A greedy decision tree: at each node the condition with the least remaining entropy; of equal
    ones that whose sides lie farthest apart, the likelier cause. Thresholds are geometric means of
    neighbouring values. Of shapes that no symbol separates, the first decides.
    """
    return tuple(_grow(list(zip(shapes, wanted, strict=True)), ()))


def other_symbols(
    rule: Sequence[DispatchRule], shapes: Sequence[Shape], wanted: Sequence[int]
) -> Iterator[str]:
    """Symbols outside a rule, each of which alone gives a rule as short and exact."""
    asked = {condition.symbol for case in rule for condition in case.when}
    for symbol in shapes[0]:
        alone: list[Shape] = [{symbol: shape[symbol]} for shape in shapes]
        other = decision_rule(alone, wanted)
        exact = all(choose(other, one) == want for one, want in zip(alone, wanted, strict=True))
        if symbol not in asked and exact and 1 < len(other) <= len(rule):
            yield symbol


def _grow(
    rows: list[tuple[Shape, int]], path: tuple[DispatchCondition, ...]
) -> Iterator[DispatchRule]:
    tests = list(_tests([shape for shape, _ in rows])) if len({w for _, w in rows}) > 1 else []
    if not tests:
        yield DispatchRule(when=path, trial=rows[0][1])
        return
    best, _ = min(tests, key=lambda found: (_disorder(rows, found[0]), -found[1]))
    for side in (best, best.negated):
        narrowed = tuple(test for test in path if not test.follows_from(side))
        yield from _grow([row for row in rows if side.holds(row[0])], (*narrowed, side))


def _tests(shapes: Sequence[Shape]) -> Iterator[tuple[DispatchCondition, float]]:
    """Conditions that split the shapes, with the ratio of the values on either side."""
    for symbol in shapes[0]:
        values = [shape[symbol] for shape in shapes]
        if all(type(value) is int for value in values):
            ordered = sorted({int(value) for value in values})
            for low, high in pairwise(ordered):
                middle = math.isqrt(low * high) if low > 0 else (low + high) // 2
                apart = high / low if low > 0 else 1.0
                yield DispatchCondition(symbol=symbol, relation="<=", value=middle), apart
        elif len(names := dict.fromkeys(values)) > 1:
            for name in names:
                yield DispatchCondition(symbol=symbol, relation="==", value=name), 1.0


def _disorder(rows: Sequence[tuple[Shape, int]], test: DispatchCondition) -> float:
    """The remaining entropy of the wanted trials, within the two sides of a condition."""
    sides: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for shape, wanted in rows:
        sides[test.holds(shape)][wanted] += 1
    return -math.fsum(
        count * math.log(count / side.total()) for side in sides.values() for count in side.values()
    )


class _Choice:
    """Makes a portfolio of some of the confirmed trials."""

    def __init__(
        self,
        history: History,
        evidence: Evidence,
        confirmed: Sequence[int],
        general: int,
        comparisons: int,
    ) -> None:
        self.history = history
        self.evidence = evidence
        self.confirmed = confirmed
        self.comparisons = comparisons
        shapes = history.experiment.shapes
        self.bindings = (*shapes.tune, *shapes.held_out)
        self.tune = range(len(shapes.tune))
        self.weight = math.fsum(binding.weight for binding in shapes.tune)
        self.fallback = general if self.trusted(general) else BASELINE
        """Serves where the rule's choice is infeasible: the general trial, if it is faster."""

    def trusted(self, general: int) -> bool:
        """Whether a configuration is confirmed faster than the baseline over the tune shapes."""
        logs = list(self.evidence.mean_logs(dict.fromkeys(self.tune, general)).values())
        if general == BASELINE or len(logs) < MIN_PROCESSES:
            return False
        return (
            self.evidence.compared(logs, self.evidence.noise_of_mean, self.comparisons).verdict
            == "faster"
        )

    def assigned(self) -> tuple[dict[int, int], dict[int, float]]:
        """The trial serving each tune shape, and the gain factor of each added member."""
        serving, gains = self.start(), dict[int, float]()
        while found := self.next(serving):
            gain, trial, taken = found
            gains[trial] = math.exp(gain)
            serving |= dict.fromkeys(taken, trial)
        return serving, gains

    def portfolio(self) -> Portfolio | None:
        serving, gains = self.assigned()
        if set(serving.values()) == {BASELINE}:
            return None
        symbols: list[Mapping[str, Value]] = [binding.symbols for binding in self.bindings]
        learned = [dict(symbols[shape]) for shape in self.tune]
        wanted = [serving[shape] for shape in self.tune]
        rule = decision_rule(learned, wanted)
        served = {
            shape: self.feasible(choose(rule, dict(symbols[shape])), shape)
            for shape in range(len(symbols))
        }
        logs = list(self.evidence.mean_logs({shape: served[shape] for shape in self.tune}).values())
        held_out = {shape: trial for shape, trial in served.items() if shape not in self.tune}
        if not logs:
            return None
        comparison = self.evidence.compared(logs, self.evidence.noise_of_mean, self.comparisons)
        return Portfolio(
            members=tuple(
                Member(
                    trial=trial,
                    configuration=self.history.configuration(trial),
                    gain=gains.get(trial),
                )
                for trial in dict.fromkeys([self.fallback, *gains])
                if trial != BASELINE and trial in serving.values()
            ),
            rule=rule,
            fallback=self.fallback,
            speedup=comparison.speedup,
            comparison=comparison,
            held_out=self.mean(held_out),
            cells=tuple(self.served_cell(trial, shape) for shape, trial in served.items()),
            serves=tuple(served.values()),
            gain=self.gain(served),
            other_symbols=tuple(other_symbols(rule, learned, wanted)),
        )

    def start(self) -> dict[int, int]:
        """The trial serving each tune shape before any member is added."""
        serving = dict.fromkeys(self.tune, self.fallback)
        for shape in self.tune:
            judged = self.evidence.cell(self.fallback, shape, self.comparisons).comparison
            if self.fallback != BASELINE and judged and judged.verdict == "slower":
                serving[shape] = BASELINE
        return serving

    def next(self, serving: Mapping[int, int]) -> tuple[float, int, list[int]] | None:
        """The best further member: its gain in the mean log, its trial and its shapes."""
        found = []
        for trial in self.confirmed:
            gain, taken = 0.0, []
            for shape, present in serving.items():
                logs = list(self.evidence.logs(trial, shape, against=present).values())
                if present == trial or len(logs) < MIN_PROCESSES:
                    continue
                judged = self.evidence.compared(logs, self.evidence.noise[shape], self.comparisons)
                if judged.verdict == "faster":
                    gain += self.bindings[shape].weight * math.log(judged.speedup) / self.weight
                    taken.append(shape)
            found.append((gain, trial, taken))
        gain, trial, taken = max(
            found, key=lambda one: (one[0], -abs(one[1])), default=(0.0, BASELINE, [])
        )
        return (gain, trial, taken) if gain >= LEAST_GAIN else None

    def gain(self, served: Mapping[int, int]) -> Comparison | None:
        """The gain over the portfolio of the incumbents alone, from processes common to both."""
        entered = [trial for trial in self.confirmed if trial in self.history.incumbent_numbers]
        if not entered:
            return None
        alone = _Choice(self.history, self.evidence, entered, INCUMBENT, self.comparisons)
        before, _ = alone.assigned()
        gains = self.between({shape: served[shape] for shape in self.tune}, before)
        if len(gains) < MIN_PROCESSES:
            return None
        others = [trial for trial in self.confirmed if trial not in entered]
        noise = Noise.pooled(
            [gains, *(self.between(dict.fromkeys(self.tune, one), before) for one in others)]
        )
        return self.evidence.compared(gains, noise, self.comparisons)

    def between(self, served: Mapping[int, int], before: Mapping[int, int]) -> list[float]:
        """By process, the mean log speedup of one assignment over another."""
        now, then = self.evidence.mean_logs(served), self.evidence.mean_logs(before)
        return [now[process] - then[process] for process in now if process in then]

    def feasible(self, trial: int, shape: int) -> int:
        """The trial that serves a shape which the rule gives to ``trial``."""
        candidates = (trial, self.fallback)
        return next((one for one in candidates if self.evidence.confirmed(one, shape)), BASELINE)

    def served_cell(self, trial: int, shape: int) -> Cell:
        if trial == BASELINE:
            return Cell(shape=shape, time_ns=self.evidence.time(BASELINE, shape), speedup=1.0)
        return self.evidence.cell(trial, shape, self.comparisons)

    def mean(self, served: Mapping[int, int]) -> float | None:
        logs = list(self.evidence.mean_logs(served).values())
        return math.exp(math.fsum(logs) / len(logs)) if logs else None
