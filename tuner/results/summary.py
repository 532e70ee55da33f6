"""From the history of a run to its result: who won, by how much, and how sure that is.

Confirmed figures come from :class:`~tuner.journal.facts.ConfirmationSampled` alone; the search's
own timings rank candidates, and are shown, marked as unconfirmed, only while there is nothing
better.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from tuner.engine.fleet import BASELINE, INCUMBENT
from tuner.experiment.arguments import moved_bytes
from tuner.experiment.model import ShapeBinding
from tuner.journal.history import History
from tuner.results.evidence import MIN_PROCESSES, Evidence
from tuner.results.parameters import dead_parameters, observations
from tuner.results.portfolio import make_portfolio
from tuner.results.rejections import advise, count_rejections
from tuner.results.result import (
    Cell,
    General,
    OtherCache,
    OutcomeOfRun,
    Portfolio,
    Result,
    ShapeBest,
    ShapeOfRun,
)
from tuner.results.statistics import Comparison, Noise, compare
from tuner.telemetry import Telemetry
from tuner.trial import Full, Measured, Rejected, geometric_mean


def summarise(history: History) -> Result:
    """The result of a run as far as its facts go."""
    return _Summary(history).result()


def least_ns(history: History, shape: ShapeBinding) -> float | None:
    """What a copy of as many bytes takes from a cold cache, if that can be said."""
    if history.ceilings is None or history.experiment.measure.cache == "hot":
        return None
    return history.ceilings.least_ns(moved_bytes(history.experiment, shape.symbols))


_LUCK = 1.05
"""What the search's best may lose in confirmation before it is worth a word."""


def winners(history: History) -> tuple[int, ...]:
    """The confirmed trials that the result names, the general one first."""
    return _Summary(history).winners()


