"""Finished runs for tests, made of facts: configurations and their times."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.candidate import BASELINE, INCUMBENT
from tuner.device import Device
from tuner.experiment.model import Experiment
from tuner.journal.facts import (
    BaselinePrepared,
    ConfirmationSampled,
    Entry,
    EpochOpened,
    Fact,
    IncumbentEntered,
    RunFinished,
    Sample,
    SearchEnded,
    Span,
    TrialFinished,
    TrialProposed,
)
from tuner.journal.history import History
from tuner.trial import Configuration, Energy, Full, Infeasible, Measured, Rejected, Value

Times = Sequence[float | None]
"""Nanoseconds per shape, tune then held-out; ``None`` where infeasible."""


def full(median_ns: float, baseline_ns: float) -> Full:
    return Full(median_ns=median_ns, mad_ns=median_ns / 100, samples=100, baseline_ns=baseline_ns)


def finished_run(
    experiment: Experiment,
    *given: Any,
    told: Callable[[Fact], Fact] = lambda fact: fact,
    **options: Any,
) -> History:
    """A run of the facts that :func:`finished_facts` makes of the same arguments.

    ``told`` adds to each fact.
    """
    facts = finished_facts(experiment, *given, **options)
    ends = itertools.accumulate(isinstance(fact, TrialFinished) for fact in facts)
    entries = (Entry(told(fact), t=float(t)) for fact, t in zip(facts, ends, strict=True))
    return History.of(experiment, entries)


def with_energy(fact: Fact, millijoules: float = 2.0) -> Fact:
    """The fact, with the energy of trials that have measured cells; the baseline takes 8 mJ."""
    if isinstance(fact, TrialFinished) and isinstance(fact.outcome, Measured):
        energy = Energy(millijoules=millijoules, baseline_mj=8.0, share=1.0)
        cells = tuple(
            replace(cell, energy=energy) if isinstance(cell, Full) else cell
            for cell in fact.outcome.cells
        )
        return replace(fact, outcome=Measured(cells=cells))
    if isinstance(fact, ConfirmationSampled):
        told = (
            replace(one, millijoules=8.0 if one.trial == BASELINE else millijoules)
            for one in fact.samples
        )
        return replace(fact, samples=tuple(told))
    return fact


def finished_facts(
    experiment: Experiment,
    device: Device,
    baseline: Sequence[float],
    trials: Sequence[tuple[Mapping[str, Value], Times | Rejected]],
    *,
    processes: int = 5,
    noise: float = 0.0,
    seed: int = 0,
    failed: Mapping[int, Rejected] | None = None,
    confirmed: Callable[[int], bool] = lambda trial: True,
    incumbents: Sequence[tuple[IncumbentEntered, Times]] = (),
) -> list[Fact]:
    """A run with these times of each trial and incumbent, plus log-normal noise."""
    random = np.random.default_rng(seed)
    tune = len(experiment.shapes.tune)
    facts: list[Fact] = [
        EpochOpened(device=device, environment="one"),
        BaselinePrepared(result=tuple(full(t, t) for t in baseline)),
    ]
    for number, (values, times) in enumerate(trials):
        facts.append(TrialProposed(trial=number, configuration=Configuration.of(values)))
        outcome = (
            times
            if isinstance(times, Rejected)
            else Measured(
                cells=tuple(
                    Infeasible(reason="told to") if t is None else full(t, b)
                    for t, b in zip(times[:tune], baseline, strict=False)
                )
            )
        )
        facts.append(
            TrialFinished(
                trial=number,
                outcome=outcome,
                device_seconds=0.1,
                span=Span(worker="b", began=number, ended=number + 0.1),
            )
        )
    facts.append(SearchEnded(reason="trials"))
    finalists = {
        number: times
        for number, (_, times) in enumerate(trials)
        if not isinstance(times, Rejected) and confirmed(number)
    }
    facts[1:1] = [entered for entered, _ in incumbents]
    finalists |= {INCUMBENT - place: times for place, (_, times) in enumerate(incumbents)}
    for process in range(processes):
        samples = [
            Sample(
                trial=trial,
                shape=shape,
                cache=experiment.measure.cache,
                median_ns=time * float(np.exp(noise * random.standard_normal())),
            )
            for trial, times in {BASELINE: baseline, **finalists}.items()
            for shape, time in enumerate(times)
            if time is not None and trial not in (failed or {})
        ]
        facts.append(
            ConfirmationSampled(
                process=process, samples=tuple(samples), failed=tuple((failed or {}).items())
            )
        )
    facts.append(RunFinished())
    return facts
