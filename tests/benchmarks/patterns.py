"""Count what patterns save: evaluations to within 2 % of a space's optimum, with and without.

Usage: python -m tests.benchmarks.patterns RUN RUN... [--repeats 50] [--strategy gp] [--noise 0.05]
       [--json FILE]

Each RUN is the directory of a finished run that measured all of its space, or much of it, such as
``kernelwright run silu_and_mul --trials 400`` leaves. The first run's winner leaves a pattern; the
second is then searched with and without it, the third with those of both before it, and so on, as
runs of one user would follow each other. Searches are simulated: an evaluation looks up the loss
that was measured. A search takes nearly the same path whatever its seed, and a single winner may be
luck, so each repeat draws four fifths of the space and the noise of its losses anew, the same for
both.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agents.patterns.inheritance import inherited, left_by, seeded
from tuner.experiment.model import SearchSettings
from tuner.journal.history import History
from tuner.results.summary import summarise
from tuner.run_directory import RunView
from tuner.search.select import make_proposer
from tuner.space.feasible import FeasibleSet, recorded_set
from tuner.trial import Configuration, loss

NEAR = 1.02
KEPT = 0.8


@dataclass(frozen=True)
class Measured:
    """A run and its losses: one per point of the space of what it measured, NaN for failures."""

    history: History
    space: FeasibleSet
    losses: np.ndarray


def load(path):
    """A finished run's measured space."""
    view = RunView.open(path)
    return measured_space(History.of(view.experiment, view.entries()))


def measured_space(history):
    """What a run measured, as a space of its own."""
    parameters = history.experiment.template.parameters
    tried = [trial for trial in history.trials.values() if trial.outcome is not None]
    rows = [
        [list(parameters[name]).index(value) for name, value in trial.configuration.values]
        for trial in tried
    ]
    space = recorded_set(parameters, rows)
    losses = np.full(len(space), np.nan)
    for trial in tried:
        found = loss(trial.outcome, history.weights)
        losses[space.index_of(trial.configuration)] = np.nan if found is None else found
    return Measured(history, space, losses)


def drawn(measured, seed, noise):
    """Most of a measured space, as another run of it on another day might see it."""
    rng = np.random.default_rng(seed)
    count = len(measured.space)
    kept = np.sort(rng.choice(count, round(KEPT * count), replace=False))
    space = recorded_set(measured.space.parameters, [measured.space.rows[at] for at in kept])
    before = [measured.space.index_of(space.configuration(at)) for at in range(len(space))]
    return Measured(
        measured.history, space, measured.losses[before] * np.exp(rng.normal(0, noise, len(space)))
    )


def evaluations(measured, search):
    """How many evaluations a search needs until it is within 2 % of the optimum."""
    proposer = make_proposer(search, measured.space)
    goal = NEAR * np.nanmin(measured.losses)
    for trial in range(len(measured.space)):
        configuration: Configuration = proposer.ask(trial)
        found = measured.losses[measured.space.index_of(configuration)]
        if found <= goal:
            return trial + 1
        proposer.tell(trial, None if np.isnan(found) else (float(found),))
    raise AssertionError("the optimum is in the space")


def compare(runs, strategy, repeats, noise=0.05):
    """A row for each run but the first: mean evaluations without and with earlier patterns."""
    patterns, rows = (), []
    for number, measured in enumerate(runs):
        experiment, device = measured.history.experiment, measured.history.device.name
        if number:
            near = inherited(patterns, experiment)
            counts = {}
            for name, subject in {
                "without": experiment,
                "with": seeded(experiment, near, device),
            }.items():
                counts[name] = [
                    evaluations(
                        drawn(measured, seed, noise),
                        SearchSettings(
                            strategy=strategy,
                            trials=len(measured.space),
                            seed=seed,
                            seeds=subject.search.seeds,
                        ),
                    )
                    for seed in range(repeats)
                ]
            row = {"kernel": experiment.name, "space": len(measured.space), "patterns": len(near)}
            for name, found in counts.items():
                row[name] = float(np.mean(found))
                row[f"{name}_error"] = float(np.std(found, ddof=1) / np.sqrt(repeats))
            saved = np.subtract(counts["without"], counts["with"])
            row["saved"] = float(np.mean(saved))
            row["saved_error"] = float(np.std(saved, ddof=1) / np.sqrt(repeats))
            rows.append(row)
        pattern = left_by(measured.history, summarise(measured.history))
        patterns = (*patterns, pattern) if pattern else patterns
    return rows


def table(rows):
    """The rows as text."""
    lines = [
        "kernel                  space  patterns  evaluations without      with          saved"
    ]
    lines += [
        f"{row['kernel']:<22} {row['space']:>6} {row['patterns']:>9} "
        f"{row['without']:>13.1f} ± {row['without_error']:<4.1f} "
        f"{row['with']:>7.1f} ± {row['with_error']:.1f} "
        f"{row['saved']:>7.1f} ± {row['saved_error']:.1f}"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments=None):
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--strategy", default="gp", choices=["gp", "tpe", "random", "anneal"])
    parser.add_argument("--noise", type=float, default=0.05, help="relative, of a loss")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    runs = [load(path) for path in options.runs]
    rows = compare(runs, options.strategy, options.repeats, options.noise)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