class _Summary:
    def __init__(self, history: History) -> None:
        self.history = history
        self.shapes = (
            *history.experiment.shapes.tune,
            *history.experiment.shapes.held_out,
        )
        self.tune = range(len(history.experiment.shapes.tune))
        self.held_out = range(len(self.tune), len(self.shapes))
        self.cache = history.experiment.measure.cache
        other = "hot" if self.cache == "cold" else "cold"
        self.evidence = Evidence(history, self.cache)
        self.other = Evidence(history, other)
        self.entrants = self.evidence.trials
        self.trials = [trial for trial in self.entrants if trial not in history.entered]
        self.comparisons = len(self.entrants) + self.evidence.cells + self.other.cells
        if INCUMBENT in self.entrants:
            self.comparisons += len(self.trials)

    def winners(self) -> tuple[int, ...]:
        tried = self._tried()
        general = self._general(tried)
        named = [one.trial for one in (general, tried) if one and one.comparison]
        for shape in self.tune:
            best = self._specialised(shape, general)
            named += [best.trial] if best and best.cell.comparison else []
        portfolio = self._portfolio(general)
        named += [member.trial for member in portfolio.members] if portfolio else []
        return tuple(dict.fromkeys(named))

    def result(self) -> Result:
        history, tried = self.history, self._tried()
        general = self._general(tried)
        specialised = tuple(self._specialised(shape, general) for shape in self.tune)
        rejections = count_rejections(history)
        trials, refuted = history.trials.values(), history.refuted
        own = [trial for trial in trials if trial.same_as is None]
        return Result(
            experiment=history.experiment.name,
            device=history.device.name if history.device else "",
            backend=history.experiment.kernel.language,
            outcome=self._outcome(general, specialised),
            ended=history.ended,
            cache=self.cache,
            trials=len(trials),
            measured=sum(isinstance(t.outcome, Measured) and t.number not in refuted for t in own),
            rejected=sum(isinstance(t.outcome, Rejected) or t.number in refuted for t in own),
            merged=history.merged,
            searched_seconds=history.searched,
            shapes=tuple(
                ShapeOfRun(
                    index=index,
                    label=str(binding),
                    held_out=index in self.held_out,
                    baseline_ns=self._baseline(index),
                    least_ns=least_ns(history, binding),
                )
                for index, binding in enumerate(self.shapes)
            ),
            general=general,
            tried=None if tried == general else tried,
            specialised=specialised,
            portfolio=self._portfolio(general),
            other_cache=self._other_cache(general, specialised),
            rejections=rejections,
            dead=dead_parameters(observations(history)),
            advice=(
                *advise(rejections, len(trials), [str(binding) for binding in self.shapes]),
                *self._fallen(),
                *self._lucky(general),
            ),
            notes=history.notes,
            refused=history.refused,
            ceilings=history.ceilings,
            telemetry=Telemetry.of(history.vitals),
            origins=tuple(entered.origin for entered in history.incumbents),
        )

    def _portfolio(self, general: General | None) -> Portfolio | None:
        return make_portfolio(self.history, self.evidence, general, self.comparisons)

    def _fallen(self) -> Iterator[str]:
        """What became of incumbents that did not stand the test again."""
        for number in self.history.entered:
            if (why := self.history.refuted.get(number)) is not None:
                shown = self.history.configuration(number)
                yield f"what was there ({shown}) failed beside the others: {why.detail}"

    def _lucky(self, general: General | None) -> Iterator[str]:
        """What became of the search's best where it is not the winner, by more than noise."""
        leader = self.history.leader()
        if leader is None or general is None or general.comparison is None:
            return
        if leader == general.trial or len(self._over(leader, self.tune)) < MIN_PROCESSES:
            return
        searched, confirmed = self._searched_general(leader), self._confirmed_general(leader)
        if searched.speedup > _LUCK * confirmed.speedup:
            yield (
                f"the search's best, trial {leader} ({searched.configuration}), was "
                f"{searched.speedup:.2f}× there and is {confirmed.speedup:.3f}× confirmed"
            )

    def _baseline(self, shape: int) -> float | None:
        confirmed = self.evidence.time(BASELINE, shape)
        if confirmed is None and shape < len(self.history.baseline):
            return self.history.baseline[shape].median_ns
        return confirmed

    def _outcome(
        self, general: General | None, specialised: Sequence[ShapeBest | None]
    ) -> OutcomeOfRun:
        if not self.history.finished:
            return "unfinished"
        judged = [general.comparison] if general else []
        judged += [best.cell.comparison for best in specialised if best]
        if not any(judged):
            return "nothing_valid"
        faster = any(comparison and comparison.verdict == "faster" for comparison in judged)
        return "improved" if faster else "no_gain"

    def _other_cache(
        self, general: General | None, specialised: Sequence[ShapeBest | None]
    ) -> OtherCache | None:
        """The same winners in the other cache state, if that was timed too."""
        if not self.other.trials:
            return None
        count = range(len(self.shapes))
        return OtherCache(
            cache=self.other.cache,
            baseline_ns=tuple(self.other.time(BASELINE, shape) for shape in count),
            general=tuple(
                self.other.cell(general.trial, shape, self.comparisons) for shape in count
            )
            if general
            else (),
            specialised=tuple(
                self.other.cell(best.trial, best.cell.shape, self.comparisons) if best else None
                for best in specialised
            ),
        )

    def _general(self, tried: General | None) -> General | None:
        """The best of this run where it is surely faster than the incumbent, else that one."""
        stands = len(self._over(INCUMBENT, self.tune)) >= MIN_PROCESSES
        if not stands or (tried and tried.gain and tried.gain.surely_faster):
            return tried
        return self._confirmed_general(INCUMBENT)

    def _tried(self) -> General | None:
        """The best of this run's own configurations."""
        ranked = [
            (math.fsum(over.values()) / len(over), -trial)
            for trial in self.trials
            if len(over := self._over(trial, self.tune)) >= MIN_PROCESSES
        ]
        if ranked:
            return self._confirmed_general(-max(ranked)[1])
        leader = self.history.leader()
        return None if leader is None else self._searched_general(leader)

    def _over(self, trial: int, shapes: Sequence[int]) -> dict[int, float]:
        return self.evidence.over(dict.fromkeys(shapes, trial))

    def _confirmed_general(self, trial: int) -> General:
        over = list(self._over(trial, self.tune).values())
        held_out = list(self._over(trial, self.held_out).values())
        comparison = compare(over, self.evidence.noise_over_all, self.comparisons)
        return General(
            trial=trial,
            configuration=self.history.configuration(trial),
            speedup=comparison.speedup,
            held_out=math.exp(math.fsum(held_out) / len(held_out)) if held_out else None,
            comparison=comparison,
            gain=None if trial == INCUMBENT else self._gain_on_incumbent(trial),
            cells=tuple(
                self.evidence.cell(trial, shape, self.comparisons)
                for shape in range(len(self.shapes))
            ),
        )

    def _gain_on_incumbent(self, trial: int) -> Comparison | None:
        """From the processes that both were in, by the noise of such comparisons."""
        incumbent = self._over(INCUMBENT, self.tune)

        def gains(trial: int) -> list[float]:
            over = self._over(trial, self.tune)
            return [over[process] - incumbent[process] for process in over if process in incumbent]

        if len(gains(trial)) < MIN_PROCESSES:
            return None
        noise = Noise.pooled([gains(one) for one in self.trials])
        return compare(gains(trial), noise, self.comparisons)

    def _searched_general(self, trial: int) -> General:
        cells = tuple(self._searched_cell(trial, shape) for shape in self.tune)
        ratios = [1 / cell.speedup for cell in cells if cell.speedup]
        return General(
            trial=trial,
            configuration=self.history.trials[trial].configuration,
            speedup=1 / geometric_mean(ratios, self.history.weights),
            held_out=None,
            comparison=None,
            cells=cells,
        )

    def _searched_cell(self, trial: int, shape: int) -> Cell:
        outcome = self.history.trials[trial].outcome
        cell = outcome.cells[shape] if isinstance(outcome, Measured) else None
        if not isinstance(cell, Full):
            return Cell(shape=shape, time_ns=None, speedup=None)
        return Cell(shape=shape, time_ns=cell.median_ns, speedup=1 / cell.ratio)

    def _specialised(self, shape: int, general: General | None) -> ShapeBest | None:
        means: Mapping[int, float] = {
            trial: math.fsum(logs.values()) / len(logs)
            for trial in self.entrants
            if len(logs := self.evidence.logs(trial, shape)) >= MIN_PROCESSES
        }
        best = (
            max(means, key=lambda trial: (means[trial], -abs(trial)))
            if means
            else self.history.leader_for(shape)
        )
        if best is None:
            return None
        return ShapeBest(
            trial=best,
            configuration=self.history.configuration(best),
            cell=self.evidence.cell(best, shape, self.comparisons)
            if means
            else self._searched_cell(best, shape),
            gain=self._gain(best, shape, general) if means else None,
        )

    def _gain(self, trial: int, shape: int, general: General | None) -> Comparison | None:
        if general is None or general.trial == trial or general.comparison is None:
            return None
        logs = list(self.evidence.logs(trial, shape, against=general.trial).values())
        if len(logs) < MIN_PROCESSES:
            return None
        return compare(logs, self.evidence.noise[shape], self.comparisons)
