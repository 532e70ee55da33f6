"""Makes the result of a run from its history.

Confirmed figures come from ``ConfirmationSampled`` alone; the search's own timings rank candidates,
and are shown, marked as unconfirmed, only while there is nothing better.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from tuner.candidate import BASELINE, INCUMBENT
from tuner.experiment.arguments import moved_bytes
from tuner.experiment.model import ShapeBinding
from tuner.journal.history import History
from tuner.results.evidence import MIN_PROCESSES, Evidence
from tuner.results.metrics import metrics_of
from tuner.results.notes import note_texts
from tuner.results.parameters import inactive_parameters, observations
from tuner.results.portfolio import make_portfolio
from tuner.results.rejections import advise, baseline_rejection, count_rejections
from tuner.results.result import (
    Cell,
    General,
    Member,
    OtherCache,
    OutcomeOfRun,
    Portfolio,
    Result,
    ShapeBest,
    ShapeOfRun,
)
from tuner.results.statistics import Comparison, Noise
from tuner.results.time_advice import time_advice
from tuner.telemetry import Telemetry
from tuner.trial import Full, Measured, Rejected, geometric_mean


def summarise(history: History) -> Result:
    """The result of a run so far."""
    return _Summary(history).result()


def least_ns(history: History, shape: ShapeBinding) -> float | None:
    """The time to copy the shape's bytes from a cold cache; ``None`` if hot or unknown."""
    if history.ceilings is None or history.experiment.measure.cache == "hot":
        return None
    return history.ceilings.least_ns(moved_bytes(history.experiment, shape.symbols))


_LUCK = 1.05
"""Factor that the search's best may lose in confirmation without a remark."""


def winners(history: History) -> tuple[int, ...]:
    """The confirmed trials that the result names, the general one first."""
    return _Summary(history).winners()


