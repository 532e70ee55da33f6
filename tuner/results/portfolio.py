"""The portfolio: a few configurations, and a rule on the shape that says which one serves it.

Starts from the general configuration where that is confirmed faster, else from the baseline, and
adds the configuration that gains most, as long as one gains enough: over the tune shapes that it
is confirmed faster on than what serves them so far. Incumbents may be among them, and what they
make of a portfolio alone is what the whole is compared with. The rule is a decision tree over the
symbols, exact on tune shapes; held-out shapes judge it and are not asked.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tuner.engine.fleet import BASELINE, INCUMBENT
from tuner.journal.history import History
from tuner.plan import Shape
from tuner.results.evidence import MIN_PROCESSES, Evidence
from tuner.results.result import Cell, DispatchCondition, DispatchRule, General, Member, Portfolio
from tuner.results.statistics import Comparison, Noise, compare
from tuner.trial import Value

_NONE: tuple[float, int, list[int]] = (0.0, BASELINE, [])

LEAST_GAIN = math.log(1.005)
"""What a further configuration must add to the weighted mean over the tune shapes."""


def make_portfolio(
    history: History, evidence: Evidence, general: General | None, comparisons: int
) -> Portfolio | None:
    """The portfolio of a run's confirmed configurations; ``None`` if none is worth dispatching to.

    Args:
        history: the run.
        evidence: in the cache state that decides.
        general: the general winner.
        comparisons: how many verdicts the run makes in all.
    """
    return _Choice(
        history, evidence, evidence.trials, general.trial if general else BASELINE, comparisons
    ).portfolio()


def choose(rule: Sequence[DispatchRule], shape: Shape) -> int:
    """The trial that a rule names for a shape, or ``BASELINE``; whether it is feasible is left."""
    return next(case.trial for case in rule if all(test.holds(shape) for test in case.when))


def decision_rule(shapes: Sequence[Shape], wanted: Sequence[int]) -> tuple[DispatchRule, ...]:
    """Cases that give each of ``shapes`` what is wanted there, with as few tests as it can.

    They are disjoint and cover every shape. Thresholds lie midway between neighbouring values, by
    ratio. Of tests that tell as much, the one whose two sides lie farthest apart, which is the
    likelier cause; of shapes that no symbol tells apart, the first decides.
    """
    return tuple(_grow(list(zip(shapes, wanted, strict=True)), ()))


def other_symbols(
    rule: Sequence[DispatchRule], shapes: Sequence[Shape], wanted: Sequence[int]
) -> Iterator[str]:
    """Symbols that a rule does not ask for, by each of which alone one as short is as exact."""
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
    """Every test that some of the shapes pass and others do not, and by what ratio they differ."""
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
    """The entropy left within the two sides of a test."""
    sides: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for shape, wanted in rows:
        sides[test.holds(shape)][wanted] += 1
    return -math.fsum(
        count * math.log(count / side.total()) for side in sides.values() for count in side.values()
    )


class _Choice:
    """Makes a portfolio of some of those that were confirmed."""

    def __init__(
        self,
        history: History,
        evidence: Evidence,
        entrants: Sequence[int],
        general: int,
        comparisons: int,
    ) -> None:
        self.history = history
        self.evidence = evidence
        self.entrants = entrants
        self.comparisons = comparisons
        shapes = history.experiment.shapes
        self.bindings = (*shapes.tune, *shapes.held_out)
        self.tune = range(len(shapes.tune))
        self.weight = math.fsum(binding.weight for binding in shapes.tune)
        self.otherwise = general if self.trusted(general) else BASELINE
        """What serves where the rule's choice is infeasible: the general one, if it is faster."""

    def trusted(self, general: int) -> bool:
        """Whether a configuration is confirmed faster than the baseline over the tune shapes."""
        over = list(self.evidence.over(dict.fromkeys(self.tune, general)).values())
        if general == BASELINE or len(over) < MIN_PROCESSES:
            return False
        judged = compare(over, self.evidence.noise_over_all, self.comparisons)
        return judged.verdict == "faster"

    def assigned(self) -> tuple[dict[int, int], dict[int, float]]:
        """Who serves each tune shape, and by what factor each that was added raised the speedup."""
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
        over = list(self.evidence.over({shape: served[shape] for shape in self.tune}).values())
        held_out = {shape: trial for shape, trial in served.items() if shape not in self.tune}
        if not over:
            return None
        comparison = compare(over, self.evidence.noise_over_all, self.comparisons)
        return Portfolio(
            members=tuple(
                Member(
                    trial=trial,
                    configuration=self.history.configuration(trial),
                    gain=gains.get(trial),
                )
                for trial in dict.fromkeys([self.otherwise, *gains])
                if trial != BASELINE and trial in serving.values()
            ),
            rule=rule,
            otherwise=self.otherwise,
            speedup=comparison.speedup,
            comparison=comparison,
            held_out=self.mean(held_out),
            cells=tuple(self.served_cell(trial, shape) for shape, trial in served.items()),
            serves=tuple(served.values()),
            gain=self.gain(served),
            as_well=tuple(other_symbols(rule, learned, wanted)),
        )

    def start(self) -> dict[int, int]:
        """Which trial serves each tune shape before any is added."""
        serving = dict.fromkeys(self.tune, self.otherwise)
        for shape in self.tune:
            judged = self.evidence.cell(self.otherwise, shape, self.comparisons).comparison
            if self.otherwise != BASELINE and judged and judged.verdict == "slower":
                serving[shape] = BASELINE
        return serving

    def next(self, serving: Mapping[int, int]) -> tuple[float, int, list[int]] | None:
        """The gain in the mean logarithm, the trial that gains most, and the shapes it takes."""
        found = []
        for trial in self.entrants:
            gain, taken = 0.0, []
            for shape, present in serving.items():
                logs = list(self.evidence.logs(trial, shape, against=present).values())
                if present == trial or len(logs) < MIN_PROCESSES:
                    continue
                judged = compare(logs, self.evidence.noise[shape], self.comparisons)
                if judged.verdict == "faster":
                    gain += self.bindings[shape].weight * math.log(judged.speedup) / self.weight
                    taken.append(shape)
            found.append((gain, trial, taken))
        gain, trial, taken = max(found, key=lambda one: (one[0], -abs(one[1])), default=_NONE)
        return (gain, trial, taken) if gain >= LEAST_GAIN else None

    def gain(self, served: Mapping[int, int]) -> Comparison | None:
        """Against the portfolio of the incumbents alone, in the processes that all were in."""
        entered = [trial for trial in self.entrants if trial in self.history.entered]
        if not entered:
            return None
        alone = _Choice(self.history, self.evidence, entered, INCUMBENT, self.comparisons)
        before, _ = alone.assigned()
        gains = self.between({shape: served[shape] for shape in self.tune}, before)
        if len(gains) < MIN_PROCESSES:
            return None
        others = [trial for trial in self.entrants if trial not in entered]
        noise = Noise.pooled(
            [gains, *(self.between(dict.fromkeys(self.tune, one), before) for one in others)]
        )
        return compare(gains, noise, self.comparisons)

    def between(self, served: Mapping[int, int], before: Mapping[int, int]) -> list[float]:
        """By process, the mean logarithm of how much faster one way to serve is than another."""
        now, then = self.evidence.over(served), self.evidence.over(before)
        return [now[process] - then[process] for process in now if process in then]

    def feasible(self, trial: int, shape: int) -> int:
        """What really serves a shape that the rule gives to ``trial``."""
        candidates = (trial, self.otherwise)
        return next((one for one in candidates if self.evidence.seen(one, shape)), BASELINE)

    def served_cell(self, trial: int, shape: int) -> Cell:
        if trial == BASELINE:
            return Cell(shape=shape, time_ns=self.evidence.time(BASELINE, shape), speedup=1.0)
        return self.evidence.cell(trial, shape, self.comparisons)

    def mean(self, served: Mapping[int, int]) -> float | None:
        logs = list(self.evidence.over(served).values())
        return math.exp(math.fsum(logs) / len(logs)) if logs else None