def undecided(
    history: History, *, cells: bool, until: float | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Winners that more processes are wanted for: on tune shapes, on held-out shapes.

    Those whose verdicts these could change, and those whose interval over all tune shapes is wider
    than ``until``, as a share of the speedup. With ``cells`` the verdicts on single shapes count
    too, not only those over all of them.
    """
    return _Summary(history).undecided(cells=cells, until=until)


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
        self.confirmed = self.evidence.trials
        self.trials = [trial for trial in self.confirmed if trial not in history.incumbent_numbers]
        self.comparisons = (
            len(self.confirmed) + self.evidence.confirmed_cells + self.other.confirmed_cells
        )
        if INCUMBENT in self.confirmed:
            self.comparisons += len(self.trials)

    def winners(self) -> tuple[int, ...]:
        best_new = self._best_new()
        general = self._general(best_new)
        named = [one.trial for one in (general, best_new) if one and one.comparison]
        for shape in self.tune:
            best = self._specialised(shape, general)
            named += [best.trial] if best and best.cell.comparison else []
        portfolio = self._portfolio(general)
        named += [member.trial for member in portfolio.members] if portfolio else []
        return tuple(dict.fromkeys(named))

    def undecided(
        self, *, cells: bool, until: float | None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        def known(comparison: Comparison | None) -> bool:
            narrow = until is None or comparison is None or comparison.width <= until
            return narrow and _decided(comparison)

        best_new = self._best_new()
        general = self._general(best_new)
        portfolio = self._portfolio(general)
        tune: list[int] = []
        held_out: list[int] = []
        for one in filter(None, (general, best_new)):
            judged = [cell.comparison for cell in one.cells if cell.shape in self.tune]
            if not (
                known(one.comparison)
                and (one.gain is None or one.gain.gain_decided)
                and all(_decided(each) for each in judged if cells)
            ):
                tune.append(one.trial)
            if not all(_decided(cell.comparison) for cell in one.cells[len(self.tune) :]):
                held_out.append(one.trial)
        if portfolio:
            gain = portfolio.gain
            if not (known(portfolio.comparison) and (gain is None or gain.gain_decided)):
                tune += [member.trial for member in portfolio.members]
            held_out += [
                trial
                for trial, cell in zip(portfolio.serves, portfolio.cells, strict=True)
                if trial != BASELINE
                and cell.shape in self.held_out
                and not _decided(cell.comparison)
            ]
        for shape in self.tune if cells else ():
            best = self._specialised(shape, general)
            if best and not _decided(best.cell.comparison):
                tune.append(best.trial)
        return tuple(dict.fromkeys(tune)), tuple(dict.fromkeys(held_out))

    def result(self) -> Result:
        history, best_new = self.history, self._best_new()
        general = self._general(best_new)
        specialised = tuple(self._specialised(shape, general) for shape in self.tune)
        portfolio = self._portfolio(general)
        members = portfolio.members if portfolio else ()
        rejections = count_rejections(history)
        trials, failed_later = history.trials.values(), history.failed_later
        own = [trial for trial in trials if trial.same_as is None]
        shapes = tuple(map(self._shape, range(len(self.shapes)), self.shapes))
        return Result(
            experiment=history.experiment.name,
            device=history.device.name if history.device else "",
            backend=history.experiment.kernel.language,
            outcome=self._outcome(general, specialised),
            ended=history.ended,
            cache=self.cache,
            trials=len(trials),
            measured=sum(
                isinstance(t.outcome, Measured) and t.number not in failed_later for t in own
            ),
            rejected=sum(isinstance(t.outcome, Rejected) or t.number in failed_later for t in own),
            merged=history.merged,
            searched_seconds=history.clock.searched,
            shapes=shapes,
            general=general,
            best_new=None if best_new == general else best_new,
            specialised=specialised,
            portfolio=portfolio,
            other_cache=self._other_cache(general, specialised),
            rejections=rejections,
            inactive=inactive_parameters(observations(history)),
            advice=(
                *advise(rejections, len(trials), [str(binding) for binding in self.shapes]),
                *self._failed_incumbents(),
                *self._search_optimism(general),
                *time_advice(history, general.comparison if general else None),
            ),
            notes=note_texts(history.notes),
            baseline_rejected=history.refused
            and baseline_rejection(history.refused, history.experiment),
            metrics=metrics_of(history.experiment, shapes, general, specialised),
            ceilings=history.ceilings,
            telemetry=Telemetry.of(history.vitals),
            origins=tuple(entered.origin for entered in history.incumbents),
            baseline_dependent=history.launches_dependently(BASELINE),
            dependent=self._dependent(general, best_new, *specialised, *members),
            objective=history.experiment.objective,
        )

    def _dependent(self, *named: General | ShapeBest | Member | None) -> tuple[int, ...]:
        """Of these, the trials that are launched dependently."""
        trials = dict.fromkeys(one.trial for one in named if one)
        return tuple(filter(self.history.launches_dependently, trials))

    def _portfolio(self, general: General | None) -> Portfolio | None:
        return make_portfolio(self.history, self.evidence, general, self.comparisons)

    def _failed_incumbents(self) -> Iterator[str]:
        """A line for each incumbent that failed in this run's confirmation."""
        for number in self.history.incumbent_numbers:
            if (why := self.history.failed_later.get(number)) is not None:
                configuration = self.history.configuration(number)
                yield f"the incumbent ({configuration}) failed in confirmation: {why.detail}"

    def _search_optimism(self, general: General | None) -> Iterator[str]:
        """A line if the search's best was much faster in the search than confirmed."""
        leader = self.history.leader()
        if leader is None or general is None or general.comparison is None:
            return
        if leader == general.trial or len(self._mean_logs(leader, self.tune)) < MIN_PROCESSES:
            return
        searched, confirmed = self._searched_general(leader), self._confirmed_general(leader)
        if searched.speedup > _LUCK * confirmed.speedup:
            yield (
                f"trial {leader} ({searched.configuration}) was the search's best at "
                f"{searched.speedup:.2f}×, but is {confirmed.speedup:.3f}× confirmed"
            )

    def _shape(self, index: int, binding: ShapeBinding) -> ShapeOfRun:
        time = self.evidence.time(BASELINE, index)
        millijoules = self.evidence.millijoules(BASELINE, index)
        scatter = self.evidence.baseline_scatter(index)
        if index < len(self.history.baseline):
            prepared = self.history.baseline[index]
            if time is None:
                time, scatter = prepared.median_ns, prepared.mad_ns / prepared.median_ns
            if millijoules is None and prepared.energy:
                millijoules = prepared.energy.millijoules
        return ShapeOfRun(
            index=index,
            label=str(binding),
            held_out=index in self.held_out,
            baseline_ns=time,
            baseline_mj=millijoules,
            baseline_scatter=scatter,
            least_ns=least_ns(self.history, binding),
        )

    def _outcome(
        self, general: General | None, specialised: Sequence[ShapeBest | None]
    ) -> OutcomeOfRun:
        if not self.history.finished:
            return "unfinished"
        comparisons = [general.comparison] if general else []
        comparisons += [best.cell.comparison for best in specialised if best]
        if not any(comparisons):
            return "nothing_valid"
        faster = any(comparison and comparison.verdict == "faster" for comparison in comparisons)
        return "improved" if faster else "no_gain"

    def _other_cache(
        self, general: General | None, specialised: Sequence[ShapeBest | None]
    ) -> OtherCache | None:
        """The same winners in the other cache state, if that was timed."""
        if not self.other.trials:
            return None
        count = range(len(self.shapes))
        return OtherCache(
            cache=self.other.cache,
            baseline_ns=tuple(self.other.time(BASELINE, shape) for shape in count),
            baseline_mj=tuple(self.other.millijoules(BASELINE, shape) for shape in count),
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

    def _general(self, best_new: General | None) -> General | None:
        """The incumbent, unless it is unconfirmed or this run's best is surely faster."""
        confirmed = len(self._mean_logs(INCUMBENT, self.tune)) >= MIN_PROCESSES
        if not confirmed or (best_new and best_new.gain and best_new.gain.surely_faster):
            return best_new
        return self._confirmed_general(INCUMBENT)

    def _best_new(self) -> General | None:
        """The best of this run's own configurations."""
        ranked = [
            (math.fsum(logs.values()) / len(logs), -trial)
            for trial in self.trials
            if len(logs := self._mean_logs(trial, self.tune)) >= MIN_PROCESSES
        ]
        if ranked:
            return self._confirmed_general(-max(ranked)[1])
        leader = self.history.leader()
        return None if leader is None else self._searched_general(leader)

    def _mean_logs(self, trial: int, shapes: Sequence[int]) -> dict[int, float]:
        return self.evidence.mean_logs(dict.fromkeys(shapes, trial))

    def _confirmed_general(self, trial: int) -> General:
        logs = list(self._mean_logs(trial, self.tune).values())
        held_out = list(self._mean_logs(trial, self.held_out).values())
        serialised = self.evidence.serialised_mean(trial, self.tune)
        comparison = self.evidence.compared(logs, self.evidence.noise_of_mean, self.comparisons)
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
            serialised=serialised,
        )

    def _gain_on_incumbent(self, trial: int) -> Comparison | None:
        """The gain over the incumbent, from processes and noise common to both."""
        incumbent = self._mean_logs(INCUMBENT, self.tune)

        def gains(trial: int) -> list[float]:
            logs = self._mean_logs(trial, self.tune)
            return [logs[process] - incumbent[process] for process in logs if process in incumbent]

        if len(gains(trial)) < MIN_PROCESSES:
            return None
        noise = Noise.pooled([gains(one) for one in self.trials])
        return self.evidence.compared(gains(trial), noise, self.comparisons)

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
        return Cell(
            shape=shape,
            time_ns=cell.median_ns,
            speedup=1 / cell.ratio,
            millijoules=cell.energy.millijoules if cell.energy else None,
        )

    def _specialised(self, shape: int, general: General | None) -> ShapeBest | None:
        means: Mapping[int, float] = {
            trial: math.fsum(logs.values()) / len(logs)
            for trial in self.confirmed
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
        return self.evidence.compared(logs, self.evidence.noise[shape], self.comparisons)


def _decided(comparison: Comparison | None) -> bool:
    """Whether a verdict cannot change; what cannot be timed has none."""
    return comparison is None or comparison.decided
